"""Processes that want to outlive their run, on a machine without control groups."""

from __future__ import annotations

import contextlib
import uuid

import pytest

from leaderboard.sandbox import sandbox

from ...attempts import alive, outcomes
from .gallery import case

SLEEPS = """
import subprocess
def sleeper(*more):
    code = "import signal, time\\n" + "\\n".join(more) + "\\ntime.sleep(60)"
    return subprocess.Popen([sys.executable, "-c", code, {mark!r}], start_new_session=True)
"""
OUTLIVE = {
    "starts a process in a session of its own": ("sleeper()", "done"),
    "starts a process whose parents have ended": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        sleeper()\n    os._exit(0)",
        "done",
    ),
    "ignores all signals": (
        "sleeper('for s in range(1, 32):', '  if s not in (9, 19, 32, 33): signal.signal(s, signal.SIG_IGN)')",
        "done",
    ),
    "has two processes that trace process 1": (
        "found = set()\n"
        "for request in (0x4206, 16):\n"
        "    for _ in range(2):\n"
        "        found.add(call(101, 117, request, 1, 0, 0x40))\n"
        "sleeper()\n"
        "result = ' '.join(found)",
        "EPERM",
    ),
    "stops process 1 and keeps it from ending": (
        "for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTSTP, signal.SIGTERM):\n"
        "    os.kill(1, number)\n"
        "sleeper()",
        "done",
    ),
    "starts a process that holds the output open and ignores hang-ups": (
        "sleeper('signal.signal(1, signal.SIG_IGN)')",
        "done",
    ),
}


@pytest.mark.parametrize(
    ("code", "expected"), [case(does, "it ends with the run", *values) for does, values in OUTLIVE.items()]
)
def test_no_process_outlives_its_run_without_control_groups(tmp_path, monkeypatch, code, expected):
    monkeypatch.setattr(sandbox, "control_group", lambda name, **limits: contextlib.nullcontext())
    mark = f"mark-{uuid.uuid4().hex}"
    running = f"time.sleep(0.5)\nresult = {mark!r} in open('/code/attempts.py').read()"
    found = outcomes({"try": SLEEPS.format(mark=mark) + code, "goes on": running}, tmp_path)
    assert found == {"try": expected, "goes on": "True"}
    assert not alive(mark)
