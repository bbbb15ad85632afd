"""Policies decide from progress alone, and a run records them so that they can be told apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents import AnytimeAgent, Decision, FixedWait, Progress, StageReport, fixed_wait
from agents.growth import growth


def stages(wait: int, ticks: int) -> list[int]:
    policy, pending, trained = fixed_wait(wait), 0, []
    for tick in range(1, ticks + 1):
        pending += 1
        if policy(Progress(tick, ticks, pending, len(trained))).train:
            trained.append(tick)
            pending = 0
    return trained


@pytest.mark.parametrize(
    ("wait", "ticks", "expected"),
    [(1, 3, [1, 2, 3]), (2, 6, [2, 4, 6]), (4, 10, [4, 8, 10]), (10, 10, [10]), (1, 1, [1])],
)
def test_a_fixed_wait_trains_at_its_multiples_and_on_the_rest_at_the_end(wait, ticks, expected):
    assert stages(wait, ticks) == expected


def test_a_wait_below_one_is_refused():
    with pytest.raises(ValueError, match="wait=0: the waiting time must be at least 1 mega-batch"):
        fixed_wait(0)
    with pytest.raises(ValueError, match=r"wait=2\.5: must be a whole number"):
        fixed_wait(2.5)
    with pytest.raises(ValueError, match="replay='no': must be True or False"):
        FixedWait(2, replay="no")


# --- growth ----------------------------------------------------------------------------------------------------------


class Losses:
    """A learner whose validation losses are given, and which notes at which stages it grew."""

    def __init__(self, losses):
        self.predictor = torch.nn.Identity()
        self.losses = losses
        self.stage = 0
        self.grown: list[int] = []

    def train(self, train, valid):
        self.stage += 1
        return StageReport((self.losses[self.stage - 1],), (0.5,), 1)

    def grow(self, train, valid):
        self.grown.append(self.stage + 1)


def grown(policy, ticks=12, losses=None) -> list[int]:
    """The stages before which a learner grows, once for each step."""
    learner = Losses(losses or [1.0] * ticks)
    agent = AnytimeAgent(learner, policy, ticks)
    part = {"x": np.zeros((2, 3), np.float32), "y": np.zeros(2, np.int64)}
    for _ in range(ticks):
        agent.observe({"train": part, "valid": part})
    return learner.grown


@pytest.mark.parametrize(
    ("schedule", "wait", "expected"),
    [
        ("never", 2, []),
        ("every", 2, [2, 3, 4, 5, 6]),
        ("every:1", 2, [2, 3, 4, 5, 6]),
        ("every:2", 2, [2, 4, 6]),
        ("every:3", 2, [3, 6]),
        ("every:7", 2, []),
        ("at:6", 2, [3]),
        ("at:5", 2, [3]),
        ("at:5", 5, []),  # the first training never grows
        ("at:6", 5, [2]),
        ("at:9,3", 1, [3, 9]),
        ("at:7,8", 5, [2, 2]),  # two steps before one stage
        ("at:12", 5, [3]),
        ("at:13", 5, []),
    ],
)
def test_growth_comes_when_its_schedule_says(schedule, wait, expected):
    assert grown(fixed_wait(wait, growth=schedule)) == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("stall", [4, 6]), ("stall:0.1", [4, 5, 6]), ("stall:0", [4, 6]), ("stall:100", [3, 4, 5, 6])],
)
def test_growth_at_a_stall_compares_the_last_two_stages(schedule, expected):
    losses = [3.0, 2.0, 2.0, 1.95, float("nan"), 1.0]  # of the stages 1 to 6
    assert grown(fixed_wait(1, growth=schedule), ticks=6, losses=losses) == expected


def test_a_policy_grows_by_any_number_of_steps():
    assert grown(lambda now: Decision(train=True, grow=now.tick == 3), ticks=4) == [3]
    assert grown(lambda now: Decision(train=True, grow=3 if now.tick == 2 else 0), ticks=4) == [2, 2, 2]
    assert Decision(train=True, grow=True) == Decision(train=True, grow=1)
    assert repr(Decision(train=True, grow=np.int64(2))) == "Decision(train=True, replay=False, grow=2)"
    for bad in (-1, 0.5, "yes"):
        with pytest.raises(
            ValueError, match=f"grow={bad!r}: must be a number of growth steps, 0 or more, as in grow=1"
        ):
            Decision(train=True, grow=bad)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("always", "growth='always': no such schedule; choose one of never, every, every:m, at:"),
        ("never:2", "no such schedule"),
        ("at", "no such schedule"),
        ("", "no such schedule"),
        ("every:0", "growth='every:0': '0' must be a whole number from 1, for example growth='every:2'"),
        ("every:", "'' must be a whole number"),
        ("every:1.5", r"'1\.5' must be a whole number"),
        ("at:3,x", "'x' must be a whole number from 1"),
        ("at:-3", "'-3' must be a whole number from 1"),
        ("stall:low", "growth='stall:low': 'low' must be a number from 0, for example growth='stall:0.01'"),
        ("stall:-1", "'-1' must be a number from 0"),
        ("stall:inf", "'inf' must be a number from 0"),
        (2, "growth=2: "),
    ],
)
def test_a_schedule_that_does_not_exist_is_refused(schedule, message):
    with pytest.raises(ValueError, match=message):
        growth(schedule)
    with pytest.raises(ValueError, match="growth="):
        fixed_wait(2, growth=schedule)


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=8)


def make(env, id="sm", **keywords):
    return agents.make(id, env, **{"width": 8, "epochs": 2, **keywords})


def test_a_growing_agent_grows_at_every_stage_unless_it_is_told_otherwise(env):
    members = {
        schedule: [row.parameters for row in agents.run(env, make(env, id="gens", wait=2, growth=schedule), 0)]
        for schedule in (None, "every", "every:2", "never")
    }
    one = members["never"][0]
    assert members[None] == members["every"] == [one * n for n in (1, 1, 1, 1, 2, 2, 3, 3, 4)]
    assert members["every:2"] == [one * n for n in (1, 1, 1, 1, 2, 2, 2, 2, 3)]
    assert set(members["never"]) == {one}


def test_growth_of_what_cannot_grow_is_refused_at_once(env):
    with pytest.raises(ValueError, match="growth='every': agent 'sm' cannot grow; .* take one that grows: .*gens"):
        make(env, growth="every")
    with pytest.raises(ValueError, match="growth='every:2': agent 'sm' cannot grow"):
        make(env, policy=fixed_wait(2, growth="every:2"))
    with pytest.raises(ValueError, match="growth='every' beside a policy"):
        make(env, id="gens", policy=fixed_wait(2), growth="every")
    assert make(env, growth="never").config["policy"]["growth"] == "never"


# --- the record ------------------------------------------------------------------------------------------------------


def at_the_end(now: Progress) -> Decision:
    return Decision(train=now.last)


@dataclass(frozen=True)
class Half:
    """Train at the middle and at the end."""

    replay: bool = False

    def __call__(self, now: Progress) -> Decision:
        return Decision(train=now.tick == now.ticks // 2 or now.last, replay=self.replay)


@dataclass(frozen=True)
class HoldsAFunction:
    rule: Callable[[Progress], bool]

    def __call__(self, now: Progress) -> Decision:
        return Decision(train=self.rule(now))


@dataclass(frozen=True, repr=False)
class Silent:
    def __call__(self, now: Progress) -> Decision:
        return Decision(train=now.last)


class Undeclared(FixedWait):
    """Not a dataclass itself: what it adds stands in no field."""


class EveryThird:
    """Remembers how often it was asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, now):
        self.asked += 1
        return Decision(train=self.asked % 3 == 0)

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


