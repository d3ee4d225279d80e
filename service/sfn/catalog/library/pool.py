"""PyIceberg's catalogs, each for one thread at a time.

No catalog of PyIceberg is said to be safe for several threads, and not all are: Hive's has one socket for all its calls
and opens it anew in each, REST's renews its token without a lock. Those of SQL (SQLAlchemy's engine) and AWS (boto3's
clients) would be, but one of somebody's own may not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO

from sfn.catalog.refusal import CatalogRequestFailed
from sfn.errors import Permanent


@dataclass(frozen=True, slots=True)
class OpenedCatalog:
    """One catalog, and how files are read, by the scheme of their location."""

    catalog: Catalog
    file_ios: dict[str, FileIO] = field(default_factory=dict)


class CatalogPool:
    """As many catalogs as there are threads that ask at the same time.

    After trouble none of them is trusted any more: a connection that a restarted server has forgotten is one of many.

    Args:
        open_: opens another one.
    """

    def __init__(self, open_: Callable[[], Catalog]) -> None:
        self._open = open_
        self._guard = threading.Lock()
        self._idle: list[OpenedCatalog] = []
        self._is_closed = False

    @contextmanager
    def lease(self) -> Iterator[OpenedCatalog]:
        """A catalog that nobody else asks until the block ends."""
        with self._guard:
            taken = self._idle.pop() if self._idle else None
        opened = taken or OpenedCatalog(self._open())
        try:
            yield opened
        except (CatalogRequestFailed, Permanent):
            # We say so ourselves: nothing is wrong with the catalog.
            self._give_back(opened)
            raise
        except BaseException:
            _close([opened, *self._take_all()])
            raise
        self._give_back(opened)

    def close(self) -> None:
        """Close all that nobody asks, and each other once it was answered."""
        self._is_closed = True
        _close(self._take_all())

    def _give_back(self, opened: OpenedCatalog) -> None:
        with self._guard:
            if not self._is_closed:
                self._idle.append(opened)
                return
        _close([opened])

    def _take_all(self) -> list[OpenedCatalog]:
        with self._guard:
            idle, self._idle = self._idle, []
        return idle


def _close(some: list[OpenedCatalog]) -> None:
    for opened in some:
        # It may be closed for what is wrong with it.
        with suppress(Exception):
            opened.catalog.close()
