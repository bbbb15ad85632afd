"""Finished runs are equal by rows, by columns and in packed files; other files are refused."""

from __future__ import annotations

import dataclasses
import json
import lzma
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import agents
from agents.catalogue.spec import RunSpec
from agents.cli import main
from agents.learners.network_learner import NetworkLearner
from agents.policies.validation import key_values
from agents.runs import archive, load, run_folder
from agents.runs.ledger_columns import LedgerColumns
from agents.sweeps import jobs
from agents.training.stage import Examples
from alma_env import Ledger
from alma_env.ledger import row_to_json

from ..fake_runs import fake_run, write

RUNS = [fake_run(agent, wait=wait, seed=seed) for agent in ("sm", "gmoe") for wait in (1, 5) for seed in (0, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for run in RUNS:
        write(run, out / "below")
    return out


def by_config(runs: list[load.FinishedRun]) -> list[load.FinishedRun]:
    return sorted(runs, key=lambda run: str(run.config))


def test_a_run_read_by_columns_has_equal_rows_score_and_stages(folder: Path) -> None:
    found, left_out = load.find(folder)
    assert left_out == []
    for run, made in zip(by_config(found), by_config(RUNS), strict=True):
        assert run.ledger == made.ledger
        assert run.score == made.ledger.score()
        assert run.stages == made.stages


def test_a_packed_run_shortens_times_digests_and_validation_results_only(tmp_path: Path) -> None:
    made = RUNS[0]
    stage = dataclasses.replace(made.stages[0], validation_loss=0.12345678901, validation_error=float(np.float32(0.1)))
    row = dataclasses.replace(made.ledger[1], seconds=1.23456, digest="0123456789abcdef", error=0.12345678901)
    columns = LedgerColumns.from_ledger(Ledger([made.ledger[0], row]))
    archive.write([(made.config, columns, [stage])], tmp_path / "run.jsonl.xz")
    ((_, read_columns, read_stages),) = archive.read(tmp_path / "run.jsonl.xz")
    assert read_columns.to_ledger()[1] == dataclasses.replace(row, seconds=1.235, digest="01234567")
    assert read_stages == [dataclasses.replace(stage, validation_loss=0.123456789, validation_error=0.100000001)]
    assert np.float32(read_stages[0].validation_error) == np.float32(0.1)


def test_a_packed_run_of_short_numbers_equals_the_run(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl.xz"
    assert main(["pack", str(folder), "--out", str(file)]) == 0
    found, left_out = load.find(file)
    assert left_out == []
    for run, made in zip(by_config(found), by_config(RUNS), strict=True):
        assert (run.config, run.ledger, run.stages) == (made.config, made.ledger, made.stages)
    size = file.stat().st_size
    assert size < sum(path.stat().st_size for path in folder.rglob("*.jsonl")) / 10
    assert main(["pack", str(file), "--out", str(file)]) == 0  # can replace the file that it reads
    assert main(["show", str(file)]) == 0
    assert (tmp_path / "errors.png").exists()
    assert file.stat().st_size == size


def test_several_paths_are_read_together_and_each_run_counts_once(folder: Path, tmp_path: Path) -> None:
    load.pack(RUNS[:3], tmp_path / "some.jsonl.xz")
    found, left_out = load.find(folder, tmp_path / "some.jsonl.xz")
    assert len(found) == len(RUNS)
    assert len(left_out) == 3
    assert "some.jsonl.xz:1: the same run as" in left_out[0]


def test_ticks_at_which_the_training_diverged_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(RUNS[0], tmp_path)
    assert load.divergence(path) is None
    stages = [dataclasses.replace(stage, validation_loss=float("nan")) for stage in RUNS[0].stages]
    (path / "stages.jsonl").write_text("".join(json.dumps(dataclasses.asdict(stage)) + "\n" for stage in stages))
    assert "diverged at 20 ticks (1, 2, 3, 4, 5, …)" in str(load.divergence(path))
    settings = ["--set", "epochs=1", "ticks=4", "optimizer=sgd", "learning_rate=1e20"]
    with pytest.warns(RuntimeWarning, match="finite validation loss"):
        assert main(["run", "--width", "4", "--wait", "2", *settings, "--out", str(tmp_path / "runs")]) == 0
    assert "seed 0: the training diverged at 2 ticks (2, 4)" in capsys.readouterr().out


def test_a_run_that_cannot_be_scored_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = NetworkLearner.train

    def train(self: NetworkLearner[Any], train: Examples, valid: Examples) -> Any:
        report = learn(self, train, valid)
        if len(train) < 500:  # two mega-batches, and not ten
            with torch.no_grad():
                for parameter in self.predictor.parameters():
                    parameter.fill_(math.nan)
        return report

    monkeypatch.setattr(NetworkLearner, "train", train)
    settings = ["--width", "4", "--set", "epochs=3"]
    assert main(["run", "--wait", "2", "10", *settings, "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert re.search(r"sm 4, wait 2, seed 0: the run failed at tick 2: .*diverged.*; try a smaller", told)
    assert [run.run_config.get("wait") for run in load.find(tmp_path)[0]] == [10]
    assert main(["run", "--wait", "2", *settings, "--out", str(tmp_path)]) == 1  # and there is no table
    assert "Runs are in" not in capsys.readouterr().out
    spec = RunSpec("Digits-ALMA-v0", "sm", 4, wait=2, settings=key_values(settings[3:]))
    failed = jobs.run_job(0, jobs.Job(spec, 1, tmp_path / "sweep"), jobs.Environments(), lambda advanced: None)
    assert isinstance(failed, jobs.Failed)
    assert failed.traceback.startswith("the run failed at tick ")


def test_waits_are_shown_in_the_order_of_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wait in (10, 1, 2):
        write(fake_run(wait=wait), tmp_path)
    assert main(["show", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "wait " in line]
    assert [line.split("wait ")[1].split()[0] for line in lines] == ["1", "2", "10"]


def test_an_unfinished_run_is_left_out_and_a_missing_stages_file_gives_no_stages(tmp_path: Path) -> None:
    short, whole = write(RUNS[0], tmp_path), write(RUNS[1], tmp_path)
    ledger = short / "ledger.jsonl"
    ledger.write_text(ledger.read_text()[:-5])
    (whole / "stages.jsonl").unlink()
    (run,), left_out = load.find(tmp_path)
    assert left_out == [f"{short}: unfinished, 1 ticks to go; left out"]
    assert run.stages == ()


def test_a_ledger_with_more_rows_than_ticks_is_refused_with_a_remedy(tmp_path: Path) -> None:
    other, long = write(RUNS[0], tmp_path), write(RUNS[1], tmp_path)
    ledger = long / "ledger.jsonl"
    ticks = RUNS[1].run_config.ticks
    last = json.loads(ledger.read_text().splitlines()[-1])
    ledger.write_text(ledger.read_text() + json.dumps({**last, "tick": ticks + 1}) + "\n")
    message = f"{long}: the ledger has {ticks + 2} rows, and a stream of {ticks} mega-batches has {ticks + 1}; restore"
    (run,), (left_out,) = load.find(tmp_path)
    assert run.folder == other
    assert left_out.startswith(message)
    with pytest.raises(ValueError, match=re.escape(message)):
        run_folder.finished_rows(long, RUNS[1].run_config)


def test_a_packed_file_is_not_replaced_by_its_readable_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl.xz"
    load.pack(RUNS[:2], file)
    first, _ = lzma.decompress(file.read_bytes()).splitlines(keepends=True)
    damaged = lzma.compress(first + b"no\n")
    file.write_bytes(damaged)
    write(RUNS[2], tmp_path / "more")
    for inputs in ([file], [tmp_path]):
        assert main(["pack", *map(str, inputs), "--out", str(file)]) == 2
        assert "line 2: not a packed run" in capsys.readouterr().err
        assert file.read_bytes() == damaged
    assert main(["pack", str(file), str(tmp_path / "more"), "--out", str(tmp_path / "new.jsonl.xz")]) == 0
    assert len(load.find(tmp_path / "new.jsonl.xz")[0]) == 2


@pytest.mark.parametrize(
    ("text", "words"), [("{}\n", "columns"), ("[1]\n", "columns|row"), ('{"tick": 0}\nno\n', "columns|line")]
)
def test_an_invalid_ledger_is_refused_with_its_name(tmp_path: Path, text: str, words: str) -> None:
    path = write(RUNS[0], tmp_path)
    (path / "ledger.jsonl").write_text(text)
    with pytest.raises(ValueError, match=f"ledger.jsonl: .*({words})"):
        load.find(tmp_path)


def test_a_packed_file_without_runs_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load.pack([], tmp_path / "empty.jsonl.xz")
    write(RUNS[0], tmp_path / "runs")
    found, left_out = load.find(tmp_path)
    assert [run.config for run in found] == [RUNS[0].config]
    (message,) = left_out
    assert message.startswith(f"{tmp_path / 'empty.jsonl.xz'}: it holds no run; create it again with")
    assert main(["table", str(tmp_path / "empty.jsonl.xz"), str(tmp_path / "runs")]) == 0
    assert "it holds no run" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="it holds no run"):
        load.find(tmp_path, strict=True)


def test_a_packed_run_with_a_number_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    columns = dataclasses.replace(RUNS[0].columns, error=[0.5] * 21)
    columns.error[3] = float("nan")  # type: ignore[index]
    archive.write([(RUNS[0].config, columns, ())], tmp_path / "runs.jsonl.xz")
    load_error = r"line 1: not a packed run \(error=nan at tick 3: must be a finite number\)"
    with pytest.raises(ValueError, match=load_error):
        load.find(tmp_path / "runs.jsonl.xz")


WRONG_VALUES: dict[str, Any] = {"error": "x", "flops": {"training": "x"}, "digest": 3, "declared": 3, "seconds": None}


@pytest.mark.parametrize("column", WRONG_VALUES)
def test_a_value_of_the_wrong_type_is_refused_with_its_tick(tmp_path: Path, column: str) -> None:
    path = write(RUNS[0], tmp_path)
    rows = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    rows[2][column] = WRONG_VALUES[column]
    (path / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=rf"ledger.jsonl: ({column}=.* at tick 2|line 3): "):
        load.find(tmp_path)


DAMAGED = {
    "config.json": ["", "[]", '{"env": "Digits-ALMA-v0", "protocol": {}, "agent": {}, "seed": 0}'],
    "ledger.jsonl": [
        "no\n",
        "\0\n",
        "".join(row_to_json(row) + "\n" for row in RUNS[0].ledger).replace("0.9", "NaN", 1),
    ],
    "stages.jsonl": ["no\n", "{}\n"],
}


@pytest.mark.parametrize("command", ["show", "table", "plot tradeoff", "policy compare"])
def test_runs_that_cannot_be_read_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (file, text) in enumerate((file, text) for file, texts in DAMAGED.items() for text in texts):
        (write(RUNS[0], tmp_path / "runs" / f"damaged-{number}") / file).write_text(text)
    with pytest.raises(ValueError, match=r"config\.json: not a run configuration"):
        load.find("runs")  # no run can be read
    write(RUNS[2], tmp_path / "runs")
    assert main([*command.split(), "runs"]) == 0
    out = capsys.readouterr().out.replace("\n", "")
    assert all(f"damaged-{number}/" in out for number in range(8))
    assert out.count("left out") == 8
    with pytest.raises(ValueError, match="not a run configuration"):
        load.find("runs", strict=True)


def test_a_damaged_line_of_a_packed_file_loses_one_run_and_a_cut_keeps_the_runs_before(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl.xz"
    load.pack(RUNS[:3], file)
    lines = lzma.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(lzma.compress(lines[0] + b"no\n" + lines[2]))
    found, left_out = load.find(file)
    assert [run.config for run in found] == [json.loads(line)["config"] for line in (lines[0], lines[2])]
    assert left_out[0].startswith(f"{file}, line 2: not a packed run")
    file.write_bytes(lzma.compress(lines[0]) + lzma.compress(lines[1])[:40])
    (run,), left_out = load.find(file)
    assert run.config == json.loads(lines[0])["config"]
    assert "the file is cut or damaged" in left_out[0]


def test_rows_out_of_order_are_refused_and_an_empty_ledger_has_no_score() -> None:
    lines = RUNS[0].ledger.to_json().splitlines()
    with pytest.raises(ValueError, match="row of tick 2.*next tick is 1"):
        LedgerColumns.from_json("\n".join([lines[0], lines[2]]).encode())
    assert LedgerColumns.from_json(b"").to_ledger() == Ledger()
    with pytest.raises(ValueError, match="0 rows"):
        LedgerColumns.from_json(b"").score()


def test_an_invalid_packed_file_is_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl.xz"
    with pytest.raises(ValueError, match="no such file.*`alma pack"):
        load.find(file)
    short = b'{"config": {}, "rows": {"error": [0.9], "flops": {"training": []}}, "stages": {}}'
    lists = b'{"config": {}, "rows": [], "stages": {}}'
    for content in (b"no", *map(lzma.compress, (b"{}\n", b"", short, lists))):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="create it again with `alma pack"):
            load.find(file)
    assert main(["pack", str(tmp_path), "--out", "runs.json"]) == 2
    assert "must end in .jsonl.xz" in capsys.readouterr().err


def test_a_data_frame_has_a_row_for_each_run_with_all_differing_values(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    other = fake_run("ens", wait=1, members=2, policy={"name": "Doubling", "first": 2, "replay": True})
    load.pack([other], tmp_path / "other.jsonl.xz")
    frame = agents.load_runs(folder, str(tmp_path / "other.jsonl.xz"))
    assert len(frame) == len(RUNS) + 1
    assert sorted(frame["agent"].unique()) == ["ens", "gmoe", "sm"]
    first = next(run for run in RUNS if run.config["agent"]["id"] == "sm")
    line = frame[(frame["agent"] == "sm") & (frame["wait"] == 1) & (frame["seed"] == 0)].iloc[0]
    assert (
        dataclasses.asdict(first.score).items()
        >= {name: line[name] for name in ("cer", "final_error", "mem", "comp")}.items()
    )
    last = frame.iloc[-1]
    assert (last["members"], last["first"], last["when"]) == (2, 2, "Doubling(first=2), replay")
    assert frame["wait"].isna().sum() == 1
    assert "engine" not in frame  # equal in all runs


def test_a_data_frame_warns_of_runs_that_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    write(RUNS[0], tmp_path / "whole")
    (write(RUNS[1], tmp_path / "damaged") / "config.json").write_text("no")
    with pytest.warns(UserWarning, match=r"1 runs are left out: .*damaged.*config\.json"):
        assert len(agents.load_runs(tmp_path)) == 1


def test_a_run_whose_files_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    write(RUNS[0], tmp_path / "whole")
    ledger = write(RUNS[1], tmp_path / "closed") / "ledger.jsonl"
    ledger.unlink()
    ledger.mkdir()  # an error of the system for every user, root included
    found, left_out = load.find(tmp_path)
    assert len(found) == 1
    (note,) = left_out
    assert re.search(r"closed.*: cannot be read \(.*Is a directory.*; left out$", note)


def test_the_seed_of_a_policy_has_its_own_column(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    drawn = fake_run(policy={"name": "RandomWait", "replay": False, "seed": 7})
    load.pack([RUNS[0], drawn], tmp_path / "runs.jsonl.xz")
    frame = agents.load_runs(tmp_path / "runs.jsonl.xz")
    assert frame["seed"].tolist() == [0, 0]
    assert frame["agent.policy.seed"].dropna().tolist() == [7]


def test_load_runs_without_pandas_names_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'alma-env\[pandas\]'"):
        agents.load_runs(folder)


def test_a_line_whose_configuration_is_no_object_is_left_out_by_name(tmp_path):
    file = tmp_path / "made.jsonl.xz"
    load.pack([fake_run(seed=seed) for seed in range(2)], file)
    lines = [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()]
    lines[1]["config"] = [1]
    file.write_bytes(lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    found, left_out = load.find(file)
    assert len(found) == 1
    assert [message.partition("; ")[0] for message in left_out] == [
        f"{file}, line 2: not a packed run (config=[1]: must be an object)"
    ]
