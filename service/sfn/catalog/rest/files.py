"""Files that somebody else renews, and that a request to the catalog needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.concurrency import CHECK_INTERVAL, AbandonableThreads, TimedOut, WatchedFiles, describe_timeout
from sfn.errors import ErrorScope, SfnError, Transient

T = TypeVar("T")

_NEVER_CHECKED: Final = float("-inf")


class RenewedFile(Generic[T]):
    """What is made of a file, read in a thread by who asks for it first, and again once it changed.

    A file system that hangs holds up one request at a time, for so long at most, and nobody who has other work. What
    was made last stays in force as in `Watched`.

    Args:
        catalog: its name in the settings.
        setting: the name of the one that names the file.
        file: the file.
        what: as for `Watched`.
        make: as for `Watched`.
    """

    check_interval: ClassVar[float] = CHECK_INTERVAL
    """Seconds from one look to the next."""
    read_timeout: ClassVar[float] = 5.0
    """Seconds that a request waits for a file system."""

    def __init__(self, catalog: str, setting: str, file: Path, what: str, make: Callable[[Path], T]) -> None:
        self._setting, self._file = f"catalogs.{catalog}.{setting}", file
        self._where = f"catalog {catalog}: {file}"
        self._what, self._make = f"{what} of catalog {catalog}", make
        self._threads = AbandonableThreads(1, self.read_timeout, ErrorScope.CATALOG, read_only=True)
        self._watched: WatchedFiles[T] | None = None
        self._checked_at = _NEVER_CHECKED

    async def current(self) -> T:
        """What is in force, after a look at the file if the last one was a second ago.

        Raises:
            Refused: scope catalog; there is nothing in force, and the file makes no sense or can't be had.
        """
        now = time.monotonic()
        if self._watched is None:
            return await self.refresh()
        if now - self._checked_at >= self.check_interval and not self._threads.is_busy:
            self._checked_at = now
            await self._check(self._watched, force=False)
        return self._watched.current

    async def refresh(self) -> T:
        """What is in force, after the file was read again, whether or not it seems to have changed; raises as above."""
        if self._watched is not None:
            await self._check(self._watched, force=True)
            return self._watched.current
        try:
            found = await self._threads.run(f"read {self._file}", self._open)
        except SfnError as error:
            is_permanent = not isinstance(error, Transient)
            refused = self._refused(error.expected, error.found, error.remedy, permanent=is_permanent)
        else:
            if not isinstance(found, TimedOut):
                return found.current
            refused = self._refused(
                "a file that can be read", describe_timeout(self.read_timeout), "see whether a mount hangs"
            )
        raise refused

    def _open(self, _given_up: object) -> WatchedFiles[T]:
        # Many requests may have waited for the same thread.
        if self._watched is None:
            self._watched = WatchedFiles(self._what, (self._file,), lambda: self._make(self._file))
            self._checked_at = time.monotonic()
        return self._watched

    async def _check(self, watched: WatchedFiles[T], *, force: bool) -> None:
        try:
            outcome = await self._threads.run(f"read {self._file}", lambda _: watched.reload_if_changed(force=force))
        except Transient as error:
            watched.log_reload_failure(str(error))
        else:
            if isinstance(outcome, TimedOut):
                watched.log_reload_failure(describe_timeout(self.read_timeout))

    def _refused(self, expected: str, found: str, remedy: str, *, permanent: bool = False) -> CatalogRequestFailed:
        return CatalogRequestFailed(
            CatalogFailure(
                self._where,
                expected=expected,
                found=found,
                remedy=remedy or f"mend the file that {self._setting} names",
                permanent=permanent,
                scope=ErrorScope.CATALOG,
            )
        )
