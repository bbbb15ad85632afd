"""A manifest is checked against its rules, and one error lists every rule that it breaks."""

from __future__ import annotations

import contextlib
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alma_env import AlmaError
from leaderboard.errors import SubmissionError
from leaderboard.rules import RULES_VERSION, TICKS, budget_class
from leaderboard.submission import manifest
from leaderboard.submission.manifest import Manifest, from_dict, parse
from leaderboard.text_safety import refused_character

GOOD = {
    "name": "Single model that waits",
    "authors": ["Ada Learner", "Zoë 陳"],
    "env": "Digits-ALMA-v0",
    "seeds": [0, 1, 2],
    "method": "sm",
    "description": "One network.\nIt waits.",
    "hyperparameters": {"wait": 5, "learning_rate": 0.1, "augment": False, "optimizer": "adadelta"},
    "links": {"code": "https://example.org/code?a=b#c"},
    "contact": "ada@example.org",
}


def problems_of(**changes) -> tuple[str, ...]:
    with pytest.raises(SubmissionError) as caught:
        from_dict({key: value for key, value in (GOOD | changes).items() if value is not ...})
    return caught.value.problems


def test_a_valid_manifest_round_trips_through_toml_and_json():
    made = from_dict(GOOD)
    assert made.authors == ("Ada Learner", "Zoë 陳")
    assert made.waiting_time == 5
    assert parse(made.to_toml().encode()) == made
    assert from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_optional_keys_can_be_absent():
    made = from_dict({key: GOOD[key] for key in ("name", "authors", "env", "seeds", "method", "description")})
    assert (made.hyperparameters, made.links, made.contact, made.waiting_time) == ({}, {}, None, None)
    assert parse(made.to_toml().encode()) == made


def test_an_error_lists_all_problems_with_value_rule_and_remedy():
    problems = problems_of(name="", seeds=[1, 1], env="Digits-ALMA-v1", method=..., colour="red")
    assert len(problems) == 5
    for part in (
        "'colour': unknown key",
        "name = '': must have at least 1 character; write 1 to 80",
        "seeds = [1, 1]: must have at least 3 entries; write 3 to 20 different seeds",
        "env = 'Digits-ALMA-v1': no environment of the board; did you mean Digits-ALMA-v0?",
        "method: missing",
    ):
        assert sum(problem.startswith(part) for problem in problems) == 1, part


def test_the_message_about_an_unknown_key_suggests_a_known_key():
    assert "did you mean hyperparameters?" in problems_of(hyper_parameters={})[0]
    assert "the keys are name, authors, env" in problems_of(zzz=1)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name = 3: must be text; write 1 to 80 characters on one line, in quotes"),
        ({"name": "x" * 81}, "must have at most 80 characters; write 1 to 80"),
        ({"name": "two\nlines"}, "U+000A, a control character"),
        ({"name": "nul\0"}, "U+0000, a control character"),
        ({"name": "evil \u202etxt.exe"}, "U+202E, an invisible or direction-changing character"),
        ({"name": "a\u2066b"}, "U+2066"),
        ({"name": "a\u200bb"}, "U+200B"),
        ({"name": "a\u2028b"}, "U+2028, a line separator"),
        ({"name": "a\ufffeb"}, "U+FFFE, not a character"),
        ({"description": "bell \a"}, "U+0007"),
        ({"description": "x" * 4001}, "must have at most 4000 characters; write"),
        ({"authors": "Ada"}, "must be a list; write 1 to 20 names in square brackets"),
        ({"authors": []}, "must have at least 1 entries; write 1 to 20 names"),
        ({"authors": ["Ada", 7]}, "authors[1] = 7: must be text"),
        ({"env": "Arrays-ALMA-v0"}, "no environment of the board"),
        ({"env": ["Digits-ALMA-v0"]}, "no environment of the board; use one of MNIST-ALMA-v0"),
        ({"seeds": [0, 1]}, "must have at least 3 entries; write 3 to 20"),
        ({"seeds": [0, 1, 1]}, "seeds = [0, 1, 1]: the seeds must differ; write each seed once"),
        ({"seeds": [0, 1, -1]}, "seeds[2] = -1: must be at least 0; write"),
        ({"seeds": [0, 1, True]}, "seeds[2] = True: must be a whole number; write"),
        ({"seeds": [0, 1, 2.0]}, "seeds[2] = 2.0: must be a whole number; write"),
        ({"seeds": [0, 1, 2**32]}, "4294967296: must be at most 4294967295; write"),
        ({"seeds": list(range(21))}, "must have at most 20 entries; write 3 to 20"),
        ({"method": "Single Model"}, "must match ^[a-z0-9][a-z0-9+_.-]{0,39}$; write a short id like sm"),
        ({"method": ["sm"]}, "must be text; write a short id"),
        (
            {"hyperparameters": [1]},
            "must be a table; write up to 64 lines like `wait = 5` below a line [hyperparameters]",
        ),
        ({"hyperparameters": {"a b": 1}}, "a name in hyperparameters = 'a b': must match ^[A-Za-z]"),
        ({"hyperparameters": {"a": [1]}}, "hyperparameters.a = [1]: must be a number, a text, true or false"),
        ({"hyperparameters": {"a": {"b": 1}}}, "must be a number"),
        ({"hyperparameters": {"a": float("nan")}}, "not a finite number"),
        ({"hyperparameters": {"a": 2**63}}, "larger than 64 bits"),
        ({"hyperparameters": {"a": "\x1b[31m"}}, "U+001B"),
        ({"hyperparameters": {f"k{i}": i for i in range(65)}}, "must have at most 64 entries; write up to 64"),
        ({"links": {"code": "javascript:alert(1)"}}, "only http and https"),
        ({"links": {"code": "data:text/html,x"}}, "only http and https"),
        ({"links": {"code": "//example.org"}}, "only http and https"),
        ({"links": {"code": "https://"}}, "only http and https"),
        ({"links": {"code": "https://good.org@evil.org/"}}, "can disguise the target"),
        ({"links": {"code": "https://a.org\\b"}}, "can disguise"),
        ({"links": {"code": 'https://a.org/"onclick="x'}}, "can disguise"),
        (
            {"links": {"code": "https://ex ample.org"}},
            "ASCII characters and no spaces; write it like https://example.org/code",
        ),
        (
            {"links": {"code": "https://exämple.org"}},
            "ASCII characters and no spaces; write it like https://example.org/code",
        ),
        ({"links": {"code": "https://[::1"}}, "not an address"),
        ({"links": {"code": "https://a.org:99999999/"}}, "not an address"),
        ({"contact": 1}, "contact = 1: must be text"),
    ],
)
def test_a_value_that_breaks_a_rule_is_refused(changes, message):
    problems = problems_of(**changes)
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "byte 0 is not UTF-8"),
        (b"name = ", "not TOML"),
        (b"name = 'a'\nname = 'b'", "not TOML"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "not TOML"),
        (b"a = " + b"9" * 5000, "not TOML"),
        (b"#" * (manifest.MAXIMUM_BYTES + 1), "at most 65536 are read; move long texts"),
        (b"name = 'a\0b'", "not TOML"),
        (b"seeds = [1979-05-27, 1, 2]", "1979"),
    ],
)
def test_bytes_that_are_not_toml_are_refused_with_a_reason(content, message):
    with pytest.raises(SubmissionError, match=message):
        parse(content)


