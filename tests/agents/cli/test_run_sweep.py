"""``alma sweep``: messages about options that contradict each other name the options that the user wrote."""

from __future__ import annotations

import pytest

from agents.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("grid.toml --no-replay", "--no-replay with grid.toml: describe the grid in the file or by options"),
        ("grid.toml --replay", "--replay with grid.toml: describe the grid in the file or by options"),
        ("--no-replay --replay --seeds 1", "--seeds --no-replay --replay without --env: a grid needs an environment"),
        ("--env Digits-ALMA-v0 --no-replay --no-replay", "--no-replay: given twice, but each run counts once"),
    ],
)
def test_a_message_about_replay_has_the_option_as_written(words, message, capsys):
    assert main(["sweep", *words.split(), "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith(f"alma sweep: {message}")