@dataclass
class DescribedEveryThird(EveryThird):
    """The same with a description."""

    asked: int = field(default=0, repr=False)


def test_a_fixed_wait_is_recorded_by_its_numbers_however_it_was_given(env):
    given = make(env, policy=fixed_wait(3, replay=True)).config
    assert given["policy"] == {"wait": 3, "replay": True, "growth": "never"}
    assert given == make(env, wait=3, replay=True).config
    assert repr(fixed_wait(3)) == "FixedWait(replay=False, growth='never', wait=3)"
    with pytest.raises(ValueError, match="wait=9: the stream has only 8 mega-batches"):
        make(env, policy=fixed_wait(9))


def test_settings_of_another_type_are_refused_from_python_too(env):
    for keywords, message in (
        ({"replay": 1}, "replay=1: must be True or False, for example replay=False"),
        ({"wait": True}, "wait=True: must be a whole number, for example wait=5"),
        ({"width": "32"}, "width='32': must be a whole number or None, for example width=32"),
        ({"seed": 1.5}, r"seed=1\.5: must be a whole number, for example seed=0"),
        ({"id": "gens", "warm_start": 1}, "warm_start=1: must be True or False"),
    ):
        with pytest.raises(ValueError, match=message):
            make(env, **keywords)
    assert agents.make("sm", env, width=np.int64(8), epochs=np.int32(2), learning_rate=np.float32(1)).stages == 0


