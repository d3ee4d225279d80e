"""Folders whose last change may not outlive a power cut: whoever finds such a change must not take it for done."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from sfn.errors import OutcomeUnknown
from sfn.store.paths import parent_folder
from sfn.store.refusal import outcome_unknown

_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
"""What file systems answer that know no sync of folders, as some network ones: there is nothing to wait for."""


class PendingFsyncs:
    """The folders that this process owes a sync, each of them once. For several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: Counter[str] = Counter()
        # A value of its own for each debt: a sync pays none that came after it began.
        self._pending: dict[str, object] = {}

    @contextmanager
    def pending(self, folder: str) -> Iterator[None]:
        """The block changes a folder and syncs it: owed while it runs, for it may hang, and after an
        `OutcomeUnknown`.
        """
        with self._lock:
            self._under_way[folder] += 1
        try:
            yield
        except OutcomeUnknown:
            with self._lock:
                self._pending[folder] = object()
            raise
        finally:
            with self._lock:
                self._under_way -= Counter((folder,))

    def flush(self, folder: str, where: str) -> None:
        """Sync what is owed of a folder and of those right above it. One that is gone owes nothing.

        Args:
            folder: where something was found, or is to be changed.
            where: its name in messages.

        Raises:
            Unsure: what is visible there may still not outlive a power cut.
            OSError: a folder can't be opened.
        """
        with self._lock:
            if not self._pending and not self._under_way:
                return
        for place in (folder, parent_folder(folder), parent_folder(parent_folder(folder))):
            with self._lock:
                pending = self._pending.get(place)
                if pending is None and place not in self._under_way:
                    continue
            with suppress(FileNotFoundError):
                fsync_folder(place, where)
            with self._lock:
                if pending is not None and self._pending.get(place) is pending:
                    del self._pending[place]


def fsync_folder(folder: str, where: str) -> None:
    """Make what was made visible in a folder survive a power cut.

    Args:
        folder: its path.
        where: its name in messages.

    Raises:
        Unsure: it may not.
        OSError: the folder can't be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fsync_descriptor(descriptor, where)
    finally:
        os.close(descriptor)


def fsync_descriptor(descriptor: int, where: str) -> None:
    """As `sync`, for a folder that is open.

    Raises:
        Unsure: what was made visible may not survive a power cut.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise outcome_unknown(where, error) from error
