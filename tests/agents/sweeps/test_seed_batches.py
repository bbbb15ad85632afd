"""Batches of seeds: ledgers and folders equal those of single runs; a killed batch continues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import agents
import alma_env
from agents.catalogue.spec import RunSpec
from agents.runs import run_folder
from agents.sweeps import seed_batches
from agents.sweeps.jobs import Environments, Finished, Job, run_job
from agents.sweeps.pending import plan
from agents.sweeps.seed_batches import MOST_RUNS, MOST_RUNS_ON_MUCH_DATA, batches_of, run_batch
from alma_env import Row

DIGITS = RunSpec(
    "Digits-ALMA-v0", "sm", width=6, wait=2, settings={"ticks": 4, "epochs": 2}, engine="plain", device="cpu"
)


def seeds(count: int, **changes: object) -> list[RunSpec]:
    return [dataclasses.replace(DIGITS, seed=seed, **changes) for seed in range(count)]  # type: ignore[arg-type]


def folders_in(path: Path, count: int) -> list[Path]:
    return [path / f"seed{number}" for number in range(count)]


def ledgers(folders: Sequence[Path]) -> list[list[Row]]:
    return [[dataclasses.replace(row, seconds=0.0) for row in run_folder.read_ledger(folder)] for folder in folders]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folders of a batch of three seeds of SM."""
    folders = folders_in(tmp_path_factory.mktemp("uninterrupted"), 3)
    run_batch(seeds(3), folders)
    return folders


@pytest.mark.parametrize("agent", ["sm", "ens", "umix"])
def test_the_runs_of_a_batch_have_the_ledgers_of_single_runs(agent: str, tmp_path: Path) -> None:
    specs, folders = seeds(2, agent=agent, record=True), folders_in(tmp_path, 2)
    run_batch(specs, folders)
    for spec, folder in zip(specs, folders, strict=True):
        env = spec.make_env()
        single = tmp_path / "single" / folder.name
        expected = agents.run(env, spec.make_agent(env), spec.seed, single, record=True)
        for row, other in zip(run_folder.read_ledger(folder), expected, strict=True):
            assert row.error == pytest.approx(other.error, abs=1e-6)
            for name in ("tick", "flops", "paper_flops", "parameters", "buffers", "inference_flops", "refused"):
                assert getattr(row, name) == getattr(other, name)
        for stage, other_stage in zip(run_folder.read_stages(folder), run_folder.read_stages(single), strict=True):
            assert dataclasses.asdict(stage) == pytest.approx(dataclasses.asdict(other_stage), rel=1e-5)
        config = run_folder.read_config(folder)
        assert config.computation["batched"] == 2
        assert config.without_batch() == run_folder.read_config(single)


