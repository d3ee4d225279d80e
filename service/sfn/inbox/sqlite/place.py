"""Where the inbox's file lies: whether SQLite's other files, beside it, live as long as it does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sfn.errors import FatalError
from sfn.mounts import MOUNTS, mount_of, mounts


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an inbox may not live long, or not work, where it is.

    Attributes:
        found: what is there.
        remedy: what to do.
    """

    found: str
    remedy: str


def placed(database: Path, table: Path = MOUNTS) -> Doubt | None:
    """What speaks against the place of a database; None for nothing. Blocks.

    SQLite keeps what was committed last in a file beside the database, and the lock against other processes lies there
    too. Where the database alone is mounted, both go with the container, and so do events that were acknowledged.

    Args:
        database: its real path.
        table: the list of mounts.

    Raises:
        FatalError: the database itself is a mount point.
    """
    known = mounts(table)
    if any(mount.point == str(database) for mount in known):
        raise FatalError(
            str(database),
            expected="a mounted folder that holds the inbox",
            found="a single mounted file: SQLite's log beside the file would be lost with the container",
            remedy=f"mount a folder (a volume at {database.parent}) in place of the file",
        )
    mount = mount_of(database, known)
    if mount is None:
        return None
    place = f"{database.parent} lies on {mount.kind} (mounted at {mount.point})"
    if mount.is_remote:
        return Doubt(f"{place}: SQLite is not safe on network file systems", "use a local disk, or PostgreSQL")
    if mount.is_memory:
        return Doubt(f"{place}: it is empty after a restart of the machine or the container", "use a disk")
    if mount.is_layer:
        return Doubt(f"{place}: it goes with the container", f"mount a volume at {database.parent}")
    return None
