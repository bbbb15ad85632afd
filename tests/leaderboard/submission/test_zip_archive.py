"""A folder and its archives give equal packages, and malicious archives are refused."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import resource
import stat
import struct
import zipfile
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leaderboard.errors import PackageError
from leaderboard.submission import package as packages
from leaderboard.submission import zip_archive as archives
from leaderboard.submission.package import Package, from_folder
from leaderboard.submission.zip_archive import from_zip, read

FILES = {"agent.py": b"def make_agent(env): ...\n", "parts/net.py": b"x = 1\n" * 50, "submission.toml": b"name = 'a'\n"}


def zipped(*entries, method=zipfile.ZIP_DEFLATED, prefix="", change=lambda info: None) -> bytes:
    """Return an archive of (name, content) pairs; `change` edits each entry as an attacker would."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo(prefix + name, (2024, 5, 6, 7, 8, 10))
            info.compress_type = method
            change(info)
            archive.writestr(info, content)
    return buffer.getvalue()


def refused(content: bytes, message: str) -> None:
    with pytest.raises(PackageError, match=message):
        from_zip(content)


def test_a_folder_and_its_archives_give_equal_packages(tmp_path):
    Package(FILES).write(tmp_path / "a")
    packed = [
        from_folder(tmp_path / "a"),
        from_zip(zipped(*FILES.items())),
        from_zip(zipped(*reversed(FILES.items()), method=zipfile.ZIP_STORED, prefix="my_agent/")),
    ]
    assert all(package == Package(FILES) for package in packed)
    assert len({package.digest for package in packed}) == 1
    assert list(packed[2].files) == sorted(FILES)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.lists(st.text("abcXYZ019_.", min_size=1, max_size=6), min_size=1, max_size=4).map("/".join),
        st.binary(max_size=200),
        max_size=8,
    )
)
def test_every_package_round_trips_through_its_canonical_archive(files):
    files["submission.toml"] = b""
    try:
        package = Package(files)
    except PackageError:
        return
    if any(packages.is_left_out(name) for path in files for name in path.split("/")):
        return
    assert from_zip(package.to_zip()) == package
    assert package.to_zip() == Package(dict(reversed(files.items()))).to_zip()
    assert pickle.loads(pickle.dumps(package)) == package


def test_hidden_and_compiled_files_are_left_out_and_listed(tmp_path):
    Package(FILES).write(tmp_path)
    for path in (".git/config", "__pycache__/agent.cpython-311.pyc", "parts/.DS_Store", "old.pyc"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"secret")
    package = from_folder(tmp_path)
    assert package == Package(FILES)
    assert sorted(package.left_out) == [".git", "__pycache__", "old.pyc", "parts/.DS_Store"]
    of_a_mac = from_zip(zipped(*FILES.items(), ("__MACOSX/._agent.py", b"x"), (".DS_Store", b"x")))
    assert of_a_mac == Package(FILES)
    assert sorted(of_a_mac.left_out) == [".DS_Store", "__MACOSX/._agent.py"]


@pytest.mark.parametrize("around", ["my_agent/", "my agent (1)/", "n\u00e4ive/", "-x/"])
def test_the_folder_around_a_submission_may_have_any_name(around):
    deep = "/".join("abcdefgh")
    files = {**FILES, "submission.toml": b"", deep: b"1"}
    entries = [(around, b""), *((f"{around}{path}", content) for path, content in files.items())]
    package = from_zip(zipped(*entries, (f"{around}.ipynb_checkpoints/my notes.ipynb", b""), (f"{around}a.pyc", b"")))
    assert package == Package(files)
    assert set(package.left_out) == {f"{around}.ipynb_checkpoints/my notes.ipynb", f"{around}a.pyc"}
    refused(zipped(*entries, (f"{around}{deep}/i", b"")), "more than 8 levels deep")
    refused(zipped(*entries, (f"{around}my notes.txt", b"")), "not a portable name")


