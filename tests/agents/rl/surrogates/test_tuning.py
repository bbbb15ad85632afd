"""Tuning of schedules: their decisions are those of real runs, and their costs follow the prices."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from agents.cli import main
from agents.cli.decisions import tuning
from agents.policies.specs import policy_from
from agents.rl.models.regression import logit
from agents.rl.models.training_fit import fit_trainings
from agents.rl.recorded.recordings import save
from agents.rl.surrogates.tuning import GROWTH, candidates, simulate

from ..synthetic import TICKS, recorded, waits


@pytest.fixture(scope="module")
def models():
    return [fit_trainings(waits(noise=0.05, seeds=(0, 1)))]


def test_every_candidate_can_be_read_and_differs():
    assert all("replay=none" in name for name in candidates(500, replays=False))
    assert not any("restart" in name for name in candidates(500, replays=True))
    assert candidates(500, replays=False, restarts=True) == candidates(500, replays=False)
    names = candidates(500, replays=True, restarts=True)
    assert len(names) == len(set(names)) == 6 * (3 + 3) * 14
    assert len({policy_from(name) for name in names}) == len(names)


def test_candidates_of_a_learner_that_can_grow_differ_in_growth_and_never_restart():
    names = candidates(500, replays=True, restarts=True, grows=True)
    policies = {policy_from(name, grows=True) for name in names}
    assert len(policies) == len(names) == 6 * (3 * 4) * 14
    assert {policy.growth for policy in policies} == set(GROWTH)
    assert not any(policy.restart for policy in policies)


def test_a_schedule_pays_for_what_it_trains_on(models):
    every, half = (simulate(models, f"fixed:wait=1,stop={stop}", 256) for stop in (1.0, 0.5))
    assert np.allclose(every.passes, 1)
    assert np.allclose(half.passes, 0.5)
    assert np.allclose(every.size, TICKS)
    assert half.cer.mean() > every.cer.mean()
    assert np.allclose(half.costs(40, 0.1), half.cer + 20 + 0.1 * TICKS)


def test_a_schedule_is_simulated_as_the_runs_were_recorded(models):
    recorded = [run for run in waits(noise=0.05, seeds=(0, 1)) if run.schedule == "wait 5"]
    found = simulate(models, "fixed:wait=5", 256)
    real = np.mean([run.cer - run.error for run in recorded])
    assert abs(logit(np.float64(found.cer.mean() / TICKS)) - logit(np.float64(real / TICKS))) < 0.1


def test_a_schedule_without_growth_keeps_the_size_of_a_learner_that_can_grow(models):
    grown = 1.0 + np.arange(TICKS + 1)  # a growth step adds the untrained size
    flops = np.repeat(models[0].flops, len(grown), 0)
    growing = [dataclasses.replace(models[0], grows=True, parameters=grown, flops=flops)]
    sizes = {growth: simulate(growing, f"fixed:wait=1,growth={growth}", 4).size for growth in GROWTH}
    assert np.allclose(sizes["never"], TICKS)
    assert np.allclose(sizes["every"], sum(range(1, TICKS + 1)))  # there is no growth before the first training
    assert (sizes["every"] > sizes["every:2"]).all()
    assert (sizes["every:2"] > sizes["every:4"]).all()


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("sometimes", "unknown policy"),
        ("validation:wait=5", "schedule='validation:wait=5': must depend on the ticks only"),
        ("doubling:growth=stall", "schedule='doubling:growth=stall': must depend"),
        ("learned:pass_price=10", "schedule='learned:pass_price=10': must depend"),
    ],
)
def test_a_schedule_that_depends_on_what_happens_is_refused(models, schedule, message):
    with pytest.raises(ValueError, match=message):
        simulate(models, schedule, 2)


def test_a_decision_that_no_recorded_training_made_is_refused(models):
    (model,) = models
    can = {name: dataclasses.replace(model, **{name: True}) for name in ("replays", "restarts")}
    for kind, name in (("replay=all", "replays"), ("restart=0.1", "restarts")):
        schedule = f"geometric:{kind}"
        assert simulate([can[name]], schedule, 2).cer.shape == (2,)
        with pytest.raises(ValueError, match=f"schedule='{schedule}': it {name}, and a model .* no training {name}"):
            simulate([can[name], model], schedule, 2)


def test_own_runs_with_replay_and_without_restarts_are_tuned(capsys, tmp_path, monkeypatch):
    fixed = [name for name in candidates(TICKS, replays=True) if name.startswith("fixed")]
    monkeypatch.setattr(tuning, "candidates", lambda *ticks, **kinds: fixed if kinds["replays"] else [])
    replayed = [recorded(f"replay {n}", lambda tick, n=n: (tick % n == 0, 1, 0), n, 0.05) for n in (2, 3, 4, 5)]
    save([*waits(noise=0.05, seeds=(0, 1)), *replayed], file := tmp_path / "own.npz")
    assert main(["surrogate", "tune", str(file), "--episodes", "2", "--pass-price", "0", "--json"]) == 0
    told = [row["schedule"] for row in json.loads(capsys.readouterr().out)]
    assert any("replay=all" in schedule for schedule in told)


def test_a_file_of_own_runs_names_its_stream(capsys, tmp_path):
    file = str(tmp_path / "own.npz")
    save(waits(noise=0.05, seeds=(0, 1)), tmp_path / "own.npz")
    assert main(["surrogate", "tune", file, "--episodes", "2"]) == 0
    told = capsys.readouterr().out
    assert main(["surrogate", "tune", "Digits-ALMA-v0", "--recorded", file, "--episodes", "2"]) == 0
    assert capsys.readouterr().out == told
    assert main(["surrogate", "tune", file, "--recorded", file]) == 2
    assert "give one file; leave --recorded out" in capsys.readouterr().err
    for kind in ("tune", "validate"):
        assert main(["surrogate", kind, "missing.npz"]) == 2
        assert "recorded='missing.npz': cannot be read" in (said := capsys.readouterr().err)
        assert "No such file" in said


def test_a_command_prints_the_best_schedules_of_each_price(capsys, monkeypatch):
    monkeypatch.setattr(tuning, "candidates", lambda *ticks, **kinds: candidates(*ticks, **kinds)[::7])
    words = ["surrogate", "tune", "Digits-ALMA-v0", "--width", "4", "--pass-price", "0", "10", "--episodes", "16"]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    for price, several in ((0.0, [row for row in rows if row["pass_price"] == 0]), (10.0, rows[len(rows) // 2 :])):
        assert {row["pass_price"] for row in several} == {price}
        costs = [row["cost"]["mean"] for row in several[:3]]
        assert costs == sorted(costs)
        assert all(row["cost"]["mean"] >= costs[0] for row in several)
        assert all(row["cost"]["mean"] == pytest.approx(row["cer"] + price * row["passes"]) for row in several)
        assert {"doubling", "geometric:factor=1.6,stop=0.8"} <= {row["schedule"] for row in several}
    assert rows[0]["passes"] > rows[len(rows) // 2]["passes"]  # a price makes passes rarer
    assert main(words) == 0
    assert "doubling" in capsys.readouterr().out
    assert main([*words[:-1], "1"]) == 2
    assert "--episodes 1: must be at least 2" in capsys.readouterr().err
