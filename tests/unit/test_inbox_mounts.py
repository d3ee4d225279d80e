"""Where an inbox's file is mounted: what goes with a container is refused, or warned of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfn.errors import FatalError
from sfn.inbox.sqlite import placed

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
    with pytest.raises(FatalError, match=r"a file that is mounted alone.*mount a folder \(a volume at /var/lib/sfn\)"):
        placed(DATABASE, mounts)


@pytest.mark.parametrize(
    ("escaped", "name"),
    [(b"my\\040inbox.db", b"my inbox.db"), (b"\xff.db", b"\xff.db"), ("a\u2028\x85.db".encode(),) * 2],
)
def test_an_odd_name_of_a_mount_point_is_recognised(tmp_path: Path, escaped: bytes, name: bytes) -> None:
    file = table(tmp_path)
    file.write_bytes(file.read_bytes() + b"31 30 0:31 / /var/" + escaped + b" rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(FatalError, match="mounted alone"):
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