def test_an_interrupted_batch_continues_from_its_checkpoints_with_the_same_rows(
    uninterrupted: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    folders = folders_in(tmp_path, 3)

    def interrupt(number: int, row: Row) -> None:
        if (number, row.tick) == (1, 3):  # the first run has written this row, the third has not
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batch(seeds(3), folders, on_tick=interrupt)
    assert [len(rows) for rows in ledgers(folders)] == [4, 4, 3]
    ticks_seen: list[tuple[int, int]] = []
    run_batch(seeds(3), folders, on_tick=lambda number, row: ticks_seen.append((number, row.tick)))
    assert ledgers(folders) == ledgers(uninterrupted)
    assert sorted(ticks_seen) == [(number, tick) for number in range(3) for tick in range(5)]
    assert ticks_seen[:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]  # tick 2 is read from the checkpoint and not repeated


def test_checkpoints_of_different_ticks_are_not_used(
    uninterrupted: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = folders_in(tmp_path, 3)

    def interrupt(tick: int) -> None:
        def at(number: int, row: Row) -> None:
            if row.tick == tick:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_batch(seeds(3), folders, on_tick=at)

    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    interrupt(2)
    earlier = (folders[0] / "checkpoint.pt").read_bytes()
    interrupt(3)
    (folders[0] / "checkpoint.pt").write_bytes(earlier)
    run_batch(seeds(3), folders)
    assert ledgers(folders) == ledgers(uninterrupted)


def test_finished_runs_are_read_and_the_others_start_again_in_a_batch_of_another_size(
    uninterrupted: list[Path], tmp_path: Path
) -> None:
    def stop(number: int, row: Row) -> None:
        if row.tick == 2:
            raise KeyboardInterrupt

    started = folders_in(tmp_path, 3)
    with pytest.raises(KeyboardInterrupt):
        run_batch(seeds(3), started, on_tick=stop)
    (started[0] / "spec.json").write_text("{}")
    ticks_seen: list[int] = []
    run_batch(seeds(3), [*started[:2], uninterrupted[2]], on_tick=lambda number, row: ticks_seen.append(number))
    assert [run_folder.read_config(folder).computation["batched"] for folder in started[:2]] == [2, 2]
    assert [len(rows) for rows in ledgers(started[:2])] == [5, 5]
    assert ticks_seen.count(2) == 5
    assert (started[0] / "spec.json").exists()  # other files in the folder stay
    run_batch(seeds(3)[2:], started[2:])
    assert "batched" not in run_folder.read_config(started[2]).computation


def test_a_batch_that_is_interrupted_at_the_end_of_the_stream_loses_no_run(
    uninterrupted: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    folders = folders_in(tmp_path, 3)

    def interrupt(number: int, row: Row) -> None:
        if (number, row.tick) == (1, 4):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batch(seeds(3), folders, on_tick=interrupt)
    assert [len(rows) for rows in ledgers(folders)] == [4, 4, 4]
    end = run_folder.RunFolder.end

    def end_one(self: run_folder.RunFolder, env: alma_env.AlmaEnv) -> None:
        end(self, env)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.RunFolder, "end", end_one)
        with pytest.raises(KeyboardInterrupt):
            run_batch(seeds(3), folders)
    assert [len(rows) for rows in ledgers(folders)] == [5, 4, 4]
    monkeypatch.setattr(seed_batches, "_train", lambda batch: pytest.fail("trained again"))
    run_batch(seeds(3), folders)
    assert ledgers(folders) == ledgers(uninterrupted)
    assert [run_folder.read_stages(folder) for folder in folders] == [
        run_folder.read_stages(folder) for folder in uninterrupted
    ]


def test_a_run_of_a_batch_with_a_complete_checkpoint_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = run_folder.RunFolder.end

    def end_one(self: run_folder.RunFolder, env: alma_env.AlmaEnv) -> None:
        end(self, env)
        raise KeyboardInterrupt

    planned = [pending.folder for pending in plan(seeds(2), tmp_path).pending.values()]
    with monkeypatch.context() as patched:
        patched.setattr(run_folder.RunFolder, "end", end_one)
        with pytest.raises(KeyboardInterrupt):
            run_batch(seeds(2), planned)
    assert [len(rows) for rows in ledgers(planned)] == [5, 4]
    monkeypatch.setattr(run_folder, "clear", lambda *_: pytest.fail("deleted"))
    monkeypatch.setattr(agents.AnytimeAgent, "observe", lambda *_: pytest.fail("trained again"))
    job = Job((seeds(2)[1],), 1, tmp_path)
    assert isinstance(run_job(0, job, Environments(), print), Finished)
    assert [len(rows) for rows in ledgers(planned)] == [5, 5]


def test_a_run_of_another_process_is_not_deleted(tmp_path: Path) -> None:
    def stop(number: int, row: Row) -> None:
        if row.tick == 2:
            raise KeyboardInterrupt

    folders = folders_in(tmp_path, 3)
    with pytest.raises(KeyboardInterrupt):
        run_batch(seeds(3), folders, on_tick=stop)
    before = ledgers(folders)
    with run_folder.locked(folders[0]), pytest.raises(run_folder.FolderInUseError):
        run_batch(seeds(2), folders[:2])
    assert ledgers(folders) == before


def test_another_run_in_a_folder_is_refused(uninterrupted: list[Path]) -> None:
    with pytest.raises(run_folder.RunMismatchError, match="agent=.*use another folder"):
        run_batch(seeds(3, width=7), uninterrupted)


def test_runs_that_differ_only_in_the_seed_are_one_batch() -> None:
    narrow, wide, slow = seeds(3), seeds(2, width=8), seeds(2, wait=4)
    mixed = [spec for specs in zip(narrow, [*wide, *slow[:1]], strict=True) for spec in specs] + slow[1:]
    groups = batches_of(mixed)
    assert sorted(map(len, groups)) == [2, 2, 3]
    assert [narrow, wide, slow] == sorted(groups, key=lambda group: (group[0].wait or 0, group[0].width or 0))
    assert batches_of([DIGITS, DIGITS]) == [[DIGITS], [DIGITS]]  # the same run twice


@pytest.mark.parametrize(
    "changes",
    [
        {"agent": "gens"},
        {"policy": "stall", "wait": None},
        {"env": "Text-ALMA-v0"},
        {"settings": {"patience": 3}},
        {"settings": {"together": False}},
        {"env": "CIFAR10-ALMA-v0", "width": 32},  # on a CPU its convolutions are faster one network after another
    ],
    ids=json.dumps,
)
def test_a_run_that_cannot_be_in_a_batch_is_a_batch_of_one(changes: dict[str, object]) -> None:
    specs = seeds(3, **changes)
    assert batches_of(specs) == [[spec] for spec in specs]


def test_a_batch_has_fewer_runs_if_each_run_has_much_data() -> None:
    little = seeds(40, settings={"ticks": 100})
    assert [len(group) for group in batches_of(little)] == [MOST_RUNS, 40 - MOST_RUNS]
    much = [dataclasses.replace(spec, replay=True) for spec in little]
    assert {len(group) for group in batches_of(much)} == {MOST_RUNS_ON_MUCH_DATA}
