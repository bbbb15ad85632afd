"""`parallel_env` names the keywords of `Arena` again: help, editors and the reference show their types and defaults."""

from __future__ import annotations

import inspect

from alma_env.arena import Arena, construction, parallel_env


def keywords_of(function):
    parameters = inspect.signature(function).parameters
    return {name: one for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


def test_parallel_env_has_the_keywords_of_the_arena_with_their_types_and_defaults():
    assert keywords_of(parallel_env) == keywords_of(Arena)
    assert inspect.signature(parallel_env).parameters["agents"] == inspect.signature(Arena).parameters["agents"]


def test_parallel_env_gives_every_keyword_to_the_arena_and_the_others_to_the_stream(monkeypatch):
    monkeypatch.setattr(construction, "make", lambda id, **keywords: (id, keywords))
    monkeypatch.setattr(construction, "Arena", lambda *arguments, **keywords: (arguments, keywords))
    given = {name: object() for name in keywords_of(parallel_env)}
    assert parallel_env("an id", ["mine"], ticks=3, **given) == ((("an id", {"ticks": 3}), ["mine"]), given)
