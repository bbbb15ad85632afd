"""Batched runs: the ledgers and folders of separate ones, and going on after a kill."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import agents
import alma_env
from agents import run_folder
from agents.experiments import batched
from agents.experiments.batched import MOST_RUNS, MOST_RUNS_ON_MUCH_DATA, can_batch, run_batched
from agents.experiments.plan import plan
from agents.experiments.spec import RunSpec
from agents.experiments.work import Environments, Finished, Job, perform
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
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders of a batch of three seeds of SM."""
    folders = folders_in(tmp_path_factory.mktemp("undisturbed"), 3)
    run_batched(seeds(3), folders)
    return folders


@pytest.mark.parametrize("agent", ["sm", "ens", "umix"])
def test_batched_runs_have_the_ledgers_and_the_charges_of_separate_ones(agent: str, tmp_path: Path) -> None:
    specs, folders = seeds(2, agent=agent, record=True), folders_in(tmp_path, 2)
    run_batched(specs, folders)
    for spec, folder in zip(specs, folders, strict=True):
        env = spec.make_env()
        alone = tmp_path / "alone" / folder.name
        expected = agents.run(env, spec.make_agent(env), spec.seed, alone, record=True)
        for row, other in zip(run_folder.read_ledger(folder), expected, strict=True):
            assert row.error == pytest.approx(other.error, abs=1e-6)
            for name in ("tick", "flops", "paper_flops", "parameters", "buffers", "inference_flops", "refused"):
                assert getattr(row, name) == getattr(other, name)
        for stage, other_stage in zip(run_folder.read_stages(folder), run_folder.read_stages(alone), strict=True):
            assert dataclasses.asdict(stage) == pytest.approx(dataclasses.asdict(other_stage), rel=1e-5)
        assert run_folder.read_config(folder) == run_folder.read_config(alone) | {"batched": 2}


