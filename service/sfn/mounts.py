"""The mounts of this process: the file system of a path, and what that means for locks and durability."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_POINT: Final = 4
"""Index of the field of the mount point (proc_pid_mountinfo(5)). Optional fields follow, and a hyphen ends them."""
_LAYERS: Final = frozenset({"aufs", "fuse.fuse-overlayfs", "fuse.unionfs", "overlay"})
"""File systems of containers: layers over the host's disk."""
_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
_REMOTE: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|fakeowner|fuse|fuse\..+|glusterfs|gpfs|lustre|nfs[0-9]*|orangefs|prl_fs|pvfs2|smb[0-9]*|smbfs"
    r"|vboxsf|virtiofs|vmhgfs"
)
"""File systems that another machine or a program serves: locks and shared memory may not work across them.
Docker Desktop mounts folders of the host as `fakeowner`."""
_SERVED: Final = re.compile(r"//.+|(\[[^]]+\]|[^/\[\]]+):/.*", re.DOTALL)
"""Sources that contain a host."""
_ON_ONE_HOST: Final = frozenset({"nolock", "local_lock=flock", "local_lock=all"})
"""NFS options that keep `flock` locks on the host."""
LOCAL_LOCKS_PROBLEM: Final = "locks hold on one host alone"
LOCAL_LOCKS_REMEDY: Final = "mount it without that option, or let only the processes of one host work on its tables"
"""Problem and remedy of such a mount."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system, or a file or folder of one.

    Attributes:
        point: the path of the mount point. Bytes that are not UTF-8 are lone surrogates, as in all paths of Python.
        kind: type of the file system, such as `ext4`.
        source: the mounted device or share, such as `/dev/sda1` or `server:/lake`.
        options: options of the file system, such as `local_lock=all`.
    """

    point: str
    kind: str
    source: str = "none"
    options: tuple[str, ...] = ()

    @property
    def is_layer(self) -> bool:
        """True if the files are lost with a container."""
        return self.kind in _LAYERS

    @property
    def is_memory(self) -> bool:
        """True if the files are lost at a restart."""
        return self.kind in _MEMORY

    @property
    def is_remote(self) -> bool:
        """True if another machine, or a program, serves the files."""
        served = _REMOTE.fullmatch(self.kind) or _SERVED.fullmatch(self.source)
        return served is not None and not self.is_layer

    @property
    def local_locks(self) -> str | None:
        """The option with which an NFS mount keeps locks on its own host; None without one."""
        given = self.options if self.kind.startswith("nfs") else ()
        return next((option for option in given if option in _ON_ONE_HOST), None)


def mounts(table: Path = MOUNTS) -> list[Mount]:
    """Return all mounts that this process sees, in their order; [] if the system has no such list."""
    try:
        lines = table.read_bytes().decode(errors="surrogateescape").split("\n")
    except OSError:
        return []
    found = []
    for line in lines:
        # Spaces inside fields are octal escapes, so this is the separator.
        before, _, after = line.partition(" - ")
        fields, (kind, source, options) = before.split(" "), (*after.split(" "), "", "", "")[:3]
        if len(fields) > _POINT:
            found.append(Mount(_plain(fields[_POINT]), kind, _plain(source), tuple(options.split(","))))
    return found


def mounts_of(folder: PurePath, known: list[Mount]) -> list[Mount]:
    """Return the mount of a folder and the mounts below the folder; the arguments are those of `mount_of`."""
    own = mount_of(folder, known)
    below = [mount for mount in known if PurePath(mount.point).is_relative_to(folder) and mount != own]
    return ([own] if own is not None else []) + below


def mount_of(path: PurePath, known: list[Mount]) -> Mount | None:
    """Return the mount of a path: the deepest one, and the last of several at one point.

    Args:
        path: absolute, without links.
        known: the result of `mounts`.
    """
    holding = [mount for mount in reversed(known) if path.is_relative_to(mount.point)]
    return max(holding, key=lambda mount: len(mount.point), default=None)


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda each: chr(int(each[1], 8)), field)
