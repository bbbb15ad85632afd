"""Before a run, all files that sandboxes share are in memory."""

from __future__ import annotations

import os
import sys

import pytest

from leaderboard.sandbox import page_cache, view
from leaderboard.sandbox.page_cache import read_shared_files, reset_file_caches
from leaderboard.submission import static_check
from leaderboard.verification import verify


def test_every_file_that_a_sandbox_sees_is_read_except_for_hidden_ones(tmp_path, monkeypatch, recwarn):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "hidden").mkdir()
    for file in ("one", "a/two", "a/b/three", "hidden/four"):
        (tmp_path / file).write_text("content")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(page_cache, "visible_folders", lambda: {"/inside": tmp_path, "/gone": tmp_path / "gone"})
    (tmp_path / "hidden" / "program").touch()
    monkeypatch.setattr(page_cache, "shared_programs", lambda: [tmp_path / "hidden" / "program"])
    monkeypatch.setattr(page_cache, "unused_folders", lambda: [tmp_path / "hidden"])
    seen = []
    real = page_cache._read
    monkeypatch.setattr(page_cache, "_read", lambda file, room: seen.append(file) or real(file, room))
    read_shared_files()
    assert sorted(seen) == sorted(
        str(tmp_path / name) for name in ("one", "a/two", "a/b/three", "empty", "hidden/program")
    )
    assert not recwarn


def test_who_may_not_reset_the_names_still_reads_the_files(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(page_cache, "read_shared_files", lambda: calls.append("read"))
    for file in (tmp_path / "missing" / "file", tmp_path):
        monkeypatch.setattr(page_cache, "FORGET", file)
        reset_file_caches()
    assert calls == ["read", "read"]


def test_files_that_do_not_fit_into_memory_give_a_warning(monkeypatch):
    monkeypatch.setattr(page_cache, "SHARE_OF_MEMORY", 0.0)
    with pytest.warns(RuntimeWarning, match="do not fit into .* of the memory, so a run can find out"):
        read_shared_files()


def test_the_interpreter_and_the_packages_are_among_the_shared_files():
    visible = view.visible_folders().values()
    for file in (os.path.realpath(sys.executable), os.path.realpath(os.__file__), view.__file__, pytest.__file__):
        assert any(os.path.realpath(file).startswith(f"{folder}/") for folder in visible)


def test_a_verification_resets_the_caches_before_a_run(monkeypatch, package):
    calls = []

    def run(*arguments, **settings):
        calls.append("run")
        raise InterruptedError

    monkeypatch.setattr(verify, "reset_file_caches", lambda: calls.append("reset"))
    monkeypatch.setattr(verify, "run_sandboxed", run)
    with pytest.raises(InterruptedError):
        verify.verify(package, static_check.check(package).manifest)
    assert calls == ["reset", "run"]