def test_the_error_is_a_value_error_of_alma_and_can_be_pickled():
    with pytest.raises(SubmissionError) as caught:
        from_dict({})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AlmaError)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


# Real keys with wrong values, so that the examples pass the first check.
_words = st.sampled_from([*GOOD, "=", "[", "]", "\n", "{", "}", '"', "'", "[[links]]", "1e999", "nan", "0x", "\\u202e"])


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=300), st.lists(_words, max_size=30).map(lambda words: " ".join(words).encode())))
def test_random_bytes_parse_or_raise_a_submission_error(content):
    with contextlib.suppress(SubmissionError):
        assert isinstance(parse(content), Manifest)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from([*GOOD, "other"]), _json), st.booleans())
def test_random_values_make_a_manifest_or_raise_a_submission_error(values, filled):
    with contextlib.suppress(SubmissionError):
        made = from_dict((GOOD if filled else {}) | values)
        assert from_dict(made.to_dict()) == made


def _line(most: int, allowed: str = "") -> st.SearchStrategy[str]:
    characters = st.characters().filter(lambda character: refused_character(character, allowed) is None)
    return st.text(characters, min_size=1, max_size=most).map(str.strip).filter(bool)


_names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True)
_manifests = st.builds(
    Manifest,
    name=_line(80),
    authors=st.lists(_line(80), min_size=1, max_size=20).map(tuple),
    env=st.sampled_from(sorted(TICKS)),
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=20, unique=True).map(tuple),
    method=st.from_regex(r"[a-z0-9][a-z0-9+_.-]{0,39}", fullmatch=True),
    description=_line(300, "\n\t"),
    hyperparameters=st.dictionaries(
        _names,
        st.booleans()
        | st.integers(-(2**63) + 1, 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | _line(200),
        max_size=10,
    ),
    links=st.dictionaries(_names, st.from_regex(r"https?://[a-z]{1,9}\.org/[a-z]{0,9}", fullmatch=True), max_size=10),
    contact=st.none() | _line(200),
)


@settings(max_examples=80)
@given(_manifests)
def test_every_manifest_round_trips_through_toml_and_json(made):
    assert parse(made.to_toml().encode()) == made
    assert from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_board_and_environment_ids_share_the_major_version():
    major = RULES_VERSION.split(".")[0]
    assert all(id.endswith(f"-v{major}") for id in TICKS)
    assert TICKS["Digits-ALMA-v0"] == 20
    assert TICKS["Text-ALMA-v0"] == 4


@given(st.floats(0, 1e40))
def test_the_budget_class_is_the_smallest_decade_above_comp(comp):
    k = budget_class(comp)
    assert comp <= 10**k
    assert k == 0 or comp > 10 ** (k - 1)
