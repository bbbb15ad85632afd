"""The command line: every command works, and a mistake gives one message with the remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from alma_env.errors import how_to_install
from leaderboard import cli
from leaderboard.cli import load_verify, main
from leaderboard.cli.verifying import DEFAULT_VERIFY
from leaderboard.database.tables import LARGEST_ID
from leaderboard.submission.zip_archive import read

from ..conftest import package_of


@pytest.fixture(autouse=True)
def no_database_of_the_user(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(cli.DATABASE_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))  # for fake_verify


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def written(folder: Path, **changes) -> Path:
    package_of(**changes).write(folder)
    return folder


def test_the_template_passes_the_check_and_is_not_overwritten(capsys, tmp_path):
    status, out, _ = run(capsys, "init", tmp_path / "mine")
    assert status == 0
    assert f"alma-leaderboard check {tmp_path / 'mine'}" in out
    status, out, err = run(capsys, "check", tmp_path / "mine")
    assert (status, err) == (0, "")
    assert "valid: Single model, wait 5, Digits-ALMA-v0, 3 seeds" in out
    assert f"digest {read(tmp_path / 'mine').digest}" in out
    status, _, err = run(capsys, "init", tmp_path / "mine")
    assert status == 2
    assert "nothing is overwritten" in err


def test_check_reports_all_errors_and_executes_nothing(capsys, tmp_path):
    trap = tmp_path / "trap"
    folder = written(tmp_path / "a", agent=f"open({str(trap)!r}, 'w')\n", name="[bold]x", seeds=[0])
    status, out, _ = run(capsys, "check", folder)
    assert status == 1
    assert "error seeds = [0]: must have at least 3" in out
    assert "error agent.py: no function make_agent" in out
    assert not trap.exists()
    assert run(capsys, "check", tmp_path / "nowhere")[0] == 1


def test_submit_status_worker_export_and_upgrade(capsys, tmp_path, database_url):
    at = ("--database", database_url)
    status, out, _ = run(capsys, "submit", written(tmp_path / "a", name="number 1"), *at, "--account", "Ada")
    assert (status, out) == (0, "submission 1: queued\n")
    (tmp_path / "b.zip").write_bytes(package_of(name="[red]number 2", method="ens").to_zip())
    assert run(capsys, "submit", tmp_path / "b.zip", *at)[1] == "submission 2: queued\n"
    assert "sent before" in run(capsys, "submit", tmp_path / "a", *at)[1]
    assert run(capsys, "submit", written(tmp_path / "c", seeds=[1]), *at)[0] == 1
    _, out, _ = run(capsys, "status", *at)
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["2", "queued", "Digits-ALMA-v0"],
        ["1", "queued", "Digits-ALMA-v0"],
    ]
    assert "[red]number 2" in out
    assert "sent by Ada" in run(capsys, "status", 1, *at)[1]

    status, out, err = run(capsys, "worker", *at, "--verify", "fake_verify:verify", "--until-empty")
    assert (status, out, err) == (0, "2 submissions verified\n", "")
    _, out, _ = run(capsys, "status", 2, *at)
    assert out.startswith("submission 2: verified, on the board\n[red]number 2, by Ada\n")
    assert "comp 40 ± 0 over 3 seeds" in out

    for file in ("board.csv", "board.json", "board.parquet"):
        status, out, _ = run(capsys, "export", tmp_path / file, "--env", "Digits-ALMA-v0", *at)
        assert (status, out) == (0, f"{tmp_path / file}: 2 rows\n")
    records = json.loads((tmp_path / "board.json").read_text())
    assert [record["name"] for record in records] == ["number 1", "[red]number 2"]
    assert "6 rows" in run(capsys, "export", tmp_path / "r.csv", "--env", "Digits-ALMA-v0", "--runs", *at)[1]
    assert run(capsys, "upgrade", *at)[1] == "the tables have version 0003\n"


def test_retry_queues_a_failed_submission_again(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(cli.DATABASE_VARIABLE, f"sqlite:///{tmp_path / 'board.db'}")
    assert run(capsys, "submit", written(tmp_path / "a", name="no number in it"))[0] == 0
    from leaderboard.board import queue
    from leaderboard.database.engine import connect

    engine = connect(f"sqlite:///{tmp_path / 'board.db'}")
    queue.fail(engine, queue.claim(engine, "w"), "the disk was full", retry=False)
    engine.dispose()
    assert "last error: the disk was full" in run(capsys, "status", 1)[1]
    assert run(capsys, "retry", 1)[1] == "submission 1: queued\n"
    status, _, err = run(capsys, "retry", 1)
    assert status == 2
    assert "only a failed verification can be retried" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status",), "--database: missing; give --database sqlite:///board.db"),
        (("status", "--database", "board.db"), "not a URL"),
        (("status", "777", "--database", "sqlite:///{}/board.db"), "submission 777: it does not exist"),
        (("account", "add", "Ada", "--database", "sqlite:///{}/no/where/board.db"), "unable to open database file"),
        (("worker", "--verify", "nonsense", "--database", "sqlite:///{}/board.db"), "write MODULE:FUNCTION"),
        (("worker", "--verify", "no.such:thing", "--database", "sqlite:///{}/board.db"), "No module named"),
        (("export", "a.txt", "--env", "Digits-ALMA-v0", "--database", "sqlite:///{}/board.db"), "csv, json, parquet"),
        (("export", "a.xls", "--env", "Digits-ALMA-v0", "--url", "http://127.0.0.1:9"), "csv, json, parquet"),
        (("status", "--latest", "0", "--database", "sqlite:///{}/board.db"), "--latest 0: must be 1 to 200"),
        (
            ("status", "7", "--latest", "20", "--database", "sqlite:///{}/board.db"),
            "only the list has a length; leave --latest out",
        ),
        (
            ("verify", "{}", "--database", "sqlite:///{}/board.db"),
            "a database has numbers of submissions; leave",
        ),
        (("serve", "--verify", "nonsense", "--database", "sqlite:///{}/board.db"), "write MODULE:FUNCTION"),
        (("status", "--latest", "201", "--database", "sqlite:///{}/board.db"), "--latest 201: must be 1 to 200"),
        (
            ("retry", "7", "--url", "http://127.0.0.1:9", "--database", "sqlite:///b.db"),
            "--database with --url http://127.0.0.1:9: a board on the web has its own database; leave --database out",
        ),
        (
            ("review", "7", "--accept", "--reason", "r", "--account", "Mia", "--url", "http://127.0.0.1:9"),
            "--account with --url http://127.0.0.1:9: the board uses that of the token; leave --account out",
        ),
        (("submit", "a", "--wait", "--database", "sqlite:///{}/board.db"), "--wait: works only with --url"),
    ],
)
def test_a_mistake_gives_one_message(capsys, tmp_path, arguments, message):
    assert run(capsys, "baselines", "--queue", "--database", f"sqlite:///{tmp_path}/board.db")[0] == 0
    status, _, err = run(capsys, *(argument.format(tmp_path) for argument in arguments))
    assert status == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("lease", ["0", "nan", "inf", "86401"])
def test_a_lease_that_never_ends_or_never_begins_is_refused(capsys, tmp_path, lease):
    at = ("--database", f"sqlite:///{tmp_path}/board.db")
    assert run(capsys, "account", "add", "Ada", *at)[0] == 0
    status, _, err = run(capsys, "worker", "--verify", "fake_verify:verify", "--until-empty", "--lease", lease, *at)
    assert status == 2
    assert "must be 1 to 86400 seconds; use --lease 60" in err


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("verify",),
        ("retry",),
        ("review", "--accept", "--reason", "good", "--account", "Ada"),
        ("token", "revoke"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("id", ["0", str(LARGEST_ID + 1), "9" * 20, "9" * 5_000])
def test_an_impossible_id_is_refused(capsys, words, id):
    with pytest.raises(SystemExit) as ended:
        main([*words, id, "--database", "sqlite:///board.db"])
    assert ended.value.code == 2
    assert f"{id}: must be a number from 1 to 2147483647; copy the id from a list" in capsys.readouterr().err


def test_a_board_is_served_without_baselines_if_their_account_cannot_send_them(capsys, tmp_path, monkeypatch, caplog):
    at = ("--database", f"sqlite:///{tmp_path}/board.db")
    assert run(capsys, "account", "add", "A1ma-env", "--role", "maintainer", *at)[0] == 0
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    status, out, _ = run(capsys, "serve", "--port", "0", *at)
    assert status == 0
    assert "the board is at http://127.0.0.1:" in out
    assert "the baselines are not added, because their account cannot send them" in caplog.text


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "7"),
        ("export", "board.csv", "--env", "Digits-ALMA-v0"),
        ("verify", "7"),
        ("worker", "--verify", "fake_verify:verify", "--until-empty"),
        ("retry", "7"),
        ("review", "7", "--accept", "--reason", "good", "--account", "Ada"),
        ("account", "list"),
        ("account", "disable", "Ada"),
        ("token", "make", "Ada"),
        ("token", "list", "Ada"),
        ("token", "revoke", "7"),
        ("baselines", "--record", "/dev/null"),
        ("upgrade",),
    ],
    ids=" ".join,
)
def test_a_mistyped_database_is_refused_and_not_created(capsys, tmp_path, words):
    status, _, err = run(capsys, *words, "--database", f"sqlite:///{tmp_path / 'mistyped.db'}")
    assert status == 2
    assert "mistyped.db; correct the name, or begin a new board with" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["servee"], "did you mean serve?"),
        (["serve", "--prot", "80"], "did you mean --port"),
        (["account", "ad"], "did you mean add?"),
    ],
)
def test_a_wrong_word_is_answered_with_similar_words(capsys, words, hint):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


def test_bash_completes_the_commands_and_options(capsys):
    pytest.importorskip("shtab")
    status, script, _ = run(capsys, "completion", "bash")
    assert status == 0
    for word in ("alma-leaderboard", "baselines", "--until-empty", "Digits-ALMA-v0"):
        assert word in script


def test_verify_must_name_a_function_that_can_be_imported():
    assert load_verify("fake_verify:verify").__name__ == "verify"
    for spec in ("fake_verify", ":verify", "fake_verify:", "fake_verify:nothing", "fake_verify:__name__"):
        with pytest.raises(ValueError, match="write MODULE:FUNCTION"):
            load_verify(spec)


def test_documented_names_from_before_the_rooms_still_resolve():
    import leaderboard.sandbox
    import leaderboard.verification

    assert load_verify("leaderboard.verify:verify") is load_verify(DEFAULT_VERIFY)
    assert leaderboard.verification.Verify is leaderboard.verification.result.Verifier
    assert leaderboard.sandbox.Limits is leaderboard.sandbox.sandbox.Limits


def test_init_and_check_work_without_the_extra_web(tmp_path):
    """Simulate `pip install alma-env` without the extra `web`."""
    code = (
        "import sys\n"
        "for name in ('sqlalchemy', 'alembic', 'psycopg', 'pyarrow'): sys.modules[name] = None\n"
        "from leaderboard.cli import main\n"
        f"assert main(['init', {str(tmp_path / 'a')!r}]) == 0\n"
        f"assert main(['check', {str(tmp_path / 'a')!r}]) == 0\n"
        f"sys.exit(main(['submit', {str(tmp_path / 'a')!r}, '--database', 'sqlite:///board.db']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    assert how_to_install("web") in done.stderr