def test_other_policies_are_recorded_by_name_or_fields(env):
    assert make(env, policy=at_the_end).config["policy"] == f"{__name__}.at_the_end"
    assert make(env, policy=Half()).config["policy"] == f"{__name__}.Half(replay=False)"
    assert make(env, policy=Half(replay=True)).config["policy"] == f"{__name__}.Half(replay=True)"


def nested(wait):
    def policy(now):
        return Decision(train=now.pending >= wait)

    return policy


@pytest.mark.parametrize(
    "policy",
    [
        lambda now: Decision(train=True),
        nested(2),
        EveryThird(),
        EveryThird().__call__,
        HoldsAFunction(at_the_end),
        Silent(),
        Undeclared(2),
    ],
    ids=["lambda", "closure", "object", "method", "field-with-address", "no-repr", "subclass"],
)
def test_a_policy_that_cannot_be_told_from_others_runs_but_not_into_a_folder(env, tmp_path, policy):
    agent = make(env, policy=policy)
    assert agent.config["policy"] is None
    with pytest.raises(ValueError, match="policy=.*make the policy a frozen dataclass.*or run without a folder"):
        agents.run(env, agent, 0, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert len(agents.run(env, agent, 0)) == 9


def test_a_folder_does_not_go_on_with_another_policy(env, tmp_path):
    agents.run(env, make(env, policy=fixed_wait(1)), 0, tmp_path / "a")
    with pytest.raises(agents.RunMismatchError, match="choose another folder"):
        agents.run(env, make(env, policy=fixed_wait(3)), 0, tmp_path / "a")
    agents.run(env, make(env, policy=Half()), 0, tmp_path / "b")
    with pytest.raises(agents.RunMismatchError, match="choose another folder"):
        agents.run(env, make(env, policy=Half(replay=True)), 0, tmp_path / "b")
    assert agents.run(env, make(env, policy=Half()), 0, tmp_path / "b").score().ticks == 8


def stalling() -> FixedWait:
    return fixed_wait(1, growth="stall:0.3")


@pytest.mark.parametrize(("id", "policy"), [("sm", DescribedEveryThird), ("gens", stalling)])
def test_a_run_stopped_after_any_tick_goes_on_with_the_same_decisions(env, tmp_path, monkeypatch, id, policy):
    monkeypatch.setattr(agents.run_folder, "CHECKPOINT_SECONDS", 0.0)

    def new():
        return make(env, id=id, policy=policy(), epochs=4)

    class Stop(Exception):
        pass

    whole = [(row.digest, row.flops) for row in agents.run(env, new(), 0)]
    assert sum(bool(flops) for _, flops in whole) > 1
    for stop in range(1, 8):

        def stop_here(row, stop=stop):
            if row.tick == stop:
                raise Stop

        with pytest.raises(Stop):
            agents.run(env, new(), 0, tmp_path / str(stop), on_tick=stop_here)
        again = agents.run(env, new(), 0, tmp_path / str(stop))
        assert [(row.digest, row.flops) for row in again] == whole
