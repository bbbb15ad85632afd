"""The digest of a package, its files in a folder, and the rules for folders."""

from __future__ import annotations

import os
import socket

import pytest

from leaderboard.errors import PackageError
from leaderboard.submission.package import Package, from_folder

FILES = {"agent.py": b"def make_agent(env): ...\n", "parts/net.py": b"x = 1\n" * 50, "submission.toml": b"name = 'a'\n"}


def test_packages_with_different_paths_or_contents_have_different_digests():
    variants = [
        {"a": b"bc", "d": b""},
        {"a": b"b", "d": b"c"},
        {"ab": b"c", "d": b""},
        {"a": b"bcd"},
        {"a": b"bc", "d/d": b""},
    ]
    assert len({Package(files).digest for files in variants}) == len(variants)
    assert Package({"a": b"1", "b": b"2"}).digest == Package({"b": b"2", "a": b"1"}).digest
    # A fixed value: the digest must never change between versions.
    assert Package({"agent.py": b"x"}).digest == "2b58be7aa4f52b908cb20a4de2fab397bfa32e47c0f4cd3a496a1694a65e21c9"


def test_a_package_is_written_only_into_an_empty_folder(tmp_path):
    Package(FILES).write(tmp_path / "new")
    assert (tmp_path / "new/parts/net.py").read_bytes() == FILES["parts/net.py"]
    with pytest.raises(PackageError, match="must be empty; choose a new folder"):
        Package(FILES).write(tmp_path / "new")


def test_a_file_is_read_only_up_to_the_limit(tmp_path):
    with open(tmp_path / "agent.py", "wb") as file:
        file.truncate(2**40)  # sparse: no space on the disk, 1 TiB for a reader
    with pytest.raises(PackageError, match="larger than 8 MiB"):
        from_folder(tmp_path)


@pytest.mark.parametrize("target", ["/etc/passwd", "agent.py", "nowhere", "/etc"])
def test_symbolic_links_in_folders_are_refused(tmp_path, target):
    (tmp_path / "agent.py").touch()
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(PackageError, match="'link': a symbolic link"):
        from_folder(tmp_path)


def test_pipes_and_sockets_in_folders_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PackageError, match="'pipe': a device, pipe or socket"):
        from_folder(tmp_path)
    os.unlink(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(tmp_path / "socket"))
        with pytest.raises(PackageError, match="'socket': a device"):
            from_folder(tmp_path)


def test_deeply_nested_folders_are_refused(tmp_path):
    (tmp_path / "/".join(["deep"] * 12)).mkdir(parents=True)
    with pytest.raises(PackageError, match="more than 8 levels"):
        from_folder(tmp_path)
