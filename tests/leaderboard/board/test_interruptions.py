"""A start that ends without a verdict is no attempt of the submission: a killed worker, a full disk, damaged files."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from alma_env.errors import DataUnavailableError
from leaderboard.board import jobs, queue, scratch
from leaderboard.board.details import details, public
from leaderboard.board.submissions import package_of as stored_package
from leaderboard.board.submissions import submit
from leaderboard.board.worker import work
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Event, Submission
from leaderboard.errors import DamagedError
from leaderboard.sandbox.sandbox import SandboxError
from leaderboard.submission import manifest as manifests
from leaderboard.verification.judge import EvaluatorError

from ..conftest import package_of, verification_of
from .stored_jobs import end_leases_and_pauses, job_of


def manifest_of(**changes) -> dict[str, object]:
    return manifests.parse(package_of(**changes).files["submission.toml"]).to_dict()


def test_the_death_of_workers_is_no_attempt_of_the_submission(engine):
    sent = submit(engine, package_of()).id
    for number in range(1, jobs.MAXIMUM_ATTEMPTS + 2):
        assert queue.claim(engine, f"w{number}").attempt == number
        assert job_of(engine, sent).attempts == 1
        end_leases_and_pauses(engine)
        if number > 1:
            assert queue.claim(engine, "too early") is None  # the death is counted; the pause begins
            end_leases_and_pauses(engine)
    queue.finish(engine, queue.claim(engine, "last"), verification_of())
    assert details(engine, sent).state == "verified"


def test_the_pauses_after_interruptions_grow(engine):
    sent = submit(engine, package_of()).id
    pauses = []
    for _ in range(4):
        queue.interrupt(engine, queue.claim(engine, "w"), "no room", pause_seconds=10)
        with reading(engine) as session:
            pauses.append((job_of(engine, sent).available_at - now(session)).total_seconds())
        end_leases_and_pauses(engine)
    assert [round(pause, -1) for pause in pauses] == [0, 20, 40, 80]


@pytest.mark.parametrize(
    "fault",
    [
        *(OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.ENOMEM, errno.EMFILE)),
        DataUnavailableError("MNIST: files are missing"),
        SandboxError("no isolation on this machine"),
        EvaluatorError("the evaluator did not start"),
    ],
    ids=repr,
)
def test_a_fault_of_the_machine_is_no_attempt_of_the_submission(engine, fault):
    sent = submit(engine, package_of()).id
    calls = []

    def unlucky(package, manifest, progress):
        calls.append(1)
        if len(calls) <= jobs.MAXIMUM_ATTEMPTS + 1:
            raise RuntimeError("it stopped") from fault
        return verification_of()

    assert work(engine, unlucky, poll_seconds=0.01, backoff_seconds=0.0, until_empty=True) == 1
    assert (job_of(engine, sent).state, job_of(engine, sent).attempts) == ("finished", 1)
    assert job_of(engine, sent).interruptions == jobs.MAXIMUM_ATTEMPTS + 1


def exchange_files(engine, submission_id, archive: bytes) -> None:
    with writing(engine) as session:
        session.execute(update(Submission).where(Submission.id == submission_id).values(package=archive))


@pytest.mark.parametrize(
    "archive", [package_of("def make_agent(env):\n    return 1\n").to_zip(), b"", b"PK", package_of().to_zip()[:-40]]
)
def test_files_that_are_not_those_that_were_sent_are_not_verified(engine, archive):
    damaged, whole = (submit(engine, package_of(name=f"number {number}")).id for number in (1, 2))
    exchange_files(engine, damaged, archive)
    seen = []

    def look(package, manifest, progress):
        seen.append(manifest.name)
        return verification_of()

    assert work(engine, look, until_empty=True) == 1
    assert seen == ["number 2"]
    found = public(details(engine, damaged))
    assert (found.state, found.attempts, found.published) == ("held", 0, False)
    (event,) = (event for event in found.events if event.kind == "damaged")
    assert f"submission {damaged}: its stored files" in event.text
    assert details(engine, whole).published
    with reading(engine) as session, pytest.raises(DamagedError, match="its stored files"):
        stored_package(session, damaged)
    # With the files of a backup the verification goes on.
    exchange_files(engine, damaged, package_of(name="number 1").to_zip())
    queue.retry(engine, damaged)
    assert work(engine, look, until_empty=True) == 1
    assert details(engine, damaged).state == "verified"


@pytest.mark.parametrize(
    "change",
    [
        {"env_id": "MNIST-ALMA-v0"},
        {"method": "ens"},
        {"name": "another"},
        {"waiting_time": 7},
        {"manifest": manifest_of(seeds=[3, 4, 5])},
        {"manifest": manifest_of(env="MNIST-ALMA-v0")},
    ],
)
def test_a_row_that_does_not_say_what_its_files_say_is_not_verified(engine, change):
    sent = submit(engine, package_of()).id
    with writing(engine) as session:
        session.execute(update(Submission).where(Submission.id == sent).values(**change))
    assert work(engine, lambda *_: pytest.fail("it was verified"), until_empty=True) == 0
    assert details(engine, sent).state == "held"


def test_a_held_submission_waits_for_a_maintainer_and_its_log_says_so(engine):
    sent = submit(engine, package_of()).id
    for _ in range(jobs.MAXIMUM_INTERRUPTIONS):
        queue.interrupt(engine, queue.claim(engine, "w"), "no room")
        end_leases_and_pauses(engine)
    assert queue.claim(engine, "w") is None
    found = public(details(engine, sent))
    assert (found.state, found.attempts, found.interruptions) == ("held", 0, jobs.MAXIMUM_INTERRUPTIONS)
    assert "8 starts ended without a verdict" in found.events[-1].text
    with reading(engine) as session:
        assert "failed" not in set(session.scalars(select(Event.kind)))


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_held_job_with_a_damaged_row_can_be_queued_again(engine):
    sent = submit(engine, package_of()).id
    damage = text("UPDATE jobs SET available_at = '-'")
    with writing(engine) as session:
        session.execute(damage)
    assert queue.claim(engine, "w") is None
    assert details(engine, sent).state == "held"
    with writing(engine) as session:
        session.execute(damage)
    queue.retry(engine, sent)
    queue.finish(engine, queue.claim(engine, "w"), verification_of())
    assert details(engine, sent).state == "verified"


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_the_folder_of_a_killed_worker_is_removed_by_the_next_one(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent = submit(engine, package_of(name="number 1")).id
    child = os.fork()
    if child == 0:
        try:
            work(engine, _leave_files, lease_seconds=60.0)
        finally:
            os._exit(0)
    folder = _wait_for_folder(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (folder / "left" / "weights").exists()
    assert os.stat(folder).st_mode & 0o777 == 0o711
    end_leases_and_pauses(engine)
    assert work(engine, lambda *_: verification_of(), until_empty=True) == 1
    assert details(engine, sent).state == "verified"
    assert list(tmp_path.glob(f"{scratch.PREFIX}*")) == []


def _leave_files(package, manifest, progress):
    folder = Path(tempfile.gettempdir()) / "left"
    folder.mkdir()
    (folder / "weights").write_bytes(bytes(1000))
    time.sleep(600)


def _wait_for_folder(where: Path) -> Path:
    end = time.monotonic() + 300
    while not (found := list(where.glob(f"{scratch.PREFIX}*/left/weights"))):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found[0].parent.parent


def test_the_folder_of_a_living_worker_and_foreign_folders_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "other").mkdir()
    (tmp_path / f"{scratch.PREFIX}new").mkdir()  # its owner has not made the lock yet
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(tmp_path / "other")
    with scratch.folder_of_this_process() as folder, scratch.folder_of_this_process() as same:
        assert folder == same == Path(tempfile.gettempdir())
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        scratch.remove_abandoned()
        assert folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"{scratch.PREFIX}link", f"{scratch.PREFIX}new", "other")
    ]
    assert tempfile.gettempdir() == str(tmp_path)
