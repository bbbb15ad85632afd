"""Learned schedules: their play tick by tick, the rule in their place, and their files."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import agents
import alma_env
from agents.cli import main
from agents.policies.learned.known_states import KnownStates
from agents.policies.learned.priced_features import FEATURES, NAMES
from agents.policies.learned.schedule import LearnedSchedule, ScheduleNetwork
from agents.policies.progress import Progress, megabatches_of
from agents.policies.specs import policy_from
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.next_training_env import NextTrainingVectorEnv

from ..synthetic import TICKS, network_of


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("learner", ["model", "growing"])
def test_a_run_plays_what_the_network_decides_in_the_environment(learner, seed, tmp_path, request):
    model = request.getfixturevalue(learner)
    env = NextTrainingVectorEnv(1, [model], pass_price=20.0)
    network = network_of(seed, menu=env.menu)
    observations, _ = env.reset(seed=seed)
    trained = []
    for _ in range(TICKS):
        before = env._stages[0]
        observations, _, ended, _, _ = env.step(network.decide(observations))
        if ended[0]:
            break
        assert env._stages[0] == before + 1
        trained.append((int(env._tick[0]), int(env._size[0]), int(env._grown[0])))

    network.save(tmp_path / "schedule.npz")
    policy = policy_from(f"{tmp_path / 'schedule.npz'}:pass_price=20", grows=model.grows)
    by_tick = DecisionSurrogateVectorEnv(1, models=[model], pass_price=20.0)
    by_tick.reset(seed=seed)
    played, grown = [], 0
    for tick in range(1, TICKS + 1):
        now = progress(by_tick, tick)
        decision = policy(now)
        size = megabatches_of(tick, now.pending, replay=decision.replay, window=decision.window)
        grown += decision.grow
        if decision.train:
            played.append((tick, size, grown))
        by_tick.decide(*(np.array([value]) for value in (decision.train, size, decision.restart, decision.grow)))
    assert played[: len(trained)] == trained  # the last training of the episode ends it, and is not in `trained`
    assert len(played) <= len(trained) + 1


def progress(env, tick):
    """The progress of the only episode of a surrogate."""
    loss, error, earlier_loss, earlier_error = (None if np.isnan(one) else float(one) for one in env._validation[:, 0])
    return Progress(
        tick=tick,
        ticks=TICKS,
        pending=int(env._pending[0]),
        stages=int(env._stages[0]),
        validation_loss=loss,
        validation_error=error,
        previous_validation_loss=earlier_loss,
        previous_validation_error=earlier_error,
        processed_since_restart=int(env._processed[0]),
        last_size=int(env._size[0]),
        guess_loss=float(np.log(10)),
        parameters=int(env._parameters()[0]),
        first_parameters=100,
        flops=0,
    )


def test_the_rule_decides_where_the_network_was_not_trained(tmp_path):
    network = network_of(0)
    tick = NAMES.index("tick")
    network.known.high[tick] = 0.5
    network.save(tmp_path / "schedule.npz")
    policy = LearnedSchedule(tmp_path / "schedule.npz", pass_price=1e6)  # as the highest price of the training
    known = Progress(tick=9, ticks=20, pending=1, stages=1, guess_loss=2.3, parameters=9, first_parameters=9, flops=0)
    beyond = dataclasses.replace(known, tick=16, pending=4)
    assert policy(known).by == ""
    assert policy(beyond).by == "rule"
    assert policy(beyond).train  # the rule's last tick


def test_the_rule_decides_where_the_training_met_no_such_combination(tmp_path):
    """Each feature has a value that the training met; together they are those of no tick."""
    random = np.random.default_rng(0)
    tick = random.random((4_000, 1), np.float32)
    met = np.repeat(tick, len(FEATURES), 1)  # all features grow together
    network = dataclasses.replace(network_of(0), known=KnownStates.of([met]))
    network.save(tmp_path / "schedule.npz")
    known = ScheduleNetwork.read(tmp_path / "schedule.npz").known
    others = np.repeat(random.random((1_000, 1), np.float32), len(FEATURES), 1)
    assert known.contain(others).mean() > 0.99
    mixed = random.random((1_000, len(FEATURES)), np.float32)
    assert KnownStates.ranges(known.low, known.high).contain(mixed).mean() > 0.99
    assert known.contain(mixed).mean() < 0.01
    now = Progress(tick=9, ticks=20, pending=1, stages=1, guess_loss=2.3, parameters=9, first_parameters=9, flops=0)
    assert LearnedSchedule(tmp_path / "schedule.npz")(now).by == "rule"


def test_what_a_price_is_does_not_make_a_state_unknown():
    met = np.random.default_rng(0).random((100, len(FEATURES)), np.float32)
    met[:, [NAMES.index("pass_price"), NAMES.index("pending_price")]] = 0
    known = KnownStates.of([met])
    dear = met.copy()
    dear[:, NAMES.index("pass_price")] = 1
    assert known.contain(dear).tolist() == known.contain(met).tolist()
    assert known.contain(met).mean() >= 0.5  # each second state is a centre


def test_the_package_has_a_schedule_for_learners_that_grow_and_one_for_the_others(tmp_path):
    run = ["run", "--set", "epochs=5", "--width", "4", "--policy", "learned:pass_price=1", "--out", str(tmp_path)]
    assert all(main([*run, "--agent", name]) == 0 for name in ("sm", "gens"))
    single, growing = (
        [json.loads(line) for line in (folder / "stages.jsonl").read_text().splitlines()]
        for name in ("sm", "gens")
        for folder in tmp_path.glob(f"*/{name}4-*")
    )
    assert single[0]["by"] == growing[0]["by"] == ""
    assert any(stage["grow"] for stage in growing)
    assert not any(stage["grow"] for stage in single)


@pytest.mark.parametrize(("id", "grows"), [("sm", True), ("gens", False)])
def test_an_agent_gets_the_schedule_of_the_package_for_its_method(id, grows):
    env = alma_env.make("Digits-ALMA-v0")
    given = agents.make(id, env, policy=LearnedSchedule(pass_price=10, grows=grows)).config["policy"]
    assert given == agents.make(id, env, policy="learned:pass_price=10").config["policy"]


def test_the_rule_decides_for_a_learner_of_another_kind(growing, tmp_path):
    network = network_of(0)
    can_grow = NAMES.index("can_grow")
    network.known.low[can_grow] = network.known.high[can_grow] = 0  # trained without growth
    network.save(tmp_path / "schedule.npz")
    now = Progress(tick=1, ticks=20, pending=1, stages=0, guess_loss=2.3, parameters=9, first_parameters=9, flops=0)
    assert LearnedSchedule(tmp_path / "schedule.npz", grows=True)(now).by == "rule"
    assert LearnedSchedule(tmp_path / "schedule.npz")(now).by == ""


def test_a_file_of_another_kind_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a learned schedule of this version"):
        LearnedSchedule(tmp_path / "other.npz")
    small = network_of(0)
    short = dataclasses.replace(small, layers=small.layers[:1])
    short.save(tmp_path / "short.npz")
    with pytest.raises(ValueError, match="layers of shapes"):
        LearnedSchedule(tmp_path / "short.npz")
    endless = small.layers[0][0] * np.float32(np.nan), small.layers[0][1]
    dataclasses.replace(small, layers=(endless, *small.layers[1:])).save(tmp_path / "weights.npz")
    with pytest.raises(ValueError, match="weights that are no float32, or not finite"):
        LearnedSchedule(tmp_path / "weights.npz")
    dataclasses.replace(small, about={}).save(tmp_path / "about.npz")
    with pytest.raises(ValueError, match="not a learned schedule"):
        LearnedSchedule(tmp_path / "about.npz")
    known = small.known
    for part, message in (
        ({"low": known.low - np.inf}, "low has a number that is not finite"),
        ({"low": known.low[:3]}, r"low of shape \(3,\), for 18 features"),
        ({"high": known.high.astype(float)}, "high of float64, not float32"),
        ({"centres": known.centres[:, 1:]}, r"centres of shape \(0, 17\), for 18 features"),
        ({"scale": 0 * known.scale}, "a scale that is not positive"),
        ({"reach": np.nan}, "reach=nan"),
    ):
        dataclasses.replace(small, known=dataclasses.replace(known, **part)).save(tmp_path / "known.npz")
        with pytest.raises(ValueError, match=f"not a learned schedule of this version .*{message}"):
            LearnedSchedule(tmp_path / "known.npz")
    small.save(tmp_path / "small.npz")
    whole = (tmp_path / "small.npz").read_bytes()
    for cut in (0, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="not a learned schedule"):
            LearnedSchedule(tmp_path / "cut.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(ValueError, match="not a learned schedule"):
        LearnedSchedule(tmp_path / "array.npz")
    with pytest.raises(ValueError, match="pass_price=-1"):
        LearnedSchedule(tmp_path / "small.npz", pass_price=-1)
