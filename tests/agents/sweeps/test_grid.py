"""The runs of a grid, and the errors of a wrong grid."""

from __future__ import annotations

import dataclasses

import pytest

from agents.catalogue import spec
from agents.catalogue.recipes import RECIPES
from agents.catalogue.spec import RunSpec
from agents.sweeps import grid

DIGITS = "Digits-ALMA-v0"


def test_a_grid_combines_its_lists_without_the_combinations_of_leave_out():
    table = {
        "env": DIGITS,
        "agent": ["sm", "ens"],
        "width": 8,
        "wait": [5, 20],
        "seeds": [0, 1],
        "set": {"epochs": [5, 6]},
        "leave_out": [{"agent": "ens", "wait": 20}, {"set": {"epochs": 6}, "seeds": [1, 2]}],
    }
    found = {(run.agent, run.wait, run.settings["epochs"], run.seed) for run in grid.expand(table)}
    assert found == {
        (agent, wait, epochs, seed)
        for agent, wait in (("sm", 5), ("sm", 20), ("ens", 5))
        for epochs, seed in ((5, 0), (5, 1), (6, 0))
    }


def test_ids_with_and_without_the_namespace_are_the_same():
    table = {"env": "alma_env/Text-ALMA-v0", "width": [2, 4], "wait": 1, "set": {"sequence_length": 32}}
    only = [{"env": ["alma_env/Text-ALMA-v0"], "width": 2}]
    assert grid.expand({**table, "only": only}) == grid.expand({**table, "env": "Text-ALMA-v0", "only": only})
    with pytest.raises(ValueError, match="env = Digits-ALMA-v0 Digits-ALMA-v0: Digits-ALMA-v0 occurs twice"):
        grid.expand({"env": ["Digits-ALMA-v0", "alma_env/Digits-ALMA-v0"], "wait": 1})


def test_only_keeps_the_runs_of_any_of_its_tables():
    table = {
        "env": DIGITS,
        "agent": ["sm", "ens"],
        "wait": [5, 20],
        "seeds": [0, 1],
        "grid": [{"width": 4}, {"width": 8}],
        "only": [{"agent": "sm", "wait": 5}, {"width": 8, "seeds": 1}],
        "leave_out": [{"agent": "ens", "wait": 20}],
    }
    found = [(run.agent, run.width, run.wait, run.seed) for run in grid.expand(table)]
    assert found == [
        *(("sm", 4, 5, 0), ("sm", 4, 5, 1), ("sm", 8, 5, 0), ("sm", 8, 5, 1)),
        *(("sm", 8, 20, 1), ("ens", 8, 5, 1)),
    ]


def test_the_recipe_gives_the_default_width_and_waiting_times():
    mnist = grid.expand({"env": "MNIST-ALMA-v0"})
    assert [(run.width, run.wait) for run in mnist] == [(32, wait) for wait in RECIPES["MNIST"].waits]
    assert [run.wait for run in grid.expand({"env": "MNIST-ALMA-v0", "set": {"ticks": 20}})] == [1, 10]
    assert [run.wait for run in grid.expand({"env": "Text-ALMA-v0"})] == [1, 4]


def test_each_grid_replaces_values_of_the_table():
    table = {
        "env": DIGITS,
        "wait": [5, 20],
        "set": {"epochs": 5, "batch_size": 10},
        "grid": [{"width": 4, "set": {"epochs": 6}}, {"width": 8, "policy": ["doubling", "random"]}],
    }
    small, large = [[run for run in grid.expand(table) if run.width == width] for width in (4, 8)]
    assert [(run.wait, run.policy) for run in small] == [(5, None), (20, None)]
    assert [(run.wait, run.policy) for run in large] == [(None, "doubling"), (None, "random")]
    assert small[0].settings == {"epochs": 6, "batch_size": 10}
    assert large[0].settings == {"epochs": 5, "batch_size": 10}


def test_a_method_that_trains_at_every_tick_has_one_run():
    found = grid.expand({"env": DIGITS, "agent": ["sm", "oracle"], "wait": [5, 20], "replay": [True, False]})
    assert [run.wait for run in found if run.agent == "oracle"] == [None]
    assert len(found) == 5


