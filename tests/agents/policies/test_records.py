"""The configuration of a run records its policy, so that a run folder is continued with the same policy only."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import agents
import agents.runs.run_folder
import alma_env
from agents import Decision, Doubling, FixedWait, Progress, RandomWait, fixed_wait
from agents.arena.bidder import wait
from agents.policies import canonical, policy_record
from agents.policies.learned.schedule import SHIPPED, LearnedSchedule


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=8)


def make(env, id="sm", **keywords):
    return agents.make(id, env, **{"width": 8, "epochs": 2, **keywords})


def at_the_end(now: Progress) -> Decision:
    return Decision(train=now.last)


@dataclass(frozen=True)
class Half:
    """Train at half of the stream and at the last tick."""

    replay: bool = False

    def __call__(self, now: Progress) -> Decision:
        return Decision(train=now.tick == now.ticks // 2 or now.last, replay=self.replay)


@dataclass(frozen=True)
class HoldsAFunction:
    rule: Callable[[Progress], Decision]

    def __call__(self, now: Progress) -> Decision:
        return self.rule(now)


@dataclass(frozen=True, repr=False)
class Silent:
    def __call__(self, now: Progress) -> Decision:
        return Decision(train=now.last)


class Undeclared(FixedWait):
    """Not itself a dataclass: no field describes what it adds."""


class EveryThird:
    """A policy that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, now):
        self.calls += 1
        return Decision(train=self.calls % 3 == 0)

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


@dataclass
class DescribedEveryThird(EveryThird):
    """`EveryThird` with a description."""

    calls: int = field(default=0, repr=False)