def test_read_accepts_only_a_folder_or_a_zip(tmp_path):
    Package(FILES).write(tmp_path / "folder")
    (tmp_path / "a.zip").write_bytes(zipped(*FILES.items()))
    assert read(tmp_path / "folder") == read(tmp_path / "a.zip")
    with pytest.raises(PackageError, match="neither a folder nor a file"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../evil.py", "points outside"),
        ("a/../../evil.py", "points outside"),
        ("..", "points outside"),
        ("/etc/passwd", "an absolute path"),
        ("//host/share", "absolute"),
        ("..\\evil.py", "backslash"),
        ("a\\b.py", "backslash"),
        ("C:/evil.py", "no backslash or drive"),
        ("c:evil.py", "no backslash or drive"),
        ("a//b.py", "not a portable name"),
        ("./a.py", "not a portable name"),
        ("a/./b.py", "not a portable name"),
        ("a.py.", "not a portable name"),
        ("a .py", "not a portable name"),
        ("-rf", "not a portable name"),
        ("naïve.py", "not a portable name"),
        ("a\u202eyp.py", "not a portable name"),
        ("a\n.py", "not a portable name"),
        ("$(reboot).py", "not a portable name"),
        ("<b>.py", "not a portable name"),
        ("con", "name of a device"),
        ("a/NUL.txt", "name of a device"),
        ("x" * 101, "not a portable name"),
        ("/".join(["x" * 50] * 5), "at most 200"),
        ("a/b/c/d/e/f/g/h/i", "more than 8 levels"),
    ],
)
def test_a_harmful_name_is_refused_in_archives_and_in_mappings(name, message):
    refused(zipped((name, b"evil"), ("agent.py", b"")), message)
    with pytest.raises(PackageError, match=message):
        Package({name: b"evil"})


def test_a_left_out_file_must_have_a_valid_name_too():
    refused(zipped(("agent.py", b""), ("../.git/hooks/post-checkout", b"evil")), "points outside")
    refused(zipped(("agent.py", b""), ("/.ssh/authorized_keys", b"evil")), "absolute")


def test_a_nul_in_a_name_is_refused():
    refused(zipped(("agent.pyX.txt", b"")).replace(b"agent.pyX", b"agent.py\0"), "different on another system")


def test_names_that_collide_on_another_system_are_refused():
    refused(zipped(("Agent.py", b"1"), ("agent.py", b"2")), "only in case; rename")
    refused(zipped(("Parts/a.py", b"1"), ("parts/b.py", b"2")), "only in case; rename")
    refused(zipped(("parts", b"1"), ("parts/b.py", b"2")), "a file and a folder")
    refused(zipped(("parts", b"1"), ("parts/", b"")), "a file and a folder")
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped(("agent.py", b"good"), ("agent.py", b"evil"))
    refused(twice, "two entries have this name")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, stat.S_IFDIR])
def test_links_and_devices_in_archives_are_refused(kind):
    def change(info):
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16

    refused(zipped(("agent.py", b"/etc/passwd"), change=change), "symbolic link|not a regular file or folder")


def test_a_windows_link_is_refused():
    def change(info):
        info.create_system, info.external_attr = 0, 0x400

    refused(zipped(("agent.py", b"C:"), change=change), "symbolic link")


