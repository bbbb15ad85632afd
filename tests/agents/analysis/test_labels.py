"""Labels are different for different settings and equal for runs that differ only in their seeds."""

from __future__ import annotations

from typing import Any

import pytest

from agents.analysis.labels import labels_of
from agents.catalogue.run_config import RunConfig


def config(seed: int = 0, **changes: Any) -> RunConfig:
    """Return a configuration; the keys of ``changes`` are the last parts of paths."""
    out: dict[str, Any] = {
        "env": "Digits-ALMA-v0",
        "protocol": {"data": "Digits", "ticks": 20},
        "agent": {
            "id": "sm",
            "width": 4,
            "policy": {"wait": 5, "replay": False, "growth": "never"},
            "seed": seed,
            "engine": "plain",
            "from_scratch": False,
            "stage": {"epochs": 1, "select": "val_loss", "patience": None},
        },
        "seed": seed,
        "threads": 1,
        "versions": {"torch": "2.13.0"},
    }
    for part in (out, out["protocol"], out["agent"], out["agent"]["policy"], out["agent"]["stage"], out["versions"]):
        part.update({name: changes.pop(name) for name in list(changes) if name in part})
    out["agent"].update(changes)
    return RunConfig.from_dict(out)


def test_runs_that_differ_only_in_their_seeds_have_one_label() -> None:
    assert labels_of([config(0), config(1), config(2)]) == ["sm 4, wait 5"] * 3


def random_wait(seed: int, agent_seed: int = 0, policy_seed: int = 0) -> RunConfig:
    """Return the configuration of an agent with a random policy."""
    agent = {"seed": agent_seed, "policy": {"name": "random", "probability": 0.5, "seed": policy_seed}}
    record = config(seed).to_dict()
    return RunConfig.from_dict({**record, "agent": {**record["agent"], **agent}})


RANDOM = "sm 4, random(probability=0.5)"


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([random_wait(seed, seed, seed) for seed in (0, 1)], [RANDOM] * 2),
        ([random_wait(seed, 0, seed) for seed in (0, 1)], [RANDOM] * 2),
        ([random_wait(seed, 0, 3) for seed in (0, 1)], [RANDOM] * 2),
        ([random_wait(0, 0, seed) for seed in (0, 1)], [f"{RANDOM}, seed=0", f"{RANDOM}, seed=1"]),
        ([random_wait(0, seed) for seed in (0, 1)], [f"{RANDOM}, seed=0", f"{RANDOM}, seed=1"]),
        (
            [random_wait(0, seed, seed) for seed in (0, 1)],
            [f"{RANDOM}, agent.policy.seed={seed}, agent.seed={seed}" for seed in (0, 1)],
        ),
    ],
)
def test_further_seeds_are_settings_if_a_stream_has_several(configs: list[RunConfig], expected: list[str]) -> None:
    assert labels_of(configs) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epochs": 3}, ["epochs=1", "epochs=3"]),
        ({"from_scratch": True}, ["from_scratch=false", "from_scratch=true"]),
        ({"select": "val_error"}, ["select=val_loss", "select=val_error"]),
        ({"patience": 3}, ["patience=null", "patience=3"]),
        ({"ticks": 10}, ["ticks=20", "ticks=10"]),
        ({"growth": "every"}, ["growth=never", "growth=every"]),
        ({"epochs": 3, "ticks": 10}, ["epochs=1, ticks=20", "epochs=3, ticks=10"]),
    ],
)
def test_differing_values_are_appended_to_equal_labels(changes: dict[str, Any], expected: list[str]) -> None:
    assert labels_of([config(), config(**changes)]) == [f"sm 4, wait 5, {what}" for what in expected]


@pytest.mark.parametrize("changes", [{"engine": "compiled"}, {"threads": 2}, {"torch": "2.14.0"}, {"together": False}])
def test_the_computation_does_not_change_a_label(changes: dict[str, Any]) -> None:
    assert labels_of([config(), config(**changes)]) == ["sm 4, wait 5"] * 2


def test_a_record_without_a_budget_has_no_budget() -> None:
    record = config().to_dict()
    unlimited = RunConfig.from_dict({**record, "protocol": {**record["protocol"], "flops_budget": None}})
    assert labels_of([config(), unlimited]) == ["sm 4, wait 5"] * 2


def test_a_value_that_only_some_settings_have_is_appended_there() -> None:
    assert labels_of([config(), config(members=3)]) == ["sm 4, wait 5", "sm 4, wait 5, members=3"]


def test_a_label_that_is_unique_stays_short() -> None:
    labels = labels_of([config(), config(width=8, epochs=3), config(epochs=3), config(env="MNIST-ALMA-v0")])
    assert labels == [
        "Digits-ALMA-v0 sm 4, wait 5, epochs=1",
        "Digits-ALMA-v0 sm 8, wait 5",
        "Digits-ALMA-v0 sm 4, wait 5, epochs=3",
        "MNIST-ALMA-v0 sm 4, wait 5",
    ]


def test_two_values_with_one_name_are_shown_with_their_paths() -> None:
    labels = labels_of([config(), config(data="MNIST", gate={"data": 3})])
    assert labels == ["sm 4, wait 5, protocol.data=Digits", "sm 4, wait 5, agent.gate.data=3, protocol.data=MNIST"]


def test_a_digest_is_shown_by_its_first_digits() -> None:
    labels = labels_of([config(), config(code={"digest": "0123456789abcdef"})])
    assert labels == ["sm 4, wait 5", "sm 4, wait 5, digest=01234567"]


def test_labels_are_equal_if_and_only_if_the_settings_are_equal() -> None:
    choices: list[dict[str, Any]] = [{}, {"epochs": 2}, {"ticks": 5}, {"epochs": 2, "ticks": 5}, {"wait": 2}]
    labels = labels_of([config(seed, **dict(change)) for change in choices for seed in (0, 1)])
    assert labels[::2] == labels[1::2]
    assert len(set(labels)) == len(choices)