def test_a_tuple_is_one_value_written_as_text():
    (run,) = grid.expand({"env": "Text-ALMA-v0", "agent": "gmoe", "wait": 1, "set": {"grow_by": "(2, 2, 4)"}})
    assert run.settings == {"grow_by": (2, 2, 4)}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"wait": 5}, "env: missing.*one of MNIST-ALMA-v0"),
        ({"env": "Digit-ALMA-v0"}, "unknown environment; the ids are"),
        ({"env": DIGITS, "agent": "fine-tune"}, "agent 'fine-tune': unknown; the agents are sm"),
        ({"env": DIGITS, "waits": 5}, "waits: unknown; the keys are env, agent"),
        ({"env": DIGITS, "seed": 5}, "seed: unknown; .*write seeds"),
        ({"env": DIGITS, "epochs": 5}, r"epochs: unknown; .*hyper-parameters in \[set\]"),
        ({"env": DIGITS, "grid": [{"leave_out": []}]}, r"grid.leave_out: unknown; .* in \[grid.set\]"),
        ({"env": DIGITS, "grid": {"wait": 5}}, r"grid: must be tables.*\[\[grid\]\]"),
        ({"env": DIGITS, "set": {"width": 8}}, r"set.width: .* write it outside of \[set\]"),
        ({"env": DIGITS, "set": 8}, "set=8: must be a table"),
        ({"env": DIGITS, "set": 8, "grid": [{}]}, "set=8: must be a table"),
        ({"env": DIGITS, "grid": [{"set": 8}]}, r"grid.set=8: must be a table \[grid.set\]"),
        ({"env": DIGITS, "leave_out": [{"set": 8}]}, r"leave_out.set=8: must be a table"),
        ({"env": DIGITS, "wait": "5"}, "wait='5'.*whole number.*wait=5"),
        ({"env": DIGITS, "replay": "yes"}, "replay='yes': must be True or False"),
        ({"env": DIGITS, "wait": []}, r"wait = \[\]: an empty list; leave wait out"),
        ({"env": DIGITS, "wait": [5, 5]}, "wait = 5 5: 5 occurs twice"),
        ({"env": DIGITS, "set": {"epochs": [1, 1]}}, "set.epochs = 1 1: 1 occurs twice"),
        ({"env": DIGITS, "set": {"learning_rate": [1, 1.0]}}, "set.learning_rate = 1 1.0: 1 occurs twice"),
        ({"env": DIGITS, "wait": 5, "policy": "doubling"}, "policy with wait or replay"),
        ({"env": DIGITS, "wait": 5, "grid": [{"width": 4}, {"width": [4, 8]}]}, "sm 4, .*: occurs twice"),
        ({"env": DIGITS, "leave_out": [{"agent": "sm"}]}, "no run is left"),
        (
            {"env": DIGITS, "leave_out": [{"agent": "esn", "wait": [1, 5]}]},
            "agent = esn, wait = 1 5: applies to no run",
        ),
        ({"env": DIGITS, "leave_out": [{}]}, "leave_out: an empty table applies to every run"),
        ({"env": DIGITS, "only": [{"agent": "sm"}, {"width": 3}]}, "only: width = 3: applies to no run"),
        ({"env": DIGITS, "only": {"agent": "sm"}}, r"only: must be tables.*\[\[only\]\]"),
    ],
)
def test_a_wrong_grid_is_refused_with_the_rule(table, message):
    with pytest.raises(ValueError, match=message):
        grid.expand(table)


def test_the_errors_of_a_file_name_the_file(tmp_path):
    file = tmp_path / "grid.toml"
    with pytest.raises(ValueError, match=f"{file}: no such file"):
        grid.read(file)
    file.write_text("wait = ")
    with pytest.raises(ValueError, match=f"{file}: Invalid value"):
        grid.read(file)
    file.write_text(f'env = "{DIGITS}"\nwait = 3')
    assert grid.read(file) == [RunSpec(DIGITS, width=32, wait=3)]


def test_the_digest_depends_on_the_seed_and_the_versions(monkeypatch):
    run = RunSpec(DIGITS, wait=3)
    before = run.digest()
    assert dataclasses.replace(run, seed=1).digest() != before
    monkeypatch.setattr(spec, "versions", lambda: {"torch": "another"})
    assert run.digest() != before
