"""The mounts that this process sees: which file system a path lies on, and what that means for locks and durability."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_POINT: Final = 4
"""The field of the mount point (proc_pid_mountinfo(5)), from 0. Optional fields follow, and a hyphen ends them."""
_LAYERS: Final = frozenset({"aufs", "fuse.fuse-overlayfs", "fuse.unionfs", "overlay"})
"""File systems of containers: layers over the host's disk."""
_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
_REMOTE: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|fuse|fuse\..+|glusterfs|gpfs|lustre|nfs[0-9]*|orangefs|prl_fs|pvfs2|smb[0-9]*|smbfs"
    r"|vboxsf|virtiofs|vmhgfs"
)
"""Kinds of file systems that another machine or a program serves: locks and shared memory may not reach there."""
_SERVED: Final = re.compile(r"//.+|(\[[^]]+\]|[^/\[\]]+):/.*", re.DOTALL)
"""Sources that name a host."""
_ON_ONE_HOST: Final = frozenset({"nolock", "local_lock=flock", "local_lock=all"})
"""Options of NFS that keep the locks of `flock` to the host."""
LOCAL_LOCKS_PROBLEM: Final = "locks hold on one host alone"
LOCAL_LOCKS_REMEDY: Final = "mount it without, or have the processes of one host alone work on its tables"
"""What is said of such a mount, and the remedy."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system, or a file or folder of one.

    Attributes:
        point: the path of the mount point. Bytes that are no UTF-8 are lone surrogates, as in all paths of Python.
        kind: of the file system, such as `ext4`.
        source: what is mounted, such as `/dev/sda1` or `server:/lake`.
        options: of the file system, such as `local_lock=all`.
    """

    point: str
    kind: str
    source: str = "none"
    options: tuple[str, ...] = ()

    @property
    def is_layer(self) -> bool:
        """Return True if the files go with a container."""
        return self.kind in _LAYERS

    @property
    def is_memory(self) -> bool:
        """Return True if the files go with a restart."""
        return self.kind in _MEMORY

    @property
    def is_remote(self) -> bool:
        """Return True if another machine, or a program, serves the files."""
        served = _REMOTE.fullmatch(self.kind) or _SERVED.fullmatch(self.source)
        return served is not None and not self.is_layer

    @property
    def local_locks(self) -> str | None:
        """Return the option by which a mount of NFS keeps locks to its own host; None without one."""
        given = self.options if self.kind.startswith("nfs") else ()
        return next((option for option in given if option in _ON_ONE_HOST), None)


def mounts(table: Path = MOUNTS) -> list[Mount]:
    """Return all mounts that this process sees, in their order; [] where the system has no such list."""
    try:
        lines = table.read_bytes().decode(errors="surrogateescape").split("\n")
    except OSError:
        return []
    found = []
    for line in lines:
        # Spaces in fields are octal escapes, so this is the separator.
        before, _, after = line.partition(" - ")
        fields, (kind, source, options) = before.split(" "), (*after.split(" "), "", "", "")[:3]
        if len(fields) > _POINT:
            found.append(Mount(_plain(fields[_POINT]), kind, _plain(source), tuple(options.split(","))))
    return found


def mounts_of(folder: PurePath, known: list[Mount]) -> list[Mount]:
    """Return the mount that a folder lies on and those below the folder; arguments are those of `mount_of`."""
    own = mount_of(folder, known)
    below = [mount for mount in known if PurePath(mount.point).is_relative_to(folder) and mount != own]
    return ([own] if own is not None else []) + below


def mount_of(path: PurePath, known: list[Mount]) -> Mount | None:
    """Return the mount that a path lies on: the deepest one, and of several at one point the last.

    Args:
        path: absolute, without links.
        known: as `mounts` returns them.
    """
    holding = [mount for mount in reversed(known) if path.is_relative_to(mount.point)]
    return max(holding, key=lambda mount: len(mount.point), default=None)


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda each: chr(int(each[1], 8)), field)
