"""The mount of an inbox file and the file system of a path."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from sfn.app import wiring
from sfn.app.storage import local_locks
from sfn.errors import FatalError
from sfn.inbox.sqlite import placed
from sfn.mounts import Mount, mount_of, mounts
from sfn.settings.root import Settings
from tests.support.settings_file import CATALOG, Ground

DATABASE = Path("/var/lib/sfn/inbox.db")


def table(tmp_path: Path, *mounts: tuple[str, str]) -> Path:
    """A list of mounts, as the kernel writes it."""
    lines = [
        f"{number} 1 0:{number} /some/root {point} rw,relatime shared:1 master:2 - {kind} none rw"
        for number, (point, kind) in enumerate((("/", "ext4"), *mounts), start=30)
    ]
    file = tmp_path / "mountinfo"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("also", [[], [("/var/lib/sfn", "ext4")]], ids=["alone", "with its folder"])
def test_a_file_that_is_a_mount_point_is_refused(tmp_path: Path, also: list[tuple[str, str]]) -> None:
    mounts = table(tmp_path, *also, ("/var/lib/sfn/inbox.db", "ext4"))
    with pytest.raises(FatalError, match=r"a single mounted file.*mount a folder \(a volume at /var/lib/sfn\)"):
        placed(DATABASE, mounts)


@pytest.mark.parametrize(
    ("escaped", "name"),
    [(b"my\\040inbox.db", b"my inbox.db"), (b"\xff.db", b"\xff.db"), ("a\u2028\x85.db".encode(),) * 2],
)
def test_an_odd_name_of_a_mount_point_is_recognised(tmp_path: Path, escaped: bytes, name: bytes) -> None:
    file = table(tmp_path)
    file.write_bytes(file.read_bytes() + b"31 30 0:31 / /var/" + escaped + b" rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(FatalError, match="single mounted file"):
        placed(Path(os.fsdecode(b"/var/" + name)), file)


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        ([], None),
        ([("/var/lib/sfn", "xfs")], None),
        ([("/var/lib/sfn/inbox.db.bak", "xfs")], None),
        ([("/", "overlay")], "goes with the container"),
        ([("/", "overlay"), ("/var/lib/sfn", "ext4")], None),
        ([("/var", "tmpfs")], "empty after a restart"),
        ([("/var", "ext4"), ("/var", "tmpfs")], "empty after a restart"),
        ([("/var/lib", "nfs4")], "not safe on network file systems"),
        ([("/var/lib", "cifs")], "not safe on network file systems"),
        ([("/var/lib", "9p")], "not safe on network file systems"),
        ([("/var/lib", "fakeowner")], "not safe on network file systems"),
        ([("/var/lib", "fuse.rclone")], "not safe on network file systems"),
        ([("/", "fuse.fuse-overlayfs")], "goes with the container"),
        ([("/var/lib/s", "nfs4")], None),
    ],
)
def test_a_file_system_that_does_not_keep_an_inbox_is_named(
    tmp_path: Path, mounts: list[tuple[str, str]], found: str | None
) -> None:
    doubt = placed(DATABASE, table(tmp_path, *mounts))
    assert (doubt is None) == (found is None)
    if doubt is not None and found is not None:
        assert doubt.found.startswith("/var/lib/sfn lies on ")
        assert found in doubt.found
        assert doubt.remedy


def test_a_system_without_a_list_of_mounts_is_not_judged(tmp_path: Path) -> None:
    assert placed(DATABASE, tmp_path / "none") is None


TABLE = rb"""22 1 8:1 / / rw,relatime - ext4 /dev/root rw,nolock
30 22 0:40 / /lake rw - nfs server:/lake rw,vers=3,nolock,local_lock=all,addr=10.0.0.1
31 30 0:41 / /lake/four rw shared:7 - nfs4 server:/four rw,vers=4.2,local_lock=none,addr=10.0.0.1
32 30 0:42 / /lake/old\040ones rw - nfs server:/old rw,vers=3,nolock
33 30 0:43 / /lake/\xff rw - nfs server:/odd rw,local_lock=flock
""".replace(rb"\xff", b"\xff")


@pytest.fixture(name="table")
def fixture_table(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_bytes(TABLE)
    return file


@pytest.mark.parametrize(
    ("path", "option"),
    [
        (b"/lake/t", "nolock"),
        (b"/lake", "nolock"),
        (b"/lake/four/t", None),
        (b"/lake/old ones/t", "nolock"),
        (b"/lake/\xff/t", "local_lock=flock"),
        (b"/lakeside/t", None),
        (b"/", None),
    ],
)
def test_a_mount_that_keeps_the_locks_of_nfs_to_one_host_is_known(table: Path, path: bytes, option: str | None) -> None:
    mount = mount_of(PurePath(os.fsdecode(path)), mounts(table))
    assert mount is not None
    assert mount.local_locks == option


def test_of_several_mounts_at_one_point_the_last_is_seen() -> None:
    known = [Mount("/", "ext4"), Mount("/lake", "nfs"), Mount("/lake", "xfs"), Mount("/", "overlay")]
    assert mount_of(PurePath("/lake/t"), known) == known[2]
    assert mount_of(PurePath("/t"), known) == known[3]
    assert mount_of(PurePath("/t"), []) is None


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "virtiofs", "9p"]
)
def test_a_file_system_of_another_machine_is_known_by_its_kind(kind: str) -> None:
    assert Mount("/lake", kind).is_remote


@pytest.mark.parametrize("kind", ["fuse", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs"])
def test_a_file_system_of_a_program_is_remote(kind: str) -> None:
    assert Mount("/lake", kind).is_remote


@pytest.mark.parametrize("source", ["server:/lake", "[fe80::1]:/lake", "10.0.0.1:/", "//server/share"])
def test_a_source_that_names_a_host_is_remote_whatever_its_kind(source: str) -> None:
    assert Mount("/lake", "newfs", source).is_remote


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("ext4", "/dev/disk/by-path/pci-0000:00:1f.2"),
        ("zfs", "tank/lake"),
        ("xfs", "none"),
        ("fuseblk", "/dev/sda1"),
        ("overlay", "overlay"),
        ("fuse.fuse-overlayfs", "fuse-overlayfs"),
        ("tmpfs", "tmpfs"),
    ],
)
def test_a_local_file_system_is_not_remote(kind: str, source: str) -> None:
    assert not Mount("/lake", kind, source).is_remote


def test_a_start_learns_of_every_mount_of_a_store_that_locks_on_one_host(ground: Ground, table: Path) -> None:
    """Also of those below the store's prefix, where tables may lie."""
    settings = ground.load(f'{CATALOG}[stores.lake]\nprefix = "/lake"\n[stores.s]\nprefix = "/lake/four"\n')
    assert list(local_locks(settings, table)) == [
        ("lake", "/lake", "nolock"),
        ("lake", "/lake/old ones", "nolock"),
        ("lake", os.fsdecode(b"/lake/\xff"), "local_lock=flock"),
    ]


def test_a_store_whose_links_lead_in_a_circle_keeps_no_other_from_starting(
    ground: Ground, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    settings = ground.load(
        f'{CATALOG}[stores.circle]\nprefix = "{tmp_path}/circle"\n[stores.old]\nprefix = "/lake/old ones"\n'
    )
    assert list(local_locks(settings, table)) == [("old", "/lake/old ones", "nolock")]


async def test_a_mount_that_never_answers_is_left_behind(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the start waits for it, nor the end of the process."""
    answers, asked = threading.Event(), threading.Event()

    def hanging(_: Settings) -> Iterator[tuple[str, str, str]]:
        asked.set()
        answers.wait()
        yield from ()

    monkeypatch.setattr(wiring, "local_locks", hanging)
    monkeypatch.setattr(wiring, "_MOUNTS_TIMEOUT", 0.01)
    before = set(threading.enumerate())
    await wiring._warn_of_local_locks(ground.load(CATALOG))  # noqa: SLF001 - the start itself takes a database
    left = set(threading.enumerate()) - before
    assert asked.wait(10.0)
    answers.set()
    assert left
    assert all(thread.daemon for thread in left)
