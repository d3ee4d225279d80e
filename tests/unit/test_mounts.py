"""Which file system a path lies on, and what that means for locks and durability."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from sfn.mounts import Mount, mount_of, mounts
from sfn.wiring.places import local_locks
from tests.unit.settings_ground import CATALOG, Ground

TABLE = rb"""22 1 8:1 / / rw,relatime - ext4 /dev/root rw,nolock
30 22 0:40 / /lake rw - nfs server:/lake rw,vers=3,nolock,local_lock=all,addr=10.0.0.1
31 30 0:41 / /lake/four rw shared:7 - nfs4 server:/four rw,vers=4.2,local_lock=none,addr=10.0.0.1
32 30 0:42 / /lake/old\040ones rw - nfs server:/old rw,vers=3,nolock
33 30 0:43 / /lake/\xff rw - nfs server:/odd rw,local_lock=flock
""".replace(rb"\xff", b"\xff")


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


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
    "kind",
    [
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "virtiofs",
        "9p",
    ],
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
