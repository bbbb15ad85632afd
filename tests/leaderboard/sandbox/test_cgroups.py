"""Control groups are created with all their limits or not at all, and stale groups are removed."""

from __future__ import annotations

import os

from leaderboard.sandbox import cgroups


def test_without_the_needed_controllers_there_is_no_control_group(tmp_path, monkeypatch):
    """Version 2 of control groups, without the controllers of memory and processes."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    with cgroups.control_group("alma-test", memory=2**30, processes=10) as group:
        assert group is None
    assert not (tmp_path / "alma-test").exists()


def test_stale_groups_of_killed_workers_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    old, young, other = (tmp_path / name for name in ("alma-old", "alma-young", "system.slice"))
    for folder in (old, young, other):
        folder.mkdir()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    with cgroups.control_group("alma-test", memory=2**30, processes=10):
        assert [folder.exists() for folder in (old, young, other)] == [False, True, True]