def test_encrypted_entries_are_refused():
    content = bytearray(zipped(("agent.py", b"secret"), method=zipfile.ZIP_STORED))
    content[6] |= 1
    content[content.rfind(b"PK\x01\x02") + 8] |= 1
    refused(bytes(content), "encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_methods_other_than_deflate_are_refused(method):
    refused(zipped(("agent.py", b"0" * 1000), method=method), "only stored and deflated are allowed")


def test_a_folder_with_content_is_refused():
    refused(zipped(("a.txt", b"evil"), method=zipfile.ZIP_STORED).replace(b"a.txt", b"a.tx/"), "cannot have content")


def test_a_bomb_is_refused_before_it_is_expanded():
    bomb = zipped(("agent.py", bytes(packages.MAXIMUM_FILE_BYTES - 1)))
    assert len(bomb) < 10_000
    refused(bomb, "more than 100 times as large")


def test_a_bomb_with_a_false_size_is_refused_before_it_is_expanded():
    bomb = bytearray(zipped(("agent.py", bytes(50 * 2**20))))
    entry = bomb.rfind(b"PK\x01\x02")
    bomb[22:26] = bomb[entry + 24 : entry + 28] = struct.pack("<L", 10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(bytes(bomb), "more than 100 times as large")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # KiB


def test_content_beyond_the_stated_size_is_refused():
    content = bytearray(zipped(("agent.py", b"good" + b"evil")))
    entry = content.rfind(b"PK\x01\x02")
    content[22:26] = content[entry + 24 : entry + 28] = struct.pack("<L", 4)
    content[14:18] = content[entry + 16 : entry + 20] = struct.pack("<L", zlib.crc32(b"good"))
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as opened:
        assert opened.read("agent.py") == b"good"  # the result of a careless reader
    refused(bytes(content), "size or checksum differ")


def test_large_files_and_many_large_files_are_refused(tmp_path):
    noise = random.Random(0).randbytes(packages.MAXIMUM_FILE_BYTES + 1)
    refused(zipped(("agent.py", noise), method=zipfile.ZIP_STORED), "larger than 8 MiB")
    three = [(f"{index}.bin", noise[:-2]) for index in range(3)]
    refused(zipped(*three[:2], ("c.bin", noise[: 2**19]), method=zipfile.ZIP_STORED), "larger than 16 MiB")
    refused(zipped(*three, method=zipfile.ZIP_STORED), "larger than 17 MiB")
    for name, content in three:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PackageError, match="larger than 16 MiB"):
        from_folder(tmp_path)


def test_too_many_entries_are_refused_by_the_table_of_contents(tmp_path):
    many = zipped(*[(f"{index}.py", b"") for index in range(packages.MAXIMUM_FILES + 1)])
    refused(many, "201 files or more")
    refused(zipped(*[(f"{index}/", b"") for index in range(2 * packages.MAXIMUM_FILES + 1)]), "401 entries")
    # An archive that states fewer entries.
    end = many.rfind(b"PK\x05\x06")
    refused(many[: end + 8] + b"\1\0\1\0" + many[end + 12 :], "201 files or more")
    for index in range(packages.MAXIMUM_FILES + 1):
        (tmp_path / f"{index}.py").touch()
    with pytest.raises(PackageError, match="201 files or more"):
        from_folder(tmp_path)


def overlapping() -> bytes:
    """Return an archive whose two entries share their bytes, like zip bombs that share one compressed kernel."""
    content = zipped(("a.py", b"kernel"), method=zipfile.ZIP_STORED)
    start, end = content.rfind(b"PK\x01\x02"), content.rfind(b"PK\x05\x06")
    entry = content[start:end]
    table = entry + entry.replace(b"a.py", b"b.py")
    return content[:start] + table + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(table), start, 0)


def test_entries_that_share_bytes_are_refused():
    refused(overlapping(), "name or flags differ|shares bytes")


def test_an_entry_inside_another_entry_is_refused():
    inner = zipped(("b.py", b"x" * 100), method=zipfile.ZIP_STORED)
    outer = bytearray(zipped(("a.py", inner), method=zipfile.ZIP_STORED))
    start, end = outer.rfind(b"PK\x01\x02"), outer.rfind(b"PK\x05\x06")
    inside = bytearray(inner[inner.rfind(b"PK\x01\x02") : inner.rfind(b"PK\x05\x06")])
    inside[42:46] = struct.pack("<L", outer.find(inner))
    table = bytes(outer[start:end] + inside)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(table), start, 0)
    refused(bytes(outer[:start]) + table + last, "shares bytes")


def test_an_archive_that_is_also_another_file_is_refused():
    good = zipped(*FILES.items())
    refused(b"#!/bin/sh\nreboot\n" + good, "must begin like a zip")
    refused(good + b"trailing", "truncated|there are bytes before")
    refused(good + good, "there are bytes before")
    commented = io.BytesIO(good)
    with zipfile.ZipFile(commented, "a") as opened:
        opened.comment = b"of an archiver"
    assert from_zip(commented.getvalue()) == Package(FILES)


def replaced(archive: bytes, place: int, length: int, new: bytes) -> bytes:
    """Return an archive with new bytes instead of some at a place before its table, and with corrected offsets."""
    content = bytearray(archive[:place] + new + archive[place + length :])
    end, more = content.rfind(b"PK\x05\x06"), len(new) - length
    entry = struct.unpack_from("<L", content, end + 16)[0] + more
    struct.pack_into("<L", content, end + 16, entry)
    while entry < end:
        (offset,) = struct.unpack_from("<L", content, entry + 42)
        struct.pack_into("<L", content, entry + 42, offset + (more if offset >= place else 0))
        entry += 46 + sum(struct.unpack_from("<3H", content, entry + 28))
    return bytes(content)


