"""The drawn tree of gates covers all experts and divides every example."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import agents
import alma_env
from agents.cli import main
from agents.figures.gating import _tree
from agents.networks.gate_tree import leaf_paths


@pytest.mark.parametrize("splits", [(0,), (0, 0, 2, 1), (0, 1, 0, 3, 2, 5, 1, 4, 0, 7)])
def test_the_leaves_of_a_drawn_tree_cover_all_experts(splits: tuple[int, ...]) -> None:
    leaves = [node for node in _tree(splits).walk() if node.children is None]
    assert [expert for leaf in leaves for expert in range(leaf.first, leaf.last + 1)] == list(range(len(splits) + 1))
    assert len(leaves) == min(len(splits), 7) + 1
    if len(splits) <= 7:
        assert [leaf.depth for leaf in leaves] == list(map(len, leaf_paths(splits)))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    words = ["--agent", "gmoe", "--width", "4", "--wait", "1", "--set", "ticks=3", "epochs=1", "--out", str(out)]
    assert main(["run", *words]) == 0
    return out


def test_the_gates_of_a_run_divide_every_example(
    mixture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plot", "gating", str(mixture), "--out", str(tmp_path), "--format", "png", "csv"]
    assert main(words) == 0
    with open(tmp_path / "gating.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[4:] == ["expert 1", "expert 2", "expert 3"]
    for row in rows:
        assert sum(float(row[f"expert {number}"]) for number in (1, 2, 3)) == pytest.approx(1, abs=1e-5)
        assert 0 <= float(row["x"]) <= 1
    assert main([*words, "--layer", "3"]) == 2
    assert "layer=3: the network has mixture layers 1 to 2" in capsys.readouterr().err


def test_own_data_are_found_by_their_path_or_the_message_says_what_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 8)).astype("float32"), np.arange(120) % 3
    np.savez(tmp_path / "own.npz", train_x=x[:90], train_y=y[:90], test_x=x[90:], test_y=y[90:])
    named, from_python = tmp_path / "named", tmp_path / "python" / "gmoe"
    words = ["--data", str(tmp_path / "own.npz"), "--agent", "gmoe", "--width", "4", "--wait", "1"]
    assert main(["run", *words, "--set", "ticks=3", "epochs=1", "name=Mine", "scale=2.0", "--out", str(named)]) == 0
    plot = ["plot", "gating", "--format", "csv", "--out", str(tmp_path)]
    assert main([*plot, str(named)]) == 0
    assert len((tmp_path / "gating.csv").read_text().splitlines()) == 1 + 30

    env = alma_env.make("Arrays-ALMA-v0", train=(x[:90], y[:90]), test=(x[90:], y[90:]), ticks=3)
    agents.run(env, agents.make("gmoe", env, width=4, wait=1, epochs=1), seed=0, folder=from_python)
    assert main([*plot, str(from_python)]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "gating needs a stream whose id determines its data, or a run of `alma run --data PATH`" in message

    (tmp_path / "own.npz").unlink()
    assert main([*plot, str(named)]) == 2
    assert "own.npz" in capsys.readouterr().err
