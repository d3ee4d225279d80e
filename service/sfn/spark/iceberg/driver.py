"""The facade in the driver: it shows the tables that were asked for, each as it was found."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import Final

from sfn.alone import Beside
from sfn.facade import Namespace, Place
from sfn.facade.trees import tree
from sfn.pointer.location import canonical, store_of
from sfn.reader.documents import Found
from sfn.reader.resolve import Pointer
from sfn.reader.timeline import Then
from sfn.spark.asked import Asked
from sfn.spark.pinned import Pinned
from sfn.wiring.facades import Folders

NAMESPACE: Final[Namespace] = ("tables",)
REMEMBERED: Final = 10_000
"""Tables that are known: a DataFrame that is older than so many others can't be planned again."""


class Pins:
    """Implements `Shelf`: tables whose metadata file is settled. For several threads."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, Place]]:
        with self._lock:
            return {NAMESPACE: dict(self._places)}

    async def find(self, namespace: Namespace, name: str, *, anew: bool = False) -> Place | None:
        with self._lock:
            return self._places.get(name) if namespace == NAMESPACE else None

    def add(self, asked: Asked, pinned: Pinned) -> str:
        """The name under which a table is shown from now on."""
        found = pinned.found
        key = canonical(found.metadata_location)
        pointer = Pointer(key, Then(Found(found.sfn_file, found.document)))
        place = Place(tree(store_of(key), asked.options), asked.question, pointer)
        # A number alone would tell nobody who reads a plan which table it is.
        name = f"{'.'.join((*found.document.namespace, found.document.name))}@{next(self._numbers)}"
        with self._lock:
            self._places[name] = place
            while len(self._places) > REMEMBERED:
                self._places.popitem(last=False)
        return name


class Driver:
    """The facade.

    Attributes:
        pins: the tables that it shows.
        facade: where it answers.
    """

    def __init__(self) -> None:
        self.pins = Pins()
        self.facade = Beside(Folders(shelf=self.pins, directories=False))


@cache
def driver() -> Driver:
    """The one of this process, started when it is first asked for; it ends with the process."""
    return Driver()
