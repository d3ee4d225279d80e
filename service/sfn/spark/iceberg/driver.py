"""The facade in the driver: it shows the tables that were asked for, each as it was found."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sfn.alone import Beside
from sfn.facade import Namespace, Place, Tree
from sfn.facade.trees import tree
from sfn.pointer.location import store_of
from sfn.spark.asked import Asked
from sfn.spark.iceberg.settled import Settled
from sfn.wiring.facades import Folders

NAMESPACE: Final[Namespace] = ("tables",)
REMEMBERED: Final = 10_000
"""Tables that are known: a DataFrame that is older than so many others can't be planned again."""


class Pins:
    """Implements `Shelf`: tables whose metadata file is settled. For several threads."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._trees: dict[tuple[str, str], Tree] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, Place]]:
        with self._lock:
            return {NAMESPACE: dict(self._places)}

    async def find(self, namespace: Namespace, name: str, *, anew: bool = False) -> Place | None:
        with self._lock:
            return self._places.get(name) if namespace == NAMESPACE else None

    def add(self, asked: Asked, state: Settled) -> str:
        """The name under which a table is shown from now on."""
        place = Place(self._tree(store_of(state.pointer.key), asked.options), asked.question, state.pointer)
        # A number alone would tell nobody who reads a plan which table it is.
        name = f"{state.name}@{next(self._numbers)}"
        with self._lock:
            self._places[name] = place
            while len(self._places) > REMEMBERED:
                self._places.popitem(last=False)
        return name

    def _tree(self, root: str, options: Mapping[str, Any]) -> Tree:
        """The files of a store: one for all tables there, as each has threads of its own."""
        with self._lock:
            key = root, repr(sorted(options.items()))
            if key not in self._trees:
                self._trees[key] = tree(root, options)
            return self._trees[key]


class Driver:
    """The facade.

    Attributes:
        pins: the tables that it shows.
        facade: where it answers.
    """

    def __init__(self) -> None:
        self.pins = Pins()
        self.facade = Beside(Folders(shelf=self.pins, directories=False))


_STARTING: Final = threading.Lock()


def driver() -> Driver:
    """The one of this process, started when it is first asked for; it ends with the process."""
    # Two threads that ask at once would else start two, and a session knows the address of one.
    with _STARTING:
        return _only()


@cache
def _only() -> Driver:
    return Driver()
