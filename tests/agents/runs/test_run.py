"""A killed run continues and gives the same ledger to the last bit."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.run_config import RunConfig
from agents.cli import main
from agents.runs import run_folder
from alma_env import Ledger

from ..ledgers import without_seconds

TICKS = 5


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


def sm(env, **settings):
    return agents.make("sm", env, **{"width": 8, "epochs": 2, **settings})


class Kill(Exception):
    """Simulates the end of the process in the middle of a run."""


def run_until(tick, *arguments, **keywords):
    """Start a run whose process ends after this tick."""

    def kill(row):
        if row.tick == tick:
            raise Kill

    with pytest.raises(Kill):
        agents.run(*arguments, on_tick=kill, **keywords)


def test_a_run_writes_configuration_ledger_and_checkpoint(env, tmp_path):
    ledger = agents.run(env, sm(env), 3, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["seed"] == 3
    assert config["env"] == "Digits-ALMA-v0"
    assert config["protocol"]["digest"] == env.data.digest
    assert config["agent"]["stage"]["optimizer"] == "adadelta"
    assert config["agent"]["width"] == 8
    assert set(config["versions"]) == {"alma-env", "numpy", "python", "torch"}
    assert Ledger.from_json((tmp_path / "ledger.jsonl").read_text()) == ledger
    assert (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize("every_tick", [True, False], ids=["checkpoint-each-tick", "rare-checkpoints"])
@pytest.mark.parametrize("stop", range(TICKS + 1))
def test_a_run_that_is_stopped_after_any_tick_ends_with_the_same_ledger(env, tmp_path, monkeypatch, stop, every_tick):
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0 if every_tick else 1e9)
    whole = agents.run(env, sm(env, wait=2, replay=True), 0)
    run_until(stop, env, sm(env, wait=2, replay=True), 0, tmp_path)
    on_disk = (tmp_path / "ledger.jsonl").read_text()
    again = agents.run(env, sm(env, wait=2, replay=True), 0, tmp_path)
    assert without_seconds(again) == without_seconds(whole)
    # The bytes that were written before the stop are unchanged.
    assert (tmp_path / "ledger.jsonl").read_text().startswith(on_disk)
    assert Ledger.from_json((tmp_path / "ledger.jsonl").read_text()) == again


def test_an_incomplete_last_line_is_written_again(env, tmp_path):
    run_until(3, env, sm(env), 0, tmp_path)
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    again = agents.run(env, sm(env), 0, tmp_path)
    assert without_seconds(again) == without_seconds(agents.run(env, sm(env), 0))


def test_a_run_whose_last_checkpoint_fails_is_not_finished(env, tmp_path, monkeypatch):
    whole = agents.run(env, sm(env), 0, tmp_path / "whole")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space left"):
            agents.run(env, sm(env), 0, tmp_path / "full")
    assert len(run_folder.read_ledger(tmp_path / "full")) == TICKS
    again = agents.run(env, sm(env), 0, tmp_path / "full")
    assert without_seconds(again) == without_seconds(whole)
    assert run_folder.read_stages(tmp_path / "full") == run_folder.read_stages(tmp_path / "whole")


def test_no_stage_is_repeated_after_the_last_checkpoint(env, tmp_path, monkeypatch):
    def kill(*_):
        raise Kill

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.RunFolder, "end", kill)
        with pytest.raises(Kill):
            agents.run(env, sm(env), 0, tmp_path)
    assert len(run_folder.read_ledger(tmp_path)) == TICKS
    agent = sm(env)
    monkeypatch.setattr(agent, "observe", lambda observation: pytest.fail("trained again"))
    again = agents.run(env, agent, 0, tmp_path)
    assert without_seconds(again) == without_seconds(agents.run(env, sm(env), 0))
    assert run_folder.read_ledger(tmp_path) == again


@pytest.mark.parametrize("written", [0, 1])
def test_the_last_checkpoint_of_a_run_over_its_budget_holds_all_rows(tmp_path, monkeypatch, written):
    whole = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    costs = [row.comp for row in agents.run(whole, sm(whole), 0)]
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, flops_budget=float(sum(costs[:3])))
    expected = agents.run(env, sm(env), 0)
    assert [row.refused for row in expected] == [False] * 3 + [True] * (TICKS - 2)

    def kill(self, env):
        for row in env.ledger.rows[len(self.rows) :][:written]:
            self.write(row)
        raise Kill

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.RunFolder, "end", kill)
        with pytest.raises(Kill):
            agents.run(env, sm(env), 0, tmp_path)
    assert len(run_folder.read_ledger(tmp_path)) == 3 + written
    agent = sm(env)
    monkeypatch.setattr(agent, "observe", lambda observation: pytest.fail("trained again"))
    assert without_seconds(agents.run(env, agent, 0, tmp_path)) == without_seconds(expected)


def test_a_finished_run_is_read_and_not_repeated(env, tmp_path, monkeypatch):
    first = agents.run(env, sm(env), 0, tmp_path)
    agent = sm(env)
    monkeypatch.setattr(agent, "observe", lambda observation: pytest.fail("trained again"))
    rows = []
    assert agents.run(env, agent, 0, tmp_path, on_tick=rows.append) == first
    assert rows == first.rows


def test_rows_or_a_checkpoint_without_a_configuration_are_refused(env, tmp_path):
    agents.run(env, agents.make("sm", env, width=4, epochs=1, wait=2), 0, tmp_path)
    (tmp_path / "config.json").unlink()
    for left in (r"ledger\.jsonl and checkpoint\.pt", r"ledger\.jsonl"):
        with pytest.raises(ValueError, match=rf"config\.json: missing, and {left} may be of another run; restore"):
            agents.run(env, agents.make("sm", env, width=8, epochs=1), 7, tmp_path)
        (tmp_path / "checkpoint.pt").unlink(missing_ok=True)


def test_a_folder_with_another_configuration_is_refused(env, tmp_path):
    agents.run(env, sm(env), 0, tmp_path)
    with pytest.raises(agents.RunMismatchError, match="^agent.width=8 in .*, 9 now: .* use another folder, or delete"):
        agents.run(env, sm(env, width=9), 0, tmp_path)
    with pytest.raises(agents.RunMismatchError, match="seed=0 in .*, 1 now"):
        agents.run(env, sm(env), 1, tmp_path)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [(-1, ValueError, "seed=-1: .* use seed=0"), (1.5, TypeError, "seed=1.5: must be an"), ("0", TypeError, "seed=")],
)
def test_a_wrong_seed_is_refused_and_claims_no_folder(env, tmp_path, seed, error, message):
    with pytest.raises(error, match=message):
        agents.run(env, sm(env), seed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_seed_of_numpy_is_the_seed(env, tmp_path):
    first = agents.run(env, sm(env), np.int64(3), tmp_path)
    assert agents.run(env, sm(env), 3, tmp_path) == first


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"engine": "plain"}, r"^agent.engine='plain' in .*, 'native' now: .*; give the same value \(--engine plain\)"),
        ({"engine": "compiled"}, "^agent.engine='compiled' in .*, 'native' now: .* cannot continue it; use another"),
        ({"engine": "plain", "together": None}, "^agent.together=None in .*, absent now: .* cannot continue it"),
    ],
)
def test_a_run_of_an_earlier_version_is_refused_with_a_remedy_that_works(env, started, changed, message):
    config = json.loads((started / "config.json").read_text())
    agent = sm(env)
    agent.config["engine"] = "native"  # also where there is no compiler
    (started / "config.json").write_text(json.dumps(config | {"agent": {**agent.config, **changed}}))
    with pytest.raises(agents.RunMismatchError, match=message):
        agents.run(env, agent, 0, started)


def test_a_run_that_does_not_repeat_stops_with_an_error(env, tmp_path):
    run_until(3, env, sm(env), 0, tmp_path)
    file = tmp_path / "ledger.jsonl"
    rows = Ledger.from_json(file.read_text()).rows
    rows[2] = dataclasses.replace(rows[2], error=0.123)
    file.write_text(Ledger(rows).to_json())
    (tmp_path / "checkpoint.pt").unlink(missing_ok=True)
    with pytest.raises(agents.RunMismatchError, match=r"tick 2 .* error was 0.123, is 0\."):
        agents.run(env, sm(env), 0, tmp_path)


@pytest.fixture
def started(env, tmp_path, monkeypatch):
    """A folder whose run was stopped after tick 3, with a checkpoint of tick 2 or 3."""
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    run_until(3, env, sm(env), 0, tmp_path)
    assert (tmp_path / "checkpoint.pt").exists()
    return tmp_path


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_checkpoint_without_its_rows_is_not_used(env, started, kept):
    file = started / "ledger.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:kept])) if kept else file.unlink()
    again = agents.run(env, sm(env), 0, started)
    assert [row.tick for row in again] == list(range(TICKS + 1))
    assert without_seconds(again) == without_seconds(agents.run(env, sm(env), 0))
    assert file.read_text().startswith("".join(lines[:kept]))


def test_rows_that_differ_from_the_checkpoint_are_detected(env, started):
    file = started / "ledger.jsonl"
    rows = Ledger.from_json(file.read_text()).rows
    rows[1] = dataclasses.replace(rows[1], error=0.123)
    file.write_text(Ledger(rows).to_json())
    with pytest.raises(agents.RunMismatchError, match=r"tick 1 .* error was 0.123, is 0\."):
        agents.run(env, sm(env), 0, started)


def test_rows_are_written_only_in_order(env, tmp_path):
    row = agents.run(env, sm(env), 0)[2]
    with pytest.raises(agents.RunMismatchError, match="tick 2 after 0 rows in .*ledger.jsonl"):
        run_folder.RunFolder(tmp_path, RunConfig("e", {"ticks": 1}, AgentConfig({"id": "a"}), 0)).write(row)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_second_process_cannot_write_to_a_folder(env, tmp_path):
    def intrude(row):
        with pytest.raises(run_folder.FolderInUseError, match=f"{tmp_path}: another process .* use another folder"):
            agents.run(env, sm(env), 0, tmp_path)
        with pytest.raises(run_folder.FolderInUseError, match="another process"):
            run_folder.clear(tmp_path)

    agents.run(env, sm(env), 0, tmp_path, on_tick=intrude)
    assert len(agents.run(env, sm(env), 0, tmp_path)) == TICKS + 1
    run_folder.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_killed_process_leaves_no_lock(env, tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl, time; f = open({str(tmp_path / 'lock')!r}, 'w'); "
         "fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(run_folder.FolderInUseError):
            agents.run(env, sm(env), 0, tmp_path)
        holder.kill()
    assert len(agents.run(env, sm(env), 0, tmp_path)) == TICKS + 1


@pytest.mark.parametrize("ticks", [2, 9])
def test_an_agent_for_a_stream_of_another_length_is_refused(env, ticks):
    """Its policy would stop training too early, or never train at the last tick."""
    agent = agents.make("sm", alma_env.make("Digits-ALMA-v0", ticks=ticks), width=4, epochs=1)
    with pytest.raises(ValueError, match=f"agent with ticks={ticks} on a stream with ticks={env.ticks}: must be equal"):
        agents.run(env, agent, seed=0)
    if ticks == 2:
        observation, _ = env.reset(seed=0)
        agent.gather(observation), agent.gather(observation)
        with pytest.raises(ValueError, match="tick=3 for an agent with ticks=2"):
            agent.gather(observation)


def test_an_agent_runs_only_once(env, tmp_path):
    agent = sm(env)
    first = agents.run(env, agent, 0)
    for folder in (None, tmp_path / "new"):
        with pytest.raises(ValueError, match=f"agent.tick={TICKS}: .*create a new agent"):
            agents.run(env, agent, 0, folder)
    assert without_seconds(agents.run(env, sm(env), 0)) == without_seconds(first)


def test_an_agent_that_has_run_can_continue_from_a_checkpoint(env, started):
    agent = sm(env)
    first = agents.run(env, agent, 0)
    assert without_seconds(agents.run(env, agent, 0, started)) == without_seconds(first)


def test_the_same_command_continues_the_run_of_a_killed_process(tmp_path):
    def command(epochs: int, out: Path) -> list[str]:
        return ["run", "--width", "8", "--wait", "1", "--set", f"epochs={epochs}", "ticks=8", "--out", str(out)]

    for epochs in (60, 240, 960):  # on a busy machine, the run can end before this process sees its rows
        out = tmp_path / str(epochs)
        victim = subprocess.Popen(
            [sys.executable, "-m", "agents", *command(epochs, out)],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        while victim.poll() is None and not any(file.read_bytes().count(b"\n") >= 4 for file in ledgers(out)):
            time.sleep(0.005)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        (killed,) = ledgers(out)
        if (rows := killed.read_bytes().count(b"\n")) < 9:
            break
    assert 4 <= rows < 9, "the process must be killed in the middle of the run"
    before = Ledger.from_json("".join(killed.read_text().splitlines(keepends=True)[:4]))
    assert main(command(epochs, out)) == 0
    assert main(command(epochs, tmp_path / "whole")) == 0
    (whole,) = ledgers(tmp_path / "whole")
    one, two = (Ledger.from_json(file.read_text()) for file in (whole, killed))
    assert len(two) == 9
    assert without_seconds(one) == without_seconds(two)
    assert two.rows[:4] == before.rows


def ledgers(out: Path) -> list[Path]:
    return list(out.rglob("ledger.jsonl"))


def test_a_configuration_that_is_no_plain_data_is_refused_before_anything_is_written(env, tmp_path):
    complete = sm(env)
    for config, remedy in (
        ({"id": "mine", "policy": complete.policy}, r"agents\.policy_record\(policy\)"),
        ({"id": "mine", "rate": {1, 2}}, "record numbers and texts"),
    ):
        agent = agents.AnytimeAgent(complete.learner, complete.policy, env.ticks, config)
        with pytest.raises(ValueError, match=rf"config\['{list(config)[-1]}'\] of type .*{remedy}"):
            agents.run(env, agent, 0, tmp_path)
    assert not list(tmp_path.iterdir())


@dataclasses.dataclass(frozen=True)
class Listed:
    every: int
    names: tuple = tuple(range(100))

    def __call__(self, now):
        return now.tick % self.every == 0


def test_a_mismatch_shows_the_difference_and_not_whole_records(env, tmp_path):
    agents.run(env, sm(env, policy=Listed(3)), 0, tmp_path)
    with pytest.raises(agents.RunMismatchError) as raised:
        agents.run(env, sm(env, policy=Listed(2), epochs=3), 0, tmp_path)
    message = str(raised.value)
    assert "Listed(every=3" in message
    assert "Listed(every=2" in message
    assert "(and agent.stage.epochs)" in message
    assert len(message) - len(str(tmp_path)) < 400


def test_an_agent_without_a_config_runs_only_without_a_folder(env, tmp_path):
    complete = sm(env)
    agent = agents.AnytimeAgent(complete.learner, complete.policy, env.ticks)
    with pytest.raises(ValueError, match="give AnytimeAgent a config"):
        agents.run(env, agent, 0, tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(agents.run(env, agent, 0)) == TICKS + 1


def test_a_run_that_was_started_with_record_goes_on_with_it_and_no_other_run_can(env, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0)
    run_until(3, env, sm(env), 0, tmp_path / "recorded", record=True)
    agents.run(env, sm(env), 0, tmp_path / "recorded")
    assert None not in [stage.held_out_error for stage in run_folder.read_stages(tmp_path / "recorded")]
    agents.run(env, sm(env), 0, tmp_path / "recorded", record=True)
    agents.run(env, sm(env), 0, tmp_path / "plain")
    with pytest.raises(ValueError, match="plain was started without record.* in another folder, or with --fresh"):
        agents.run(env, sm(env), 0, tmp_path / "plain", record=True)


def test_a_run_that_was_stopped_before_its_first_training_goes_on_with_record(env, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0)
    run_until(2, env, sm(env, wait=3), 0, tmp_path, record=True)
    agents.run(env, sm(env, wait=3), 0, tmp_path)
    stages = run_folder.read_stages(tmp_path)
    assert stages
    assert None not in [stage.held_out_error for stage in stages]
