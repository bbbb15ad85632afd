"""The command line with a board on the web, and the command that serves it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from leaderboard import cli
from leaderboard.cli import main
from leaderboard.client.client import Client
from leaderboard.errors import RemoteError
from leaderboard.web import workers

from ..conftest import package_of


@pytest.fixture(autouse=True)
def no_board_of_the_user(monkeypatch) -> None:
    monkeypatch.delenv(cli.DATABASE_VARIABLE, raising=False)
    monkeypatch.delenv(cli.TOKEN_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "160")


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def secret_in(out: str) -> str:
    return out.split()[-1]


def test_one_command_serves_a_board_with_workers(capsys, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'board.db'}"
    status, out, _ = run(capsys, "account", "add", "Mia", "--role", "maintainer", "--database", url)
    assert status == 0
    mia = secret_in(out)
    ada = secret_in(run(capsys, "account", "add", "Ada", "--database", url)[1])
    package_of(name="number 1").write(tmp_path / "mine")
    serve = "serve --port 0 --root-path /board --registration open --workers 1 --no-baselines"
    serve += " --verify fake_verify:verify"
    server = subprocess.Popen(
        [sys.executable, "-m", "leaderboard.cli", *serve.split(), "--database", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.getcwd()])},
    )
    try:
        line = server.stdout.readline()
        assert line.startswith("the board is at http://127.0.0.1:"), server.stderr.read()
        board = line.split()[-1].removesuffix("/board/")  # without a proxy, the server has no prefix
        at = ("--url", board)
        status, out, err = run(capsys, "submit", tmp_path / "mine", *at)
        assert status == 2
        assert "no valid token or session" in err
        monkeypatch.setenv(cli.TOKEN_VARIABLE, ada)
        status, out, err = run(capsys, "submit", tmp_path / "mine", *at, "--wait")
        assert (status, err) == (0, "")
        assert "submission 1: queued\n" in out
        assert "submission 1: verified, on the board\nnumber 1, by Ada\n" in out
        assert "sent before" in run(capsys, "submit", tmp_path / "mine", *at)[1]
        assert "number 1" in run(capsys, "status", *at)[1]
        assert "comp 20 ± 0 over 3 seeds" in run(capsys, "status", 1, *at)[1]
        assert run(capsys, "export", tmp_path / "b.json", "--env", "Digits-ALMA-v0", *at)[0] == 0
        assert [line["name"] for line in json.loads((tmp_path / "b.json").read_text())] == ["number 1"]
        status, _, err = run(capsys, "review", 1, "--reject", "--reason", "no", *at)
        assert status == 2
        assert "not a maintainer" in err
        with_mia = (*at, "--token", mia)
        assert run(capsys, "review", 1, "--reject", "--reason", "no", *with_mia)[1] == "submission 1: rejected\n"
        assert "only a failed verification can be retried" in run(capsys, "retry", 1, *with_mia)[2]
        response = httpx2.get(f"{board}/api/v1/health")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "server" not in response.headers
        assert httpx2.get(f"{board}/api/v1/boards", headers={"X-Forwarded-For": "192.0.2.1"}).status_code == 200
    finally:
        server.send_signal(signal.SIGTERM)
        log = "".join(server.communicate(timeout=60))
    assert server.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in log
    assert mia not in log
    assert ada not in log
    assert "192.0.2.1" not in log  # without a trusted proxy, the header is ignored


def test_a_new_board_has_baselines(tmp_path):
    url = f"sqlite:///{tmp_path / 'board.db'}"
    command = [sys.executable, "-m", "leaderboard.cli", "serve", "--port", "0", "--database", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            address = server.stdout.readline().split()[-1]
            with Client(address) as board:
                assert {found.env_id for found in board.boards()} == {"Digits-ALMA-v0", "MNIST-ALMA-v0"}
                best = board.standings("Digits-ALMA-v0").lines[0]
                assert board.status(best.submission_id).account == "alma-env"
                assert len(board.ledger(best.submission_id, 0)) == 21
        finally:
            server.terminate()


def test_workers_end_with_a_server_that_is_killed(tmp_path):
    script = (
        "import sys, threading\n"
        "from leaderboard.web.workers import running_workers\n"
        "command = [sys.executable, '-m', 'leaderboard.cli', 'worker']\n"
        "command += ['--verify', 'fake_verify:verify', '--while-input-is-open']\n"
        f"environment = {{'ALMA_LEADERBOARD_DATABASE': 'sqlite:///{tmp_path / 'board.db'}'}}\n"
        "with running_workers(command, environment, 1):\n"
        "    print('up', flush=True); threading.Event().wait()\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.getcwd()])
    server = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    try:
        assert server.stdout.readline() == "up\n"
        end = time.monotonic() + 300
        while not (children := _children(server.pid)):
            assert time.monotonic() < end
            time.sleep(0.05)
        while not (tmp_path / "board.db").exists():  # the worker has started
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    end = time.monotonic() + 300
    while any(Path(f"/proc/{child}").exists() and not _is_dead(child) for child in children):
        assert time.monotonic() < end, "a worker outlives its server"
        time.sleep(0.05)


def test_a_worker_that_cannot_be_started_is_started_later(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "PAUSE_SECONDS", 0.01)
    failures, start = iter([OSError("no more processes")]), subprocess.Popen

    def popen(*arguments, **keywords):
        for failure in failures:
            raise failure
        return start(*arguments, **keywords)

    monkeypatch.setattr(workers.subprocess, "Popen", popen)
    command = [sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w'); input()"]
    with workers.running_workers(command, {}, 1):
        end = time.monotonic() + 300
        while not (tmp_path / "started").exists():
            assert time.monotonic() < end
            time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(number) for number in task.read_text().split()]
    return found


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_commands_manage_accounts_and_tokens(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(cli.DATABASE_VARIABLE, f"sqlite:///{tmp_path / 'board.db'}")
    run(capsys, "account", "add", "Ada")
    status, _, err = run(capsys, "account", "add", "ada")
    assert status == 2
    assert "the name is taken" in err
    status, out, _ = run(capsys, "token", "make", "Ada", "--name", "[red]robot", "--scope", "submit", "--days", "7")
    assert "token 2 of Ada, scopes submit, shown only now: alma_" in out
    assert "[red]robot" in run(capsys, "token", "list", "Ada")[1]
    assert run(capsys, "token", "revoke", 2)[1] == "token 2: revoked\n"
    assert "token 9" in run(capsys, "token", "revoke", 9)[2]
    assert run(capsys, "account", "disable", "Ada")[1] == "account 1: Ada, disabled\n"
    assert "submitter" in run(capsys, "account", "list")[1]
    assert run(capsys, "account", "enable", "Ada")[1] == "account 1: Ada, enabled\n"
    status, _, err = run(capsys, "token", "make", "Ada", "--scope", "review")
    assert (status, "submit, manage" in err) == (2, True)


def test_a_decision_needs_a_maintainer_s_account(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(cli.DATABASE_VARIABLE, f"sqlite:///{tmp_path / 'board.db'}")
    status, _, err = run(capsys, "review", 1, "--accept", "--reason", "fine")
    assert (status, "--account: missing" in err) == (2, True)
    run(capsys, "account", "add", "Ada")  # a submitter
    status, _, err = run(capsys, "review", 1, "--accept", "--reason", "fine", "--account", "Ada")
    assert (status, "not an active maintainer" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve",), "--database: missing; give --database"),
        (("serve", "--workers", "-1", "--database", "sqlite:///{}/b.db"), "--workers -1"),
        (("serve", "--root-path", "board/", "--database", "sqlite:///{}/b.db"), "must begin with a slash"),
        (("serve", "--workers", "1", "--verify", "x", "--database", "sqlite:///{}/b.db"), "write MODULE:FUNCTION"),
        (("serve", "--submissions-per-day", "0", "--database", "sqlite:///{}/b.db"), "submissions_per_day=0"),
        (("serve", "--host", "nowhere.invalid", "--database", "sqlite:///{}/b.db"), "cannot listen there"),
        (("status", "--url", "board"), "write it like https://"),
    ],
)
def test_a_wrong_argument_gives_one_message(capsys, tmp_path, arguments, message):
    status, _, err = run(capsys, *(argument.format(tmp_path) for argument in arguments))
    assert (status, message in err) == (2, True), err


def test_a_used_port_is_reported(capsys, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = run(capsys, "serve", "--port", port, "--database", f"sqlite:///{tmp_path / 'b.db'}")
    assert (status, "cannot listen there (Address already in use)" in err) == (2, True)


def test_a_server_that_does_not_respond_is_reported():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1, attempts=1)
        with closing(client), pytest.raises(RemoteError, match="no response .ReadTimeout"):
            client.boards()