@pytest.mark.parametrize("length", [1, 12, 16, 4000])
def test_bytes_between_the_entries_and_before_the_table_are_refused(length):
    good = zipped(*FILES.items())
    for place in (good.find(b"PK\x03\x04", 4), good.find(b"PK\x01\x02")):
        assert from_zip(replaced(good, place, 0, b"")) == Package(FILES)
        refused(replaced(good, place, 0, b"J" * length), "there are bytes before, between or after its parts")
    refused(replaced(good, 0, 0, b"PK\3\4" + b"J" * length), "there are bytes before, between or after its parts")


class Pipe(io.RawIOBase):
    """A file that cannot be read or rewound: zipfile writes the sizes of each entry after its content."""

    def __init__(self) -> None:
        self.content = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.content += data
        return len(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_sizes_after_the_content_of_an_entry_are_accepted_with_and_without_their_signature(method):
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", method) as archive:
        for name, content in (*FILES.items(), ("parts/", b""), ("parts/__init__.py", b"")):
            archive.writestr(name, content)
    streamed = bytes(pipe.content)
    expected = Package({**FILES, "parts/__init__.py": b""})
    assert streamed.count(b"PK\x07\x08") == 5
    assert from_zip(streamed) == expected
    short = streamed
    while (place := short.find(b"PK\x07\x08")) >= 0:
        short = replaced(short, place, 4, b"")
    assert from_zip(short) == expected
    place = streamed.find(b"PK\x07\x08")
    for wrong in (replaced(streamed, place + 16, 0, b"J"), replaced(streamed, place + 4, 4, b"JUNK")):
        refused(wrong, "there are bytes before, between or after its parts")


def test_an_entry_with_two_names_is_refused():
    content = zipped(("agent.py", b"good"), method=zipfile.ZIP_STORED)
    refused(content.replace(b"agent.py", b"bgent.py", 1), "name or flags differ")


def test_an_entry_with_a_wrong_offset_is_refused():
    content = bytearray(zipped(("agent.py", b"good"), ("b.py", b"x")))
    entry = content.find(b"PK\x01\x02")
    content[entry + 42 : entry + 46] = struct.pack("<L", 7)
    refused(bytes(content), "no entry at this offset")


def test_a_zip64_archive_is_refused():
    content = zipped(("agent.py", b"good"))
    end = content.rfind(b"PK\x05\x06")
    refused(content[:end] + struct.pack("<4sLQL", b"PK\6\7", 0, end, 1) + content[end:], "ZIP64")


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"PK\3\4", b"PK\5\6" + bytes(18), b"\x1f\x8b" + bytes(100), bytes(1000)]
)
def test_bytes_that_are_not_an_archive_are_refused(content):
    refused(content, "must begin like a zip|truncated")


def test_damaged_content_is_refused():
    content = bytearray(zipped(("agent.py", b"good " * 20)))
    content[40] ^= 0xFF
    refused(bytes(content), "cannot be decompressed|size or checksum differ")
    stored = zipped(("agent.py", b"good"), method=zipfile.ZIP_STORED)
    refused(stored.replace(b"good", b"evil"), "size or checksum differ")


_good = zipped(*FILES.items(), ("ledgers/seed-0.jsonl", b"{}" * 40))


@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.integers(0, len(_good) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(_good)),
    st.binary(max_size=30),
)
@example([], len(_good), b"")
def test_a_corrupted_archive_gives_a_package_or_a_package_error(changes, cut, tail):
    content = bytearray(_good)
    for index, value in changes:
        content[index] = value
    with contextlib.suppress(PackageError):
        assert from_zip(bytes(content[:cut] + tail)).digest


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_random_bytes_give_a_package_or_a_package_error(content):
    for candidate in (content, b"PK\3\4" + content, _good[:-30] + content):
        with contextlib.suppress(PackageError):
            assert from_zip(candidate).digest


def test_the_largest_package_fits_into_the_largest_archive():
    assert archives.MAXIMUM_ARCHIVE_BYTES >= packages.MAXIMUM_BYTES + packages.MAXIMUM_FILES * (76 + 2 * 200) + 22
