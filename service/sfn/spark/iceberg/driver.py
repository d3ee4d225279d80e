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

from sfn.alone import EmbeddedFacade
from sfn.errors import Rejected
from sfn.facade import Namespace, Place, Tree
from sfn.facade.trees import tree
from sfn.pointer.location import store_prefix
from sfn.spark.asked import Asked
from sfn.spark.iceberg.settled import Settled
from sfn.wiring.facades import FacadeFolders

NAMESPACE: Final[Namespace] = ("tables",)
REMEMBERED: Final = 10_000
"""Tables that are known: a DataFrame that is older than so many others can't be planned again."""


class Pins:
    """Implements `Shelf`: tables whose metadata file is settled. For several threads."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, Place] = OrderedDict()
        # Each ends, and its threads with it, with the last place that it is for.
        self._trees: WeakValueDictionary[str, Tree] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, Place]]:
        with self._lock:
            return {NAMESPACE: dict(self._places)}

    async def find(self, namespace: Namespace, name: str, *, anew: bool = False) -> Place | None:
        if namespace != NAMESPACE:
            return None
        with self._lock:
            place = self._places.get(name)
        if place is None:
            # Of a table that there is not Spark would only say that; nobody asks for names that were not given out.
            raise Rejected(
                name,
                status=HTTPStatus.BAD_REQUEST,
                expected=f"one of the {REMEMBERED:,} DataFrames that were made last",
                found="an older one",
                remedy="make it again: sfn.spark.read(…)",
            )
        return place

    def add(self, asked: Asked, state: Settled) -> str:
        """The name under which a table is shown from now on."""
        place = Place(self._tree(store_prefix(state.pointer.key), asked.options), asked.question, state.pointer)
        # A number alone would tell nobody who reads a plan which table it is.
        name = f"{state.name}@{next(self._numbers)}"
        with self._lock:
            self._places[name] = place
            while len(self._places) > REMEMBERED:
                self._places.popitem(last=False)
        return name

    def _tree(self, root: str, options: Mapping[str, Any]) -> Tree:
        """The files of a store: one for all tables there, as each has threads of its own."""
        key = sha256(repr((root, sorted(options.items()))).encode()).hexdigest()
        with self._lock:
            found = self._trees.get(key)
            if found is None:
                found = self._trees[key] = tree(root, options)
            return found


class Driver:
    """The facade.

    Attributes:
        pins: the tables that it shows.
        facade: where it answers.
    """

    def __init__(self) -> None:
        self.pins = Pins()
        self.facade = EmbeddedFacade(FacadeFolders(tables=self.pins, directories=False))


_STARTING: Final = threading.Lock()


def driver() -> Driver:
    """The one of this process, started when it is first asked for; it ends with the process."""
    # Two threads that ask at once would else start two, and a session knows the address of one.
    with _STARTING:
        return _only()


@cache
def _only() -> Driver:
    return Driver()