def test_a_batch_that_breaks_off_goes_on_from_its_checkpoints_with_the_same_rows(
    undisturbed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    folders = folders_in(tmp_path, 3)

    def break_off(number: int, row: Row) -> None:
        if (number, row.tick) == (1, 3):  # the first run has written this row, the third has not
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batched(seeds(3), folders, on_tick=break_off)
    assert [len(rows) for rows in ledgers(folders)] == [4, 4, 3]
    heard: list[tuple[int, int]] = []
    run_batched(seeds(3), folders, on_tick=lambda number, row: heard.append((number, row.tick)))
    assert ledgers(folders) == ledgers(undisturbed)
    assert sorted(heard) == [(number, tick) for number in range(3) for tick in range(5)]
    assert heard[:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]  # tick 2 was in the checkpoint, and not repeated


def test_checkpoints_of_different_ticks_are_not_used(
    undisturbed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = folders_in(tmp_path, 3)

    def break_off(tick: int) -> None:
        def at(number: int, row: Row) -> None:
            if row.tick == tick:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_batched(seeds(3), folders, on_tick=at)

    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    break_off(2)
    earlier = (folders[0] / "checkpoint.pt").read_bytes()
    break_off(3)
    (folders[0] / "checkpoint.pt").write_bytes(earlier)
    run_batched(seeds(3), folders)
    assert ledgers(folders) == ledgers(undisturbed)


def test_finished_runs_are_read_and_the_others_begin_anew_in_new_company(
    undisturbed: list[Path], tmp_path: Path
) -> None:
    def stop(number: int, row: Row) -> None:
        if row.tick == 2:
            raise KeyboardInterrupt

    begun = folders_in(tmp_path, 3)
    with pytest.raises(KeyboardInterrupt):
        run_batched(seeds(3), begun, on_tick=stop)
    (begun[0] / "spec.json").write_text("{}")
    heard: list[int] = []
    run_batched(seeds(3), [*begun[:2], undisturbed[2]], on_tick=lambda number, row: heard.append(number))
    assert [run_folder.read_config(folder)["batched"] for folder in begun[:2]] == [2, 2]
    assert [len(rows) for rows in ledgers(begun[:2])] == [5, 5]
    assert heard.count(2) == 5
    assert (begun[0] / "spec.json").exists()  # what others keep there stays
    run_batched(seeds(3)[2:], begun[2:])
    assert "batched" not in run_folder.read_config(begun[2])


def test_a_batch_that_breaks_off_at_the_end_of_the_stream_loses_none_of_its_runs(
    undisturbed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    folders = folders_in(tmp_path, 3)

    def break_off(number: int, row: Row) -> None:
        if (number, row.tick) == (1, 4):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batched(seeds(3), folders, on_tick=break_off)
    assert [len(rows) for rows in ledgers(folders)] == [4, 4, 4]
    end = run_folder.RunFolder.end

    def end_one(self: run_folder.RunFolder, env: alma_env.AlmaEnv) -> None:
        end(self, env)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.RunFolder, "end", end_one)
        with pytest.raises(KeyboardInterrupt):
            run_batched(seeds(3), folders)
    assert [len(rows) for rows in ledgers(folders)] == [5, 4, 4]
    monkeypatch.setattr(batched, "_train", lambda batch: pytest.fail("trained again"))
    run_batched(seeds(3), folders)
    assert ledgers(folders) == ledgers(undisturbed)
    assert [run_folder.read_stages(folder) for folder in folders] == [
        run_folder.read_stages(folder) for folder in undisturbed
    ]


def test_the_last_run_of_a_batch_that_is_whole_in_its_checkpoint_is_not_made_again(
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
            run_batched(seeds(2), planned)
    assert [len(rows) for rows in ledgers(planned)] == [5, 4]
    monkeypatch.setattr(run_folder, "clear", lambda *_: pytest.fail("deleted"))
    monkeypatch.setattr(agents.AnytimeAgent, "observe", lambda *_: pytest.fail("trained again"))
    job = Job((seeds(2)[1],), 1, tmp_path)
    assert isinstance(perform(0, job, Environments(), print), Finished)
    assert [len(rows) for rows in ledgers(planned)] == [5, 5]


def test_what_another_process_is_making_is_not_deleted(tmp_path: Path) -> None:
    def stop(number: int, row: Row) -> None:
        if row.tick == 2:
            raise KeyboardInterrupt

    folders = folders_in(tmp_path, 3)
    with pytest.raises(KeyboardInterrupt):
        run_batched(seeds(3), folders, on_tick=stop)
    before = ledgers(folders)
    with run_folder.locked(folders[0]), pytest.raises(run_folder.FolderInUseError):
        run_batched(seeds(2), folders[:2])
    assert ledgers(folders) == before


def test_another_run_in_a_folder_is_refused(undisturbed: list[Path]) -> None:
    with pytest.raises(run_folder.RunMismatchError, match="continued only with the configuration"):
        run_batched(seeds(3, width=7), undisturbed)


def test_runs_that_differ_in_the_seed_alone_are_one_group() -> None:
    narrow, wide, slow = seeds(3), seeds(2, width=8), seeds(2, wait=4)
    mixed = [spec for specs in zip(narrow, [*wide, *slow[:1]], strict=True) for spec in specs] + slow[1:]
    groups = can_batch(mixed)
    assert sorted(map(len, groups)) == [2, 2, 3]
    assert [narrow, wide, slow] == sorted(groups, key=lambda group: (group[0].wait or 0, group[0].width or 0))
    assert can_batch([DIGITS, DIGITS]) == [[DIGITS], [DIGITS]]  # the same run twice


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
def test_what_cannot_be_batched_is_a_group_of_its_own(changes: dict[str, object]) -> None:
    specs = seeds(3, **changes)
    assert can_batch(specs) == [[spec] for spec in specs]


def test_a_batch_holds_fewer_runs_where_each_holds_much_data() -> None:
    little = seeds(40, settings={"ticks": 100})
    assert [len(group) for group in can_batch(little)] == [MOST_RUNS, 40 - MOST_RUNS]
    much = [dataclasses.replace(spec, replay=True) for spec in little]
    assert {len(group) for group in can_batch(much)} == {MOST_RUNS_ON_MUCH_DATA}
