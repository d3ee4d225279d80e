"""The facade in the driver: it shows the tables that were asked for, each as it was found."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from weakref import WeakValueDictionary

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import EmbeddedFacade
from sfn.errors import Rejected
from sfn.facade import FileTree, Namespace, TablePlace
from sfn.facade.metadata_files import open_tree
from sfn.sfnfile.locations import store_prefix
from sfn.spark.asked import ReadRequest
from sfn.spark.iceberg.settled import PinnedPointer

PINNED_NAMESPACE: Final[Namespace] = ("tables",)
MAX_PINNED: Final = 10_000
"""Tables that are known: a DataFrame that is older than so many others can't be planned again."""


class PinnedTables:
    """Implements `Shelf`: tables whose metadata file is settled. For several threads."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, TablePlace] = OrderedDict()
        # Each ends, and its threads with it, with the last place that it is for.
        self._trees: WeakValueDictionary[str, FileTree] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        with self._lock:
            return {PINNED_NAMESPACE: dict(self._roots)}

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        if namespace != PINNED_NAMESPACE:
            return None
        with self._lock:
            place = self._roots.get(name)
        if place is None:
            # Of a table that there is not Spark would only say that; nobody asks for names that were not given out.
            raise Rejected(
                name,
                status=HTTPStatus.BAD_REQUEST,
                expected=f"one of the {MAX_PINNED:,} DataFrames that were made last",
                found="an older one",
                remedy="make it again: sfn.spark.read(…)",
            )
        return place

    def add(self, request: ReadRequest, pinned: PinnedPointer) -> str:
        """The name under which a table is shown from now on."""
        place = TablePlace(
            self._tree(store_prefix(pinned.pointer.key), request.options), request.question, pinned.pointer
        )
        # A number alone would tell nobody who reads a plan which table it is.
        name = f"{pinned.name}@{next(self._numbers)}"
        with self._lock:
            self._roots[name] = place
            while len(self._roots) > MAX_PINNED:
                self._roots.popitem(last=False)
        return name

    def _tree(self, root: str, options: Mapping[str, Any]) -> FileTree:
        """The files of a store: one for all tables there, as each has threads of its own."""
        key = sha256(repr((root, sorted(options.items()))).encode()).hexdigest()
        with self._lock:
            found = self._trees.get(key)
            if found is None:
                found = self._trees[key] = open_tree(root, options)
            return found


class DriverFacade:
    """The facade.

    Attributes:
        pinned_tables: the tables that it shows.
        facade: where it answers.
    """

    def __init__(self) -> None:
        self.pinned_tables = PinnedTables()
        self.facade = EmbeddedFacade(FacadeFolders(tables=self.pinned_tables, directories=False))


_STARTING: Final = threading.Lock()


def driver_facade() -> DriverFacade:
    """The one of this process, started when it is first asked for; it ends with the process."""
    # Two threads that ask at once would else start two, and a session knows the address of one.
    with _STARTING:
        return _create_once()


@cache
def _create_once() -> DriverFacade:
    return DriverFacade()
