"""Files that somebody else renews, and that a request to the catalog needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from sfn.catalog.refusal import Refusal, Refused
from sfn.errors import Scope, SfnError, Transient
from sfn.threads import Late, Threads
from sfn.watched import LOOK_AFTER, Watched, silent

T = TypeVar("T")

_NEVER: Final = float("-inf")


class Renewed(Generic[T]):
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

    every: ClassVar[float] = LOOK_AFTER
    """Seconds from one look to the next."""
    patience: ClassVar[float] = 5.0
    """Seconds that a request waits for a file system."""

    def __init__(self, catalog: str, setting: str, file: Path, what: str, make: Callable[[Path], T]) -> None:
        self._setting, self._file = f"catalogs.{catalog}.{setting}", file
        self._where = f"catalog {catalog}: {file}"
        self._what, self._make = f"{what} of catalog {catalog}", make
        self._threads = Threads(1, self.patience, Scope.CATALOG, only_looks=True)
        self._watched: Watched[T] | None = None
        self._looked = _NEVER

    async def current(self) -> T:
        """What is in force, after a look at the file if the last one was a second ago.

        Raises:
            Refused: scope catalog; there is nothing in force, and the file makes no sense or can't be had.
        """
        now = time.monotonic()
        if self._watched is None:
            return await self.anew()
        if now - self._looked >= self.every and not self._threads.busy:
            self._looked = now
            await self._look(self._watched, anew=False)
        return self._watched.in_force

    async def anew(self) -> T:
        """What is in force, after the file was read again, whether or not it seems to have changed; raises as above."""
        if self._watched is not None:
            await self._look(self._watched, anew=True)
            return self._watched.in_force
        try:
            found = await self._threads.run(f"read {self._file}", self._first)
        except SfnError as error:
            lasts = not isinstance(error, Transient)
            refused = self._refused(error.expected, error.found, error.remedy, permanent=lasts)
        else:
            if not isinstance(found, Late):
                return found.in_force
            refused = self._refused("a file that can be read", silent(self.patience), "see whether a mount hangs")
        raise refused

    def _first(self, _given_up: object) -> Watched[T]:
        # Many requests may have waited for the same thread.
        if self._watched is None:
            self._watched = Watched(self._what, (self._file,), lambda: self._make(self._file))
            self._looked = time.monotonic()
        return self._watched

    async def _look(self, watched: Watched[T], *, anew: bool) -> None:
        try:
            looked = await self._threads.run(f"read {self._file}", lambda _: watched.look(anew=anew))
        except Transient as error:
            watched.keep(str(error))
        else:
            if isinstance(looked, Late):
                watched.keep(silent(self.patience))

    def _refused(self, expected: str, found: str, remedy: str, *, permanent: bool = False) -> Refused:
        return Refused(
            Refusal(
                self._where,
                expected=expected,
                found=found,
                remedy=remedy or f"mend the file that {self._setting} names",
                permanent=permanent,
                reach=Scope.CATALOG,
            )
        )
