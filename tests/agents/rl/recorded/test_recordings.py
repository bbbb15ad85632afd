"""Recordings equal their run folders; files keep them; damaged files and runs that cannot be used are refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
import zipfile

import gymnasium as gym
import numpy as np
import pytest

import agents
import agents.runs.run_folder
from agents.cli import main
from agents.rl.environments.export import episode_of
from agents.rl.models.learning_curve import fit
from agents.rl.recorded import recordings

from ..synthetic import waits


@pytest.mark.parametrize("name", ["agents.rl.recordings", "agents.rl.models.recordings"])
def test_the_former_names_of_the_module_still_work(name):
    assert importlib.import_module(name) is recordings


def test_a_recording_equals_the_run_folder(run_folder):
    made = recordings.read_run(run_folder / "c")
    ledger = agents.runs.run_folder.read_ledger(run_folder / "c")
    assert made.errors.tolist() == [row.error for row in ledger]
    assert made.cer == pytest.approx(ledger.score().cer)
    assert made.column("flops").sum() == ledger.comp
    assert made.column("tick").tolist() == [3, 6]
    assert made.column("replay").tolist() == [1, 1]
    assert made.column("grow").tolist() == [0, 1]
    assert made.column("parameters").tolist() == [ledger[3].parameters, ledger[6].parameters]
    assert (made.env, made.learner, made.width, made.seed, made.ticks) == ("Digits-ALMA-v0", "gens", 4, 1, 6)


@pytest.mark.parametrize(
    ("learner", "growth", "named"),
    [
        ("gens", "every", "wait 2, replay"),
        ("gens", "never", "wait 2, replay, growth never"),
        ("sm", "never", "wait 2, replay"),
        ("own.py:Learner", "never", "wait 2, replay"),
        ("own.py:Learner", "every", "wait 2, replay, growth every"),
    ],
)
def test_schedules_that_differ_only_in_growth_have_different_names(run_folder, tmp_path, learner, growth, named):
    shutil.copytree(run_folder / "c", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["agent"] |= {"id": learner, "policy": {"wait": 2, "replay": True, "growth": growth}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert recordings.read_run(tmp_path).schedule == named


def test_a_recorded_run_has_the_error_on_the_validation_parts_of_the_whole_stream(run_folder):
    assert np.isnan(recordings.read_run(run_folder / "b").column("held_out_error")).all()
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", ticks=6, width=4, epochs=1, reward_on="validation")
    env.reset(seed=1)
    infos = [env.step(int(tick % 2 == 0))[-1] for tick in range(1, 7)]
    expected = [-info["vector_reward"][0] for info in infos[1::2]]
    assert recordings.read_run(run_folder / "a").column("held_out_error").tolist() == expected


def test_runs_that_differ_only_in_schedule_and_seed_are_one_group(run_folder):
    grouped = recordings.groups(recordings.read_runs(run_folder))
    assert sorted((key[1], len(runs)) for key, runs in grouped.items()) == [("gens", 1), ("sm", 2)]


def test_load_returns_the_saved_recordings(run_folder, tmp_path):
    made = recordings.read_runs(run_folder)
    recordings.save(made, tmp_path / "made.npz")
    for one, other in zip(made, recordings.load(tmp_path / "made.npz"), strict=True):
        np.testing.assert_array_equal(one.trainings, other.trainings)
        assert dataclasses.replace(one, trainings=None) == dataclasses.replace(other, trainings=None)


def test_runs_are_added_to_a_file_once(run_folder, tmp_path, capsys):
    made = recordings.read_runs(run_folder)
    recordings.save(made[:1], tmp_path / "first.npz")
    both = recordings.gathered(tmp_path / "first.npz", run_folder)
    assert [(one.learner, one.schedule) for one in both] == [(one.learner, one.schedule) for one in made]
    again = recordings.gathered(run_folder, run_folder, tmp_path / "first.npz")
    assert [one.schedule for one in again] == [one.schedule for one in made]
    assert main(["surrogate", "fit", str(tmp_path / "missing.npz"), "--out", str(tmp_path / "out.npz")]) == 2
    assert "missing.npz" in capsys.readouterr().err


def test_an_interrupted_save_leaves_the_file_that_was_there(run_folder, tmp_path, monkeypatch):
    made = recordings.read_runs(run_folder)
    file = tmp_path / "made.npz"
    recordings.save(made, file)
    before = file.read_bytes()

    def interrupted(target, **arrays):
        getattr(target, "write", file.write_bytes)(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(recordings.np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recordings.save(made[:1], file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_unusable_runs_are_refused_by_name(run_folder, tmp_path):
    with pytest.raises(ValueError, match="it holds no run; run some with `alma run"):
        recordings.read_runs(tmp_path)
    with pytest.raises(ValueError, match="recorded='.*none.npz': cannot be read as recorded runs"):
        recordings.load(tmp_path / "none.npz")
    shutil.copytree(run_folder / "a", tmp_path, dirs_exist_ok=True)
    rows = (tmp_path / "ledger.jsonl").read_text().splitlines()
    (tmp_path / "ledger.jsonl").write_text("\n".join(rows[:4]) + "\n")
    with pytest.raises(ValueError, match="3 of 6 ticks are answered; finish the run first"):
        recordings.read_run(tmp_path)
    changed = json.loads(rows[1]) | {"error": 0.5}  # tick 1, at which the run only waited
    (tmp_path / "ledger.jsonl").write_text("\n".join([rows[0], json.dumps(changed), *rows[2:]]) + "\n")
    with pytest.raises(ValueError, match="its errors change at ticks without a training"):
        recordings.read_run(tmp_path)
    (tmp_path / "stages.jsonl").unlink()
    with pytest.raises(ValueError, match="stages.jsonl: missing; .*run again with --fresh"):
        recordings.read_run(tmp_path)


def test_a_run_on_text_is_refused(run_folder, tmp_path):
    shutil.copytree(run_folder / "a", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["protocol"]["classes"]
    config["protocol"]["vocabulary"] = 1_000
    (tmp_path / "config.json").write_text(json.dumps(config | {"env": "Text-ALMA-v0"}))
    with pytest.raises(ValueError, match="a run on Text-ALMA-v0; a surrogate models error rates.*another stream"):
        recordings.read_runs(tmp_path)


@pytest.mark.parametrize("change", [{"window": 2}, {"restart": True}])
def test_a_run_with_windows_or_restarts_is_read_and_not_fitted_by_the_first_surrogate(run_folder, tmp_path, change):
    shutil.copytree(run_folder / "c", tmp_path, dirs_exist_ok=True)
    stages = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    stages[1] |= change
    (tmp_path / "stages.jsonl").write_text("".join(json.dumps(stage) + "\n" for stage in stages))
    recording = recordings.read_run(tmp_path)
    assert recording.sizes.tolist() == [3, 5 if "window" in change else 6]
    assert recording.column("restart").tolist() == [0, "restart" in change]
    with pytest.raises(ValueError, match="'gens' with .* replays a part of the data, or restarts.*none or all"):
        fit([recording])
    with pytest.raises(ValueError, match="'gens' with .* replays a part of the earlier data, or restarts.*leave this"):
        episode_of(recording, "multi")
    recordings.save([recording], tmp_path / "one.npz")
    (again,) = recordings.load(tmp_path / "one.npz")
    np.testing.assert_array_equal(again.trainings, recording.trainings)


def test_a_file_of_an_earlier_version_has_no_windows_and_restarts(run_folder, tmp_path):
    made = recordings.read_run(run_folder / "c")
    recordings.save([dataclasses.replace(made, trainings=made.trainings[:, :11])], tmp_path / "old.npz")
    (read,) = recordings.load(tmp_path / "old.npz")
    np.testing.assert_array_equal(read.trainings, made.trainings)


def damaged_files(folder):
    """Write files that a reader of .npz files may meet."""
    whole = folder / "whole.npz"
    recordings.save(waits(), whole)
    content = whole.read_bytes()
    for cut in (0, 1, 100, len(content) // 2, len(content) - 1):
        (folder / f"cut-{cut}.npz").write_bytes(content[:cut])
    turned = bytearray(content)
    turned[len(content) // 2] ^= 255
    (folder / "turned.npz").write_bytes(turned)
    with open(folder / "array.npz", "wb") as raw:
        np.save(raw, np.zeros(3))
    parts = dict(np.load(whole))
    heads = json.loads(str(parts["heads"]))
    first = heads[0]
    for number, change in enumerate(
        ({"width": "4"}, {"ticks": "20"}, {"settings": "{"}, {"settings": "3"}, {"classes": 0}, {"ticks": 3})
    ):
        changed = np.array(json.dumps([first | change, *heads[1:]]))
        np.savez(folder / f"value-{number}.npz", **parts | {"heads": changed})
    for name, change in (
        ("foreign-head", {"heads": np.array(json.dumps([{"a": 1} for _ in heads]))}),
        ("heads-of-another-kind", {"heads": np.array("3")}),
        ("missing-head", {"heads": np.array(json.dumps(heads[1:]))}),
        ("flat", {"trainings": parts["trainings"].ravel()}),
        ("columns", {"trainings": parts["trainings"][:, :5]}),
    ):
        np.savez(folder / f"{name}.npz", **parts | change)
    unclosed = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,\n"
    with zipfile.ZipFile(folder / "unclosed.npz", "w") as archive:
        archive.writestr("heads.npy", b"\x93NUMPY\x01\x00" + len(unclosed).to_bytes(2, "little") + unclosed)
    whole.unlink()
    return sorted(folder.iterdir())


def test_two_names_of_the_same_trainings_are_one_run():
    first, other, *_ = waits(noise=0.1)
    again, elsewhere = dataclasses.replace(first, schedule="again"), dataclasses.replace(first, seed=first.seed + 1)
    assert recordings.distinct([first, other, again, elsewhere]) == [first, other, elsewhere]


def test_a_damaged_file_is_named_with_its_defect_and_the_remedy(tmp_path, capsys):
    for file in damaged_files(tmp_path):
        with pytest.raises(ValueError, match=f"{file.name}': cannot be read as recorded runs .*write the file with"):
            recordings.load(file)
        assert main(["surrogate", "validate", str(file)]) == 2
        assert capsys.readouterr().err.startswith("alma surrogate: recorded=")


@pytest.mark.parametrize("column", ["validation_loss", "error", "flops"])
def test_a_run_with_a_number_that_is_not_finite_is_refused_by_name(column, run_folder, tmp_path):
    first, *others = waits(noise=0.1)
    first.column(column)[1] = np.inf
    recordings.save([first, *others], tmp_path / "infinite.npz")
    with pytest.raises(ValueError, match=f"{column}=inf at tick 2 of a run of 'sm' with 'wait 1', seed 0: must be"):
        recordings.load(tmp_path / "infinite.npz")
