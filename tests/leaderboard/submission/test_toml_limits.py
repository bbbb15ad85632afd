"""The time to read a manifest grows only with its length: other texts are refused before the parser."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.errors import SubmissionError
from leaderboard.submission import manifest, toml_limits
from leaderboard.submission.toml_limits import require_small

from ..conftest import manifest_text

SIZE = manifest.MAXIMUM_BYTES


def repeated(unit: str, before: str = "", after: str = "") -> str:
    """Return a text of the maximum size."""
    return before + unit * ((SIZE - len(before) - len(after)) // len(unit)) + after


HOSTILE = {
    "a dotted key": repeated("a.", after="a = 1"),
    "a dotted key with spaces": repeated("a . ", after="a = 1"),
    "a dotted key of quotes": repeated("''.", after="a = 1"),
    "a dotted key behind a comment": repeated("a.", "# x\n", "a = 1"),
    "a dotted key behind a text": repeated("a.", 'x = """ " \\""""\n', "a = 1"),
    "a dotted key in a table": repeated("a.", "x = {", "a = 1}"),
    "a dotted header": repeated("a.", "[", "a]"),
    "a dotted header of tables": repeated("a.", "[[", "a]]"),
    "keys below a dotted header": "[" + "a." * 9_000 + "a]\n" + repeated("b.c = 1\n")[:40_000],
    "nested arrays": repeated("[", "a = "),
    "nested tables": repeated("{a = ", "a = "),
    "nested in turn": repeated("[{a = ", "a = "),
    "tables": "".join(f"[t{number}]\n" for number in range(7_000)),
    "lists of tables": repeated("[[a]]\n"),
    "keys": "".join(f"b{number} = 1\n" for number in range(6_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_does_not_reach_the_parser(name, monkeypatch):
    text = HOSTILE[name]
    assert len(text) <= SIZE
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("the parser was called"))
    with pytest.raises(
        SubmissionError, match=r"submission.toml: not TOML of a manifest .line \d+: (a key of )?more than"
    ):
        manifest.parse(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        manifest_text(),
        'description = """' + "a.b.c.d.e.f.g [[[[[[[[[[[[ {{{{{{{{{{\n" * 500 + '"""\n',
        "description = '''" + "a.b.c.d.e.f.g\n" * 3_000 + "'''\n",
        'name = "a.b.c.d.e.f.g.h \\" a.b.c.d.e.f.g.h"\n',
        "name = 'a.b.c.d.e.f.g.h'\n# a.b.c.d.e.f.g.h.i\n",
        "[hyperparameters]\nbeta = [[0.9, 0.999], [1.5e-3]]\nx = {a = 1.5}\n",
        'links.code = "https://a.b.c.d.e.f.g/h"\n',
        'x = """a"""""\ny = """"""\nz = \'\'\'\'\'\'\n',
    ],
)
def test_texts_and_comments_may_have_dots_and_brackets(text):
    require_small(text)  # raises nothing
    assert tomllib.loads(text)


_PIECES = st.sampled_from([*"\"'#.[]{}=,\n\\ a1", '"""', "'''", "a = 1\n", '\\"', "x.y"])


@given(st.lists(_PIECES, max_size=30).map("".join))
def test_what_the_parser_accepts_has_no_deeper_key_or_bracket_than_the_limits_saw(text):
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError):
        return
    try:
        require_small(text)
    except SubmissionError:
        return
    assert (
        depth(values) <= 2 * toml_limits.MAXIMUM_KEY_PARTS + toml_limits.MAXIMUM_DEPTH * toml_limits.MAXIMUM_KEY_PARTS
    )


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize("quotes", ['"', "'", '"""', "'''", "#"])
@pytest.mark.parametrize("rest", ["", "\\", '\\"\\', '\\"' * 9 + "\\", "\\\\\\", "x", "\n\\", "'\\", '""\\'])
def test_a_text_without_an_end_is_read_once(quotes, rest):
    # A text that did not match would be tried again from each of its quotes: 10 s for 64 KiB.
    assert toml_limits._TOKENS.match(quotes + rest) is not None


@given(st.sampled_from(['"', "'", '"""', "'''", "#"]), st.text("\\\"'\nx.", max_size=20))
def test_every_text_that_begins_is_a_token(quotes, rest):
    assert toml_limits._TOKENS.match(quotes + rest) is not None


def test_an_error_lists_few_problems():
    text = manifest_text().replace("[0, 1, 2]", "[" + "-1," * 15_000 + "]")
    with pytest.raises(SubmissionError) as caught:
        manifest.parse(text.encode())
    assert len(caught.value.problems) == manifest.MOST_PROBLEMS + 1
    assert "more problems" in caught.value.problems[-1]
