"""The ceiling finds the best decisions, is not beaten by any schedule, and has a command."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from agents.cli import main
from agents.policies.learned.priced_features import NAMES
from agents.policies.learned.schedule import SHIPPED
from agents.rl.recorded.recordings import save
from agents.rl.surrogates import ceiling as module
from agents.rl.surrogates.ceiling import Ceiling, by_ceiling, by_schedule, episode_costs
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.next_training_env import NextTrainings, NextTrainingVectorEnv
from agents.rl.surrogates.tuning import candidates, simulate

from ..synthetic import TICKS, network_of, waits


@pytest.fixture
def coarse(monkeypatch):
    """A smaller grid, for tests that need no precise optimum."""
    monkeypatch.setattr(module, "_POINTS", {True: (8, 2, 2, 3, 3), False: (16, 3, 3, 4, 1)})


def quiet(model, ticks):
    """The model without chance, on a shorter stream."""
    parts = {name: np.zeros_like(getattr(model, name)) for name in ("warm_residuals", "cold_residuals")}
    return dataclasses.replace(
        model, ticks=ticks, quality=0.0, first_errors=np.full_like(model.first_errors, 0.9), **parts
    )


@pytest.mark.parametrize(
    ("learner", "prices"),
    [
        *(("model", (pass_price, 0.0)) for pass_price in (0.0, 0.2, 1.0, 50.0)),
        *(("growing", (0.2, memory_price)) for memory_price in (0.0, 0.02, 0.2)),
    ],
)
def test_without_chance_the_ceiling_is_the_best_of_all_sequences_of_decisions(request, learner, prices):
    certain = quiet(request.getfixturevalue(learner), ticks=4)
    count = 10 if certain.grows else 7  # to wait, and trainings; the last three grow
    sequences = np.array(list(itertools.product(range(count), repeat=4)))
    env = DecisionSurrogateVectorEnv(len(sequences), models=[certain])
    env.reset(seed=0)
    totals = np.zeros((len(sequences), 3))
    for choices in sequences.T:
        *_, infos = env.step(choices)
        totals -= infos["vector_reward"]
    best = (totals @ [1, *prices]).min()
    found = Ceiling(certain, *prices)
    assert episode_costs(certain, *prices, by_ceiling(found), 2) == pytest.approx(best, rel=0.005)
    assert found.estimate == pytest.approx(best, rel=0.01)


@pytest.mark.parametrize("pass_price", [10.0])
def test_no_schedule_is_better_than_the_ceiling(model, pass_price):
    found = Ceiling(model, pass_price)
    costs = episode_costs(model, pass_price, 0.0, by_ceiling(found), 128)
    error = 2 * costs.std() / 128**0.5
    names = candidates(TICKS, replays=True, restarts=True)[::20]
    assert costs.mean() - error <= min(simulate([model], name, 128).costs(pass_price).mean() for name in names)
    assert costs.mean() - error <= episode_costs(model, pass_price, 0.0, by_schedule(network_of(1)), 128).mean()
    assert found.estimate <= costs.mean() + error


def test_where_flops_are_too_dear_nothing_is_trained(model, coarse):
    untrained = model.first_errors.mean() * TICKS
    assert Ceiling(model, 1e6).estimate == pytest.approx(untrained)


def test_models_without_the_decisions_are_refused(model):
    for name in ("replays", "restarts"):
        with pytest.raises(ValueError, match=f"{name}=False.*alma surrogate record"):
            Ceiling(dataclasses.replace(model, **{name: False}), 1.0)


@pytest.mark.parametrize("learner", ["model", "growing"])
def test_where_the_network_was_not_trained_the_rule_is_simulated(request, learner):
    simulated = request.getfixturevalue(learner)
    unknown = by_schedule(network_of(1, known=-1e8))
    rule = simulate([simulated], "geometric:factor=1.6,stop=0.8", 512).costs(3.0, 0.1)  # it grows at every stage
    found = episode_costs(simulated, 3.0, 0.1, unknown, 512)
    assert found.mean() == pytest.approx(rule.mean(), abs=3 * (rule.std() + found.std()) / 512**0.5)


def test_on_a_stream_of_one_mega_batch_the_rule_decides(model):
    env = NextTrainingVectorEnv(2, [quiet(model, ticks=1)])
    observations, _ = env.reset(seed=0)
    network = network_of(1)
    network.layers[-1][1][network.menu.stop] = 99.0  # it always stops
    assert network.decide(observations).tolist() == [network.menu.stop] * 2
    assert by_schedule(network)(env, observations).tick.tolist() == [1, 1]


def test_a_factor_reaches_the_tick_that_is_its_multiple(model, coarse):
    found = Ceiling(dataclasses.replace(model, ticks=110), 1.0)
    found.ticks = [90, 99, 110]
    assert {tick for tick, *_ in found._choices(90)} == {99}


def test_a_training_that_is_not_after_the_last_one_is_refused(model):
    env = NextTrainingVectorEnv(2, [model])
    env.reset(seed=0)
    trainings = NextTrainings(np.array([3.0, 0.0]), np.array(["none", "none"]), *np.zeros((2, 2), bool))
    with pytest.raises(ValueError, match="tick=0 of episode 1: .*after the last one, at tick 0"):
        env.train_at(trainings)


def test_the_command_says_the_share_of_the_way(tmp_path, capsys, coarse):
    network_of(3).save(tmp_path / "schedule.npz")
    words = ["surrogate", "ceiling", "Digits-ALMA-v0", "--width", "4", "--policy", str(tmp_path / "schedule.npz")]
    words += ["--pass-price", "0", "5", "--episodes", "32"]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["pass_price"] for row in rows] == [0.0, 5.0]
    for row in rows:
        saved = row["rule"]["mean"] - row["schedule"]["mean"], row["rule"]["mean"] - row["ceiling"]["mean"]
        assert row["share"] == pytest.approx(saved[0] / saved[1])
        assert row["ceiling"]["n"] == 32
    assert main([*words, "--pass-price", "5", "--episodes", "2"]) == 0
    assert "Share: of the way from the rule to the ceiling" in " ".join(capsys.readouterr().out.split())
    growing = [*words[:5], "--learner", "gens", "--pass-price", "10", "--memory-price", "0", "0.1", "--episodes", "32"]
    assert main([*growing, "--json"]) == 0
    free, dear = json.loads(capsys.readouterr().out)
    assert (free["memory_price"], dear["memory_price"]) == (0, 0.1)
    # With memory at 0.1 the rule, which grows, pays for its size, and the schedule does not grow.
    assert dear["rule"]["mean"] - free["rule"]["mean"] > 2 * (dear["schedule"]["mean"] - free["schedule"]["mean"]) > 0
    save(waits(noise=0.05, seeds=(0, 1)), tmp_path / "own.npz")
    unfree = dataclasses.replace(network_of(3), about={"pass_price": [0, 100], "memory_price": [0.05, 0.5]})
    unfree.save(tmp_path / "unfree.npz")
    free_growth = network_of(3)
    free_growth.known.high[NAMES.index("can_grow")] = 0.5  # as if it was learned on gens
    free_growth.save(tmp_path / "free.npz")
    for wrong, message in (
        (["--episodes", "1"], "--episodes 1: must be at least 2"),
        (["--policy", "doubling"], "--policy doubling: must be learned, or a file .npz"),
        (["--policy", str(SHIPPED[True])], "it was not learned on learners that do not grow; give a schedule that was"),
        (
            ["--learner", "gens", "--policy", str(SHIPPED[False])],
            "it was not learned on learners that grow while the FLOPs of a training stay the same; give a schedule",
        ),
        (
            ["--learner", "gmoe", "--policy", str(tmp_path / "free.npz")],
            "it was not learned on learners that grow and need more FLOPs then; give a schedule",
        ),
        (["--policy", str(tmp_path / "unfree.npz")], "--memory-price 0: the network knows prices from 0.05 to 0.5"),
        (["--policy", "learned", "--memory-price", "0.01"], "--memory-price 0.01: the network knows only the price 0"),
        (["--memory-price", "-1"], "--memory-price -1: a price must be a finite number"),
        (["--pass-price", "1000"], "--pass-price 1000: the network knows prices from 0 to 100"),
        (["--recorded", str(tmp_path / "own.npz")], "replays=False, restarts=False"),
    ):
        assert main([*words, *wrong]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
