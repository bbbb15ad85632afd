"""Contestants of a tournament, in the form of the command line: ``ens:width=4,members=3`` or ``my.py:make:width=4``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.catalogue import build, own_code
from agents.catalogue.methods import method_for
from agents.catalogue.recipes import recipe_for
from agents.learners.anytime import AnytimeAgent
from agents.policies.specs import fields_of, policy_from
from agents.policies.validation import literal
from alma_env import AlmaEnv

# Keys that all contestants share, or whose values cannot be text, and what to write instead.
_ELSEWHERE = {
    "id": "write it first, as in sm:width=4",
    "env": "write it right after `alma arena`",
    "seed": "write --seeds, which all agents and the stream share",
    "seeds": "write --seeds, which all agents and the stream share",
    "on_epoch": "use Python: `agents.arena.tournament.play` takes agents with any function",
}


@dataclass(frozen=True)
class Contestant:
    """An entry of a tournament: id and keywords of `agents.make`, with the policy as text and without a seed.

    The id can also be ``FILE.py:FUNCTION``, for an agent of your own. The keywords then go to the function.
    """

    name: str
    id: str
    hyperparameters: Mapping[str, Any]

    def make(self, env: AlmaEnv, seed: int) -> AnytimeAgent:
        """Return a new agent for one stream.

        Raises:
            ValueError: as `agents.make`; the message starts with the contestant's name.
            TypeError: the function in the file does not return an `AnytimeAgent`.
        """
        given = dict(self.hyperparameters)
        if own_code.is_own(self.id):  # not below `try`: an error in the file must keep its traceback
            if "policy" in given:
                given["policy"] = policy_from(str(given["policy"]), grows=False, option=f"agent {self.name!r}: policy=")
            return own_code.make(self.id, env, seed, given)
        try:
            if "policy" in given:
                grows = method_for(self.id, recipe_for(env.data.name).backbone).grows
                given["policy"] = policy_from(str(given["policy"]), grows=grows, option="policy=")
            return build.make(self.id, env, seed=seed, **given)
        except ValueError as error:
            raise ValueError(f"agent {self.name!r}: {error}") from error


def read_contestants(specs: Sequence[str], common: Mapping[str, Any] | None = None) -> list[Contestant]:
    """Read ``ID`` or ``ID:KEY=VALUE,KEY=VALUE,…``; ``common`` holds hyper-parameters of all contestants.

    An ID is the name of an agent, or ``FILE.py:FUNCTION``. A part without ``=`` belongs to the value before it, as in
    ``gens:growth=at:5,10``; so does a field of a policy, as in ``sm:policy=geometric:factor=1.6,stop=0.8,width=4``.

    Raises:
        ValueError: a word has another form, or is given twice.

    >>> read_contestants(["gens:growth=at:5,10,width=8"], {"epochs": 3, "width": 4})[0].hyperparameters
    {'epochs': 3, 'width': 8, 'growth': 'at:5,10'}
    >>> read_contestants(["sm:policy=geometric:factor=1.6,stop=0.8,width=8"])[0].hyperparameters
    {'policy': 'geometric:factor=1.6,stop=0.8', 'width': 8}
    >>> read_contestants(["my.py:make_agent:width=8"])[0]
    Contestant(name='my.py:make_agent:width=8', id='my.py:make_agent', hyperparameters={'width': 8})
    """
    for spec in specs:
        if specs.count(spec) > 1:
            raise ValueError(f"--agents {spec}: given twice; give each agent once")
    contestants = []
    for spec in specs:
        id, colon, keywords = _divided(spec)
        if not id or (colon and not keywords):
            raise ValueError(
                f"--agents {spec}: write the id, and hyper-parameters after a colon, as in sm:width=4,wait=5"
            )
        given = read_keywords(f"--agents {spec}", _parts(keywords))
        contestants.append(Contestant(spec, id, {**(common or {}), **given}))
    return contestants


def _divided(spec: str) -> tuple[str, str, str]:
    """Return the id, the colon after it or "", and the text of the keywords."""
    id, colon, keywords = spec.partition(":")
    if not own_code.is_own(id):
        return id, colon, keywords
    function, colon, keywords = keywords.partition(":")
    return f"{id}:{function}", colon, keywords


def _parts(keywords: str) -> list[str]:
    parts: list[str] = []
    for part in keywords.split(",") if keywords else []:
        if parts and ("=" not in part or part.partition("=")[0] in _fields_of_policy(parts[-1])):
            parts[-1] += "," + part
        else:
            parts.append(part)
    return parts


def _fields_of_policy(part: str) -> tuple[str, ...]:
    key, _, spec = part.partition("=")
    return fields_of(spec) if key == "policy" and ":" in spec else ()


def read_keywords(where: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` words; a value is true or false in any case, another Python literal, or text.

    Raises:
        ValueError: a word has another form, or a key is given twice or is no hyper-parameter of an agent; the message
            starts with ``where``.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals and text):
            raise ValueError(f"{where}: {pair!r} is not key=value; write for example width=4")
        if key in values:
            raise ValueError(f"{where}: {key} is given twice; give it once")
        if key in _ELSEWHERE:
            raise ValueError(f"{where}: {key} is not a hyper-parameter of an agent; {_ELSEWHERE[key]}")
        values[key] = literal(text)
    return values
