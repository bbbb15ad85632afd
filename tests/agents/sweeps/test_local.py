"""The worker processes of this machine: a process that cannot start, GPUs, and the progress of a job."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agents.sweeps import jobs, local, process_setup
from agents.sweeps.jobs import Environments, Finished, Job, run_job
from agents.sweeps.sweep import sweep

from .small_runs import GOOD, new_console


def test_a_process_that_cannot_start_is_reported_and_the_others_run_its_jobs(tmp_path, monkeypatch):
    broken, console = {"=": "no such variable can be set"}, new_console()
    for count in (8, 32, 128):  # the jobs can end before the broken process does
        with monkeypatch.context() as patched:
            patched.setattr(local, "worker_variables", lambda *_: [{}, broken])
            specs = [replace(GOOD, seed=seed) for seed in range(count)]
            report = sweep(specs, tmp_path / str(count), console=console)
        assert (len(report.finished), report.failed) == (count, [])
        if report.lost:
            break
    reason = "a worker process could not start: the worker process ended with status 1"
    assert report.lost == [reason]
    printed = console.file.getvalue()
    assert f"{reason}; the other workers run its jobs" in printed
    assert f"lost 1 worker processes and took longer: {reason}" in printed
    batch = [Job(replace(GOOD, seed=seed), 1, tmp_path) for seed in range(2)]
    with pytest.raises(local.WorkerError, match="could not start: the worker process ended with status 1"):
        list(local.run_jobs(batch, [broken, broken]))


def test_processes_are_assigned_to_gpus_in_turn(monkeypatch):
    def gpus(per_gpu):
        return [variables["CUDA_VISIBLE_DEVICES"] for variables in local.worker_variables(None, per_gpu, 1)]

    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus(2) == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus(1) == ["5", "7"]
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(ValueError, match="GPU"):
        gpus(1)


@pytest.mark.skipif(sys.platform != "linux", reason="only the C library of Linux has mallopt")
def test_a_c_library_that_refuses_a_large_threshold_gets_a_smaller_one(monkeypatch):
    calls = []

    def mallopt(parameter: int, value: int) -> int:  # as in glibc 2.31, which refuses a threshold above 32 MiB
        calls.append((parameter, value))
        return int(parameter != process_setup._M_MMAP_THRESHOLD or value <= 32 << 20)

    monkeypatch.setattr(process_setup.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    process_setup.keep_freed_memory()
    assert [value for parameter, value in calls if parameter == process_setup._M_MMAP_THRESHOLD] == [1 << 30, 32 << 20]
    assert len(calls) == 4


def test_a_job_reports_its_progress_up_to_the_end(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(jobs, "_REPORT_SECONDS", 0)
    assert isinstance(run_job(0, Job(GOOD, 1, tmp_path), Environments(), events.append), Finished)
    parts = [event.part for event in events]
    assert parts == sorted(parts)
    assert parts[-1] == 1
