"""The user that servers run as who refuse to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path


def _lesser() -> pwd.struct_passwd | None:
    """A user who is not root; none where we are not root ourselves."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


_LESSER = _lesser()

AS_LESSER: tuple[str, ...] = (
    ("setpriv", f"--reuid={_LESSER.pw_uid}", f"--regid={_LESSER.pw_gid}", "--clear-groups") if _LESSER else ()
)
"""What comes before a command, for it to run as that user."""


def give(path: Path) -> None:
    """Make a file or folder that user's."""
    if _LESSER:
        shutil.chown(path, _LESSER.pw_uid, _LESSER.pw_gid)
