"""The runs to record differ in schedule from seed to seed, and cost at most a few passes over the stream."""

from __future__ import annotations

import numpy as np
import pytest

from agents.catalogue.spec import resolve
from agents.cli import main
from agents.rl.environments.run_keywords import keywords_of
from agents.rl.recorded import recordings
from agents.rl.recorded.plan import SEEDS, recording_specs, structured


def test_each_schedule_has_the_first_half_of_the_seeds_and_every_exploring_run_differs():
    specs = recording_specs("MNIST-ALMA-v0", widths=(4, 64))
    assert len(specs) == len({spec.digest() for spec in specs}) == 560
    narrow = [(spec.policy, spec.seed) for spec in specs if spec.width == 4]
    assert narrow == [(spec.policy, spec.seed) for spec in specs if spec.width == 64]
    seeds = {policy: sorted(seed for other, seed in narrow if other == policy) for policy, _ in narrow}
    exploring = [policy for policy in seeds if policy.startswith("exploring")]
    assert len(exploring) == 80
    first_half = list(SEEDS[: len(SEEDS) // 2])
    assert {policy: own for policy, own in seeds.items() if policy not in exploring} == dict.fromkeys(
        structured(500), first_half
    )
    for spec in specs:
        resolve(spec, spec.known_facts())  # every policy can be read


@pytest.mark.parametrize("ticks", [2, 4, 20, 100, 500])
def test_the_schedules_fit_the_length_of_the_stream(ticks):
    schedules = structured(ticks)
    assert len(schedules) == len(set(schedules))
    waits = [int(one.removeprefix("fixed:wait=")) for one in schedules if one.startswith("fixed")]
    assert len(schedules) == 16 + len(waits)
    assert 1 <= min(waits) <= max(waits) == max(ticks // 2, 1)


def test_a_negative_number_of_runs_is_refused():
    with pytest.raises(ValueError, match="exploring=-1.*0 or more"):
        recording_specs("Digits-ALMA-v0", exploring=-1)


def test_text_is_refused_before_any_run():
    with pytest.raises(ValueError, match="stream='Text-ALMA-v0': a surrogate models error rates.*another stream"):
        recording_specs("Text-ALMA-v0")


def test_runs_on_data_of_the_users_own_are_recorded_and_their_environment_is_not_made_again(tmp_path, capsys):
    x, y = np.random.default_rng(0).normal(size=(240, 6)).astype(np.float32), np.arange(240) % 3
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    command = ["surrogate", "record", "Arrays-ALMA-v0", "--width", "4", "--seeds", "100", "--exploring", "1"]
    command += ["--set", f"data={tmp_path / 'own.npz'}", "ticks=4", "epochs=1", "--workers", "1"]
    assert main([*command, "--out", str(tmp_path / "runs")]) == 0
    file = tmp_path / "recorded.npz"
    assert main(["surrogate", "fit", str(tmp_path / "runs"), "--out", str(file)]) == 0
    made = recordings.load(file)
    assert {(one.env, one.ticks) for one in made} == {("Arrays-ALMA-v0", 4)}
    with pytest.raises(ValueError, match="env='Arrays-ALMA-v0': .* does not record where they are.*Digits-ALMA-v0"):
        keywords_of(made[0])
    learn = ["policy", "train", "Recorded-ALMA-Wait-Surrogate-v0", "--set", f"recorded={file}", "--evaluate", "0"]
    assert main([*learn, "--out", str(tmp_path / "policy.zip")]) == 2
    assert "run the policy with `alma run --data PATH --policy FILE`" in " ".join(capsys.readouterr().err.split())


def test_a_command_records_the_runs_and_goes_on_where_it_stopped(tmp_path, capsys):
    command = ["surrogate", "record", "Digits-ALMA-v0", "--learner", "gens", "--width", "4", "--seeds", "100", "101"]
    command += ["--exploring", "2", "--set", "ticks=5", "epochs=1", "--workers", "1", "--out", str(tmp_path)]
    assert main([*command, "--dry-run"]) == 0
    assert "22 runs" in capsys.readouterr().out
    assert main(command) == 0
    made = recordings.read_runs(tmp_path)
    assert len(made) == 22
    assert {one.seed for one in made} == {100, 101}
    assert any(one.column("grow").any() for one in made)
    assert all((one.column("held_out_error") > 0).all() for one in made)
    assert main(command) == 0
    assert "22 of them from before" in capsys.readouterr().out
    assert main(["surrogate", "record", "Digits-ALMA-v0", "--exploring", "-1", "--out", str(tmp_path)]) == 2
    assert "exploring=-1" in capsys.readouterr().err
