"""A sandbox limits network, files, memory, processes and time, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from leaderboard.sandbox import isolation, sandbox, view
from leaderboard.sandbox.sandbox import ISOLATED, Limits, level_here, sandboxed

from ..attempts import alive

isolated = pytest.mark.skipif(level_here() != ISOLATED, reason="bubblewrap is missing, or cannot create namespaces")


@pytest.fixture
def inside(tmp_path):
    """Run Python code in a sandbox; return its output and exit status (None if the time ran out)."""

    def go(code, limits=None, *, seconds=300.0, **more):
        script = tmp_path / "code"
        script.mkdir(exist_ok=True)
        (script / "code.py").write_text(textwrap.dedent(code))
        folder = {"/code": script} if level_here() == ISOLATED and not more.get("allow_limited") else {}
        word = "/code/code.py" if folder else str(script / "code.py")
        with open(tmp_path / "printed", "wb") as printed:
            run = f"exec(open({word!r}).read(), {{}})"
            with sandboxed(
                "timeit", ["-n1", "-r1", run], limits or Limits(), folders=folder, output=printed.fileno(), **more
            ) as box:
                try:
                    status = box.process.wait(seconds)
                except Exception:
                    status = None
        return (tmp_path / "printed").read_text(errors="replace"), status

    return go


@isolated
def test_no_file_of_the_machine_is_writable(inside):
    output, status = inside("""
        for path in (
            "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/self/oom_score_adj",
            "/dev/new", "/new", "/code/new", "/usr/new", "/program/leaderboard/new",
        ):
            try:
                open(path, "ab").close()
                print("written:", path)
            except OSError:
                pass
        print("done")
        """)
    assert status == 0, output
    assert output.startswith("done")


@isolated
def test_scratch_space_is_limited(inside):
    output, _ = inside(
        """
        for folder in ("/scratch", "/dev/shm", "/tmp"):
            try:
                with open(folder + "/large", "wb") as file:
                    for _ in range(64):
                        file.write(bytes(2**20))
                print("written:", folder)
            except OSError:
                pass
        print("done")
        """,
        Limits(scratch=2**25),
    )
    assert output.startswith("done")


@isolated
def test_a_sandbox_cannot_connect_to_a_service_of_this_machine(inside):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=60).close()  # the service works
        output, _ = inside(f"""
            import socket
            try:
                socket.create_connection(("127.0.0.1", {port}), timeout=5)
                print("reached")
            except OSError:
                print("not reached", socket.if_nameindex())
            """)
    assert output.startswith("not reached [(1, 'lo')]")


@isolated
@pytest.mark.parametrize("grouped", [True, False])
def test_memory_is_limited(inside, grouped, monkeypatch):
    if not grouped:
        monkeypatch.setattr(sandbox, "control_group", lambda name, **limits: contextlib.nullcontext())
    code = """
        kept = []
        for _ in range(12):
            kept.append(b"1" * 2**26)
            print(len(kept), flush=True)
        """
    output, status = inside(code, Limits(memory=2**29))
    assert status != 0
    assert 1 <= len([line for line in output.splitlines() if line.isdigit()]) < 9
    output, status = inside(code, Limits(memory=2**31))
    assert status == 0, output


@isolated
@pytest.mark.parametrize("grouped", [True, False])
def test_the_number_of_processes_is_limited(inside, grouped, monkeypatch):
    if not grouped and os.getuid() == 0 and isolation.isolation_here().start.users is None:
        pytest.skip("only a control group limits the processes of root")
    if not grouped:
        monkeypatch.setattr(sandbox, "control_group", lambda name, **limits: contextlib.nullcontext())
    output, _ = inside(
        """
        import os, time
        made = 0
        try:
            for _ in range(100):
                if os.fork() == 0:
                    time.sleep(300)
                    os._exit(0)
                made += 1
        except OSError:
            pass
        print("made", made, flush=True)
        os._exit(0)
        """,
        Limits(processes=30),
    )
    assert 5 <= int(output.split()[1]) < 30


@isolated
def test_cpu_time_is_limited(inside):
    _, status = inside("while True: pass", Limits(cpu_seconds=1))
    assert status not in (0, None)


@isolated
def test_data_of_streams_are_hidden_under_every_path_to_the_interpreter(tmp_path, monkeypatch):
    link = tmp_path / "environment"
    link.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(link))
    base = tmp_path / "base"
    base.symlink_to(sys.base_prefix)
    monkeypatch.setattr(sys, "base_prefix", str(base))
    visible = view.visible_folders()
    assert all(os.path.realpath(outside) == str(outside) for outside in visible.values())
    found = 0
    for inside, outside in visible.items():
        for places in ("", "lib/", "lib64/", "local/lib/"):
            for folder in outside.glob(f"{places}python3*/*-packages/sklearn/datasets/data"):
                found += 1
                assert Path(inside) / folder.relative_to(outside) in view.hidden_folders()
    assert found
    (package,) = [Path(inside) for inside, outside in visible.items() if outside == view.PACKAGES_ROOT / "alma_env"]
    assert package / "data" / "digits" in view.hidden_folders()


@isolated
def test_names_inside_tell_nothing_about_the_host(inside, tmp_path):
    output, status = inside(
        """
        import os, socket, sys, sysconfig
        words = [*sys.argv, *sys.path, sys.executable, sys.prefix, sys.base_prefix, os.getcwd(), socket.gethostname()]
        words += [*os.environ.values(), *sysconfig.get_paths().values(), *os.listdir("/"), *os.listdir("/proc")]
        programs = os.path.dirname(sys.executable)
        for name in os.listdir(programs) if programs.startswith("/environment/") else ():
            file = os.path.join(programs, name)
            words.append(os.readlink(file) if os.path.islink(file) else str(open(file, "rb").readline(200)))
        print(*words, sep="\\n")
        """
    )
    assert status == 0, output
    words = output.split()
    assert "/scratch" in words
    for path in (sys.prefix, sys.base_prefix, str(Path(__file__).parents[3]), str(tmp_path)):
        if not path.startswith("/usr"):
            assert not [word for word in words if path in word]


@pytest.mark.parametrize("level", ["isolated", "limited"])
def test_no_process_survives_its_sandbox(inside, level, groups, monkeypatch):
    if level != level_here() and level == ISOLATED:
        pytest.skip("bubblewrap is missing, or cannot create namespaces")
    monkeypatch.setattr(sandbox, "level_here", lambda: level)
    mark = f"mark-{uuid.uuid4().hex}"
    output, _ = inside(
        f"""
        import subprocess, sys
        sleeping = [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}]
        subprocess.Popen(sleeping, start_new_session=True)
        print("left", flush=True)
        """,
        allow_limited=level != ISOLATED,
    )
    assert "left" in output
    if level != ISOLATED and groups == [None]:
        pytest.skip("without control groups, a process in a new session survives")
    assert not alive(mark)
