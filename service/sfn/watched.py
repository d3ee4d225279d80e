"""Files that somebody else renews while the process runs: mounted secrets, certificates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

import structlog

from sfn.errors import Broken, SfnError

T = TypeVar("T")

LOOK_AFTER: Final = 1.0
"""Seconds from one look at a file to the next."""

Identity: TypeAlias = tuple[int, ...]

_log = structlog.stdlib.get_logger(__name__)


class Watched(Generic[T]):
    """What was made of some files, made anew when one of them changed.

    Files that can't be read or make no sense leave what was made of the old ones in force. That is logged as an error,
    once for each thing that is wrong, and the new ones are tried at each look until they do.

    Args:
        what: what is made of them, in the plural, for the log.
        files: all that `make` reads.
        make: reads them; raises SfnError for what makes no sense.
        monotonic: seconds that never run backwards.

    Raises:
        SfnError: they make no sense now, when nothing old is in force.
    """

    def __init__(
        self, what: str, files: Sequence[Path], make: Callable[[], T], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._files, self._make = what, tuple(files), make
        self._monotonic = monotonic
        self._complaint = ""
        self._looked = monotonic()
        self._seen = self._identities()
        self._made = make()

    @property
    def in_force(self) -> T:
        """What was made last; nothing is looked at."""
        return self._made

    def current(self) -> T:
        """What is in force, after a look at the files if the last one was a second ago."""
        now = self._monotonic()
        if now - self._looked >= LOOK_AFTER:
            self._looked = now
            self.look()
        return self._made

    def look(self) -> None:
        """Make it anew if a file changed. Blocks for as long as the file system does."""
        try:
            # Before reading: what changes in between is seen as a change next time.
            seen = self._identities()
            if seen != self._seen:
                self._made = self._make()
        except SfnError as error:
            self.keep(str(error))
            return
        self._complaint = ""
        if seen != self._seen:
            self._seen = seen
            _log.info(f"{self._what} read", files=self._names())

    def keep(self, complaint: str) -> None:
        """Log why the old ones stay in force, once as long as it is the same."""
        if complaint != self._complaint:
            self._complaint = complaint
            _log.error(f"{self._what} kept", files=self._names(), error=complaint)

    def _identities(self) -> tuple[Identity, ...]:
        return tuple(_identity(file) for file in self._files)

    def _names(self) -> list[str]:
        return [str(file) for file in self._files]


def _identity(file: Path) -> Identity:
    try:
        status = file.stat()
    except OSError as error:
        raise unreadable(file, error) from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def unreadable(file: Path, error: OSError) -> Broken:
    """A file that can't be read."""
    return Broken(str(file), expected="a file that can be read", found=error.strerror or type(error).__name__)
