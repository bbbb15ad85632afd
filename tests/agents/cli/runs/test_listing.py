"""The lists of ``alma``, results as JSON, and suggestions for wrong words."""

from __future__ import annotations

import json
import re

import gymnasium
import pytest

from agents.catalogue import hyperparameters
from agents.catalogue.methods import METHODS, TEXT_METHODS
from alma_env.registration import STREAM_IDS

from ..running import run


@pytest.mark.parametrize("columns", ["30", "60", "80", "200"])
def test_envs_shows_every_id_uncut_in_any_width(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    status, out, _ = run(capsys, "envs")
    assert status == 0
    assert "…" not in out
    assert "500" in out or columns == "30"  # ticks
    for id in STREAM_IDS:
        assert re.search(rf"^\s*{re.escape(id)}\s", out, re.MULTILINE), id


def test_envs_as_json_names_the_streams_and_their_decision_environments(capsys):
    streams = {stream["id"]: stream for stream in json.loads(run(capsys, "envs", "--json")[1])}
    assert set(streams) == set(STREAM_IDS)
    assert streams["MNIST-ALMA-v0"]["ticks"] == 500
    decisions = [id for stream in streams.values() for id in stream["decision_environments"]]
    assert {"MNIST-ALMA-Wait-v0", "MNIST-ALMA-Wait-Surrogate-v0", "Text-ALMA-Wait-v0"} <= set(decisions)
    assert all(id in gymnasium.registry for id in decisions)
    shipped = {id for id, stream in streams.items() if stream["surrogate_in_package"]}
    assert shipped == {"MNIST-ALMA-v0", "FashionMNIST-ALMA-v0", "CIFAR10-ALMA-v0", "Digits-ALMA-v0"}
    own = {id for id, one in streams.items() if "Recorded-ALMA-Wait-Surrogate-v1" in one["decision_environments"]}
    assert own == set(STREAM_IDS) - {"Text-ALMA-v0"}


@pytest.mark.parametrize(
    "parameters",
    [
        *(hyperparameters.of_method(method) for methods in (METHODS, TEXT_METHODS) for method in methods.values()),
        hyperparameters.of_every_agent(),
        hyperparameters.of_a_stage(),
        hyperparameters.of_the_network_on_text(),
    ],
)
def test_every_hyperparameter_is_explained(parameters):
    for parameter in parameters:
        assert len(parameter.meaning) > 5, parameter


def test_agents_explains_the_hyperparameters_of_one_agent_or_of_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = run(capsys, "agents", "gmoe")
    assert re.search(r"split_by=loss +which leaf to split", out)
    assert re.search(r"patience=None +epochs without a better one", out)
    assert "ens:" not in out
    _, out, _ = run(capsys, "agents")
    for id in METHODS:
        assert re.search(rf"^{id}: ", out, re.MULTILINE)
    assert "single model" in out
    assert "from_scratch" in out
    found = json.loads(run(capsys, "agents", "--json")[1])
    assert set(found["agents"]["text"]) == set(TEXT_METHODS)
    assert {"name": "members", "default": 2, "meaning": "N, at least 1."} in found["agents"]["text"]["ens"]["own"]
    assert "did you mean gmoe?" in run(capsys, "agents", "gmeo")[2]


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["rnu"], "did you mean run?"),
        (["policy", "compar", "runs"], "did you mean compare?"),
        (["run", "--wiat", "3"], "did you mean --wait"),
        (["run", "--engine", "naitve"], "did you mean native?"),
        (["run", "digit-alma-v0"], "did you mean Digits-ALMA-v0"),
        (["run", "--agent", "enns"], "did you mean ens"),
        (["run", "--set", "epoch=3"], "did you mean epochs?"),
        (["run", "--set", "tick=3"], "did you mean ticks?"),
        (["run", "--policy", "doublin"], "did you mean doubling?"),
        (["run", "--policy", "doubling:frist=3"], "did you mean first?"),
        (["run", "--track", "tensorbord"], "did you mean tensorboard?"),
        (["plot", "eror", "runs"], "did you mean errors?"),
        (["reproduce", "fig22"], "did you mean fig2"),
        (["sweep", "--env", "digits-v0"], "did you mean Digits-ALMA-v0"),
    ],
)
def test_a_typing_error_is_answered_with_the_word_that_was_meant(capsys, words, suggestion):
    status, _, err = run(capsys, *words)
    assert status == 2
    assert suggestion in " ".join(err.split())


def test_results_as_json_are_json_alone_also_beside_an_unfinished_run(capsys, tmp_path):
    quick = ["--width", 4, "--seeds", 0, 1, "--set", "epochs=1", "ticks=4", "--out", tmp_path]
    run(capsys, "run", "--wait", 2, 4, *quick)
    unfinished = next(tmp_path.rglob("*wait4-seed1*/ledger.jsonl"))
    unfinished.write_text("".join(unfinished.read_text().splitlines(keepends=True)[:3]))
    status, out, err = run(capsys, "show", tmp_path, "--json")
    assert status == 0
    shown = json.loads(out)
    assert {(one["label"], one["seed"]) for one in shown} == {
        ("sm 4, wait 2", 0),
        ("sm 4, wait 2", 1),
        ("sm 4, wait 4", 0),
    }
    assert all(one["score"]["cer"] > 0 and one["config"]["protocol"]["ticks"] == 4 for one in shown)
    assert "unfinished" in err
    assert not (tmp_path / "errors.png").exists()

    _, out, err = run(capsys, "table", tmp_path, "--json")
    cells = {(row["setting"], row["measure"]): row for row in json.loads(out)}
    cers = [one["score"]["cer"] for one in shown if one["label"] == "sm 4, wait 2"]
    assert cells["w = 2", "CER"]["mean"] == pytest.approx(sum(cers) / 2)
    assert "unfinished" in err

    _, out, _ = run(capsys, "policy", "compare", tmp_path, "--json")
    lines = {line["wait"]: line for line in json.loads(out)}
    assert sum(line["best_fixed"] for line in lines.values()) == 1
    assert lines[2]["costs_by_seed"] == {"0": pytest.approx(cers[0]), "1": pytest.approx(cers[1])}
