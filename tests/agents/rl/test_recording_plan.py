"""The runs to record differ in schedule from seed to seed, and cost at most a few passes over the stream."""

from __future__ import annotations

import pytest

from agents.catalogue.spec import resolve
from agents.cli import main
from agents.rl import recordings
from agents.rl.recording_plan import SEEDS, recording_specs, structured


def test_two_hundred_different_runs_are_planned_for_each_width():
    specs = recording_specs("MNIST-ALMA-v0", widths=(4, 64))
    assert len(specs) == len({spec.digest() for spec in specs}) == 400
    assert {spec.seed for spec in specs} == set(SEEDS)
    narrow = [spec.policy for spec in specs if spec.width == 4]
    assert narrow == [spec.policy for spec in specs if spec.width == 64]
    exploring = [policy for policy in narrow if policy.startswith("exploring")]
    assert len(exploring) == len(set(exploring)) == 140
    assert {policy for policy in narrow if not policy.startswith("exploring")} == set(structured(500))
    for spec in specs:
        resolve(spec, spec.known_facts())  # every policy can be read


@pytest.mark.parametrize("ticks", [1, 4, 20, 100, 500])
def test_the_schedules_fit_the_length_of_the_stream(ticks):
    schedules = structured(ticks)
    assert len(schedules) == len(set(schedules))
    waits = [int(one.removeprefix("fixed:wait=").partition(",")[0]) for one in schedules if one.startswith("fixed")]
    assert {1, ticks} <= set(waits)
    assert max(waits) == ticks
    kinds = {tuple(word.partition("=")[0] for word in one.split(",")) for one in schedules[:6]}
    assert len(kinds) > 1


def test_a_wrong_number_of_runs_is_refused():
    with pytest.raises(ValueError, match="runs_per_seed=0.*at least 1"):
        recording_specs("Digits-ALMA-v0", runs_per_seed=0)


def test_a_command_records_the_runs_and_goes_on_where_it_stopped(tmp_path, capsys):
    command = ["surrogate", "record", "Digits-ALMA-v0", "--learner", "gens", "--width", "4", "--seeds", "100", "101"]
    command += ["--runs-per-seed", "4", "--set", "ticks=5", "epochs=1", "--workers", "1", "--out", str(tmp_path)]
    assert main([*command, "--dry-run"]) == 0
    assert "8 runs" in capsys.readouterr().out
    assert main(command) == 0
    made = recordings.read_runs(tmp_path)
    assert len(made) == 8
    assert {one.seed for one in made} == {100, 101}
    assert any(one.column("grow").any() for one in made)
    assert all((one.column("held_out_error") > 0).all() for one in made)
    assert main(command) == 0
    assert "8 of them from before" in capsys.readouterr().out
    assert main(["surrogate", "record", "Digits-ALMA-v0", "--runs-per-seed", "0", "--out", str(tmp_path)]) == 2
    assert "runs_per_seed=0" in capsys.readouterr().err
