"""Where the inbox's file is mounted: whether SQLite's other files, beside it, live as long as it does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfn.errors import Broken

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_REMOTE: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "glusterfs", "nfs", "nfs4", "smb3"}
)
"""File systems that another machine may write, and whose locks and shared memory do not reach there."""
_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
_LAYERS: Final = frozenset({"aufs", "fuse.fuse-overlayfs", "overlay"})


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system, or a file or folder of one.

    Attributes:
        point: where it is seen.
        kind: of the file system, such as `ext4`.
    """

    point: str
    kind: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an inbox may not live long, or not work, where it is.

    Attributes:
        found: what is there.
        remedy: what to do.
    """

    found: str
    remedy: str


def mounts(table: Path = MOUNTS) -> list[Mount]:
    """All mounts that this process sees, the later ones above the earlier; [] where the system has no such list."""
    try:
        lines = table.read_bytes().decode(errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # proc_pid_mountinfo(5): the mount point is the fifth field, the type the first one after the separator.
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) > 4:  # noqa: PLR2004 - as above
            found.append(Mount(_ESCAPED.sub(lambda each: chr(int(each[1], 8)), fields[4]), kinds[0]))
    return found


def placed(database: Path, table: Path = MOUNTS) -> Doubt | None:
    """What speaks against the place of a database; None for nothing. Blocks.

    SQLite keeps what was committed last in a file beside the database, and the lock against other processes lies there
    too. Where the database alone is mounted, both go with the container, and so do events that were acknowledged.

    Args:
        database: its real path.
        table: the list of mounts.

    Raises:
        Broken: the database itself is a mount point.
    """
    known = mounts(table)
    if any(mount.point == str(database) for mount in known):
        raise Broken(
            str(database),
            expected="an inbox whose folder is mounted",
            found="a file that is mounted alone: SQLite's log beside it would go with the container",
            remedy=f"mount a folder (a volume at {database.parent}) in place of the file",
        )
    # Of two mounts at one point the later one is seen.
    holding = [mount for mount in reversed(known) if database.is_relative_to(mount.point)]
    mount = max(holding, key=lambda each: len(each.point), default=None)
    if mount is None:
        return None
    place = f"{database.parent} lies on {mount.kind} (mounted at {mount.point})"
    if mount.kind in _REMOTE:
        return Doubt(f"{place}: SQLite is not safe on network file systems", "use a local disk, or PostgreSQL")
    if mount.kind in _MEMORY:
        return Doubt(f"{place}: it is empty after a restart of the machine or the container", "use a disk")
    if mount.kind in _LAYERS:
        return Doubt(f"{place}: it goes with the container", f"mount a volume at {database.parent}")
    return None
