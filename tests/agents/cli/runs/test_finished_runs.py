"""``alma show`` and ``alma table`` group the same runs."""

from __future__ import annotations

import json
import re

import pytest

from ...fake_runs import fake_run, write
from ..running import run


@pytest.mark.parametrize(
    ("seeds", "groups"),  # seeds: of the stream, the agent and the policy
    [
        ([(0, 0, 0), (0, 1, 0), (0, 2, 0)], 3),
        ([(0, 0, 0), (0, 0, 1), (0, 0, 2)], 3),
        ([(0, 0, 0), (1, 1, 1), (2, 2, 2)], 1),
    ],
    ids=["seeds of the agent on one stream", "seeds of the policy on one stream", "a stream for each seed"],
)
def test_show_has_the_seed_groups_of_table(capsys, tmp_path, monkeypatch, seeds, groups):
    monkeypatch.setenv("COLUMNS", "160")
    for number, (stream, agent, policy) in enumerate(seeds):
        made = fake_run(policy={"name": "random", "probability": 0.5, "replay": False, "seed": policy}, seed=stream)
        made.config["agent"]["seed"] = agent
        write(made, tmp_path / str(number))
    status, shown, _ = run(capsys, "show", tmp_path)
    assert (status, "counted once" in shown) == (0, False)
    status, table, _ = run(capsys, "table", tmp_path, "--format", "json")
    assert status == 0
    assert len({entry["setting"] for entry in json.loads(table)}) == groups
    lines = re.findall(r"random\(probability=0.5\)(?:, seed=\d)? +(\d) ", shown)
    assert lines == [str(len(seeds) // groups)] * groups