def test_a_fixed_wait_has_the_same_record_as_policy_and_as_keywords(env):
    given = make(env, policy=fixed_wait(3, replay=True)).config
    assert given["policy"] == {"wait": 3, "replay": True, "growth": "never"}
    assert given == make(env, wait=3, replay=True).config
    assert repr(fixed_wait(3)) == "FixedWait(replay=False, growth='never', stop=1.0, restart=0.0, wait=3)"
    with pytest.raises(ValueError, match="wait=9: the stream has only 8 mega-batches"):
        make(env, policy=fixed_wait(9))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Doubling(first=9), "first=9: the stream has only 8 mega-batches; use at most first=8"),
        (
            Doubling(first=5, stop=0.5),
            "first=5: the stream has only 8 mega-batches, and stop=0.5 ends the training at tick 4; "
            "use at most first=4",
        ),
    ],
)
def test_a_first_training_after_the_last_one_is_refused(env, policy, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make(env, policy=policy)
    assert make(env, policy=dataclasses.replace(policy, first=4)).stages == 0


def test_a_keyword_of_the_wrong_type_raises(env):
    for keywords, message in (
        ({"replay": 1}, "replay=1.*True or False.*replay=False"),
        ({"wait": True}, "wait=True.*whole number.*wait=5"),
        ({"width": "32"}, "width='32'.*whole number or None.*width=32"),
        ({"seed": 1.5}, r"seed=1\.5.*whole number.*seed=0"),
        ({"id": "gens", "warm_start": 1}, "warm_start=1.*True or False"),
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
def test_a_policy_without_a_description_runs_only_without_a_folder(env, tmp_path, policy):
    agent = make(env, policy=policy)
    assert agent.config["policy"] is None
    with pytest.raises(ValueError, match="policy=.*make the policy a frozen dataclass.*or run without a folder"):
        agents.run(env, agent, 0, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert len(agents.run(env, agent, 0)) == 9


def test_a_run_folder_is_not_continued_with_another_policy(env, tmp_path):
    agents.run(env, make(env, policy=fixed_wait(1)), 0, tmp_path / "a")
    with pytest.raises(agents.RunMismatchError, match="use another folder"):
        agents.run(env, make(env, policy=fixed_wait(3)), 0, tmp_path / "a")
    agents.run(env, make(env, policy=Half()), 0, tmp_path / "b")
    with pytest.raises(agents.RunMismatchError, match="use another folder"):
        agents.run(env, make(env, policy=Half(replay=True)), 0, tmp_path / "b")
    assert agents.run(env, make(env, policy=Half()), 0, tmp_path / "b").score().ticks == 8


def stalling() -> FixedWait:
    return fixed_wait(1, growth="stall:0.3")


@pytest.mark.parametrize(("id", "policy"), [("sm", DescribedEveryThird), ("gens", stalling)])
def test_a_run_stopped_after_any_tick_continues_with_the_same_decisions(env, tmp_path, monkeypatch, id, policy):
    monkeypatch.setattr(agents.runs.run_folder, "CHECKPOINT_SECONDS", 0.0)

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


def test_the_record_of_a_schedule_has_its_name_and_every_field():
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    config = agents.make("sm", env, width=4, policy=RandomWait(probability=0.5, seed=3)).config
    assert config["policy"] == {"name": "random", "replay": False, "growth": "never", "probability": 0.5, "seed": 3}


@dataclasses.dataclass(frozen=True)
class Own(Doubling):
    """A custom schedule that extends one of the package."""

    def due(self, now):
        return super().due(now) or now.pending > 5


def test_a_custom_schedule_is_described_like_any_policy():
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    config = agents.make("sm", env, width=4, policy=Own()).config
    fields = "replay=False, growth='never', stop=1.0, restart=0.0, factor=2.0, first=1"
    assert config["policy"] == f"{__name__}.Own({fields})"
    assert Own()(Progress(8, 32, 6, 1)) == Decision(train=True)


def test_records_with_old_module_names_equal_those_of_today():
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    now = agents.make("sm", env, width=4, policy=wait).config["policy"]
    assert now != "agents.bidder.wait"
    assert canonical("agents.bidder.wait") == canonical(now) == now
    unchanged = [f"{__name__}.Half(replay=False)", {"name": "random", "seed": 3, "parts": [1, None]}, None]
    assert canonical(unchanged) == unchanged


@dataclass(frozen=True)
class Holds:
    """A policy with numbers that its text leaves out."""

    numbers: object

    def __call__(self, now: Progress) -> Decision:
        return Decision(train=now.last)


@dataclass(frozen=True)
class Hides:
    """A policy with a field that its text leaves out."""

    ticks: tuple[int, ...] = field(default=(), repr=False)

    def __call__(self, now: Progress) -> Decision:
        return Decision(train=now.tick in self.ticks)


@pytest.mark.parametrize(
    "numbers",
    [
        *(np.zeros(2000), torch.zeros(3), torch.nn.Linear(2, 1), {"rows": [np.zeros(2000)]}, Holds(np.zeros(2000))),
        *(deque([np.zeros(2000)]), Hides((1, 2)), [Hides((1, 2))]),
    ],
    ids=["array", "tensor", "network", "nested", "dataclass", "deque", "hidden", "hidden below"],
)
def test_a_policy_whose_text_leaves_numbers_out_has_no_description(numbers):
    assert policy_record(Holds(numbers)) is None
    assert policy_record(Holds((1, 0.5))) == f"{__name__}.Holds(numbers=(1, 0.5))"


def test_policies_that_differ_in_a_hidden_field_are_not_continued_as_one_another(env, tmp_path):
    assert policy_record(Hides((1,))) is None
    with pytest.raises(ValueError, match="a field that its text leaves out"):
        agents.run(env, make(env, policy=Hides((1,))), 0, tmp_path)


@dataclass(frozen=True)
class Summarised(Holds):
    """A policy whose own text stands for its numbers."""

    def __repr__(self) -> str:
        return f"Summarised({hash(self.numbers.tobytes()) % 7})"


def test_a_text_of_ones_own_may_stand_for_numbers():
    assert policy_record(Summarised(np.zeros(3))).startswith(f"{__name__}.Summarised(")


def test_the_record_of_a_learned_schedule_says_if_it_does_not_grow_as_its_network_can():
    usual, other = (LearnedSchedule(SHIPPED[True], grows=grows) for grows in (True, False))
    assert "grows" not in policy_record(usual)
    assert policy_record(other) == {**policy_record(usual), "grows": False}
