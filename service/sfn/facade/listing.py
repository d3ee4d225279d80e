"""The tables of one scan, as the last look through them found them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import anyio
import structlog

from sfn.errors import SfnError, TooManyFiles, Unreachable
from sfn.facade import Namespace, Scan, TablePlace

Tables: TypeAlias = Mapping[Namespace, Mapping[str, TablePlace]]

FIRST_SCAN_TIMEOUT: Final = 30.0
"""Seconds that somebody waits for the first look."""
_MAX_RIVALS: Final = 5
"""Directories that are named beside the first."""

_log = structlog.stdlib.get_logger(__name__)


class TableCollector:
    """Tables by namespace and name, one place each; the others of its name are its rivals."""

    def __init__(self) -> None:
        self.tables: defaultdict[Namespace, dict[str, TablePlace]] = defaultdict(dict)

    def add(self, namespace: Namespace, name: str, place: TablePlace) -> None:
        """One more table, with its rivals."""
        first = self.tables[namespace].setdefault(name, place)
        seen = {first.question.directory, *first.rivals}
        others = [one for one in (place.question.directory, *place.rivals) if one not in seen]
        if others:
            self.tables[namespace][name] = replace(first, rivals=(*first.rivals, *others)[:_MAX_RIVALS])


class ScanResult:
    """What a scan found. One look at a time, which goes on whoever stops waiting for it.

    Args:
        scan: looks through the tables.
        retry_after: seconds after which a look that failed is tried again.
        timeout: seconds that somebody waits for a look where another one was had before. After one that took longer
            nobody looks for as long as it took: what is large is not looked through without a pause.

    Attributes:
        tables: as they were found last.
        refusal: why the last look failed, or did not come to its end.
        version: how often they were found.
    """

    def __init__(self, scan: Scan, retry_after: float, timeout: float) -> None:
        self._scan, self._retry_after, self._timeout = scan, retry_after, timeout
        self.tables: Tables = {}
        self.refusal: Exception | None = None
        self.version = 0
        self._ended_at: float | None = None
        self._took = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def has_completed(self) -> bool:
        """A look has ended, however it did."""
        return self._ended_at is not None

    async def refresh(self, age: float) -> None:
        """Return once the last look ended no longer ago than so many seconds, or nobody waits any more."""
        if not self._is_due(age):
            return
        if self._task is None:
            # Who asked first may be gone before it ends, and the others have their answer of it all the same.
            self._task = asyncio.create_task(self._scan_once())  # noqa: TID251 - it ends by itself, and is held here
        await asyncio.wait({self._task}, timeout=self._timeout if self.version else FIRST_SCAN_TIMEOUT)

    def require_listing(self) -> None:
        """See that there was a look.

        Raises:
            SfnError: none has been had yet.
        """
        if self.version:
            return
        if self.refusal is not None:
            # It is raised for many, and each adds where it came by.
            raise self.refusal.with_traceback(None)
        found, remedy = "a look that goes on", "try again, or call the table by its directory"
        raise Unreachable("tables", expected=f"them within {FIRST_SCAN_TIMEOUT:g} s", found=found, remedy=remedy)

    def _is_due(self, age: float) -> bool:
        if self._ended_at is None:
            return True
        least = age if self.refusal is None else min(age, self._retry_after)
        rest = self._took if self._took > self._timeout else 0.0
        return anyio.current_time() - self._ended_at >= max(least, rest)

    async def _scan_once(self) -> None:
        begun_at, found = anyio.current_time(), TableCollector()
        try:
            async for row in self._scan():
                found.add(*row)
            self._replace(found, None)
        except TooManyFiles as refusal:
            # What it came to is there; what is missing may be anywhere.
            self._replace(found, refusal)
        except SfnError as refusal:
            # What was known before is still worth a look.
            self.refusal = refusal
        except Exception as error:  # noqa: BLE001 - it is logged, and whoever asks is told
            _log.exception("tables not listed")
            self.refusal = error
        finally:
            self._ended_at = anyio.current_time()
            self._took, self._task = self._ended_at - begun_at, None

    def _replace(self, found: TableCollector, refusal: Exception | None) -> None:
        self.tables, self.refusal = dict(found.tables), refusal
        self.version += 1
