"""The files that a table's metadata names, opened only where the reader of its directory may be led."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sfn.errors import Unsafe
from sfn.pointer.location import canonical, scheme_of
from sfn.reader.files import Storage, finish
from sfn.reader.trust import Trust

_DECODED: Final = {"http", "https"}
"""Schemes whose servers read `%2F` as a separator; elsewhere it is part of a name, as Iceberg writes partitions."""


def within(trust: Trust, location: str, said_by: str) -> str:
    """The canonical form of a location that metadata names.

    Args:
        said_by: the file that names it.

    Raises:
        Unsafe: as of `Trust.place`, but that a percent sign stands for itself where stores take it so.
    """
    place = canonical(location)
    if "%" not in place or scheme_of(place) in _DECODED:
        return trust.place(location, said_by)
    literal = Trust(_literal(trust.directory), tuple(map(_literal, trust.allowed)))
    try:
        literal.place(_literal(place), said_by)
    except Unsafe as refusal:
        expected, found = _read(refusal.expected), _read(refusal.found)
        raise Unsafe(said_by, expected=expected, found=found, remedy=refusal.remedy) from None
    return place


def _literal(place: str) -> str:
    return place.replace("%", "%25")


def _read(text: str) -> str:
    return text.replace("%25", "%")


@dataclass(frozen=True, slots=True)
class Bounded:
    """A storage whose verbs never suspend, and where its files may lie."""

    storage: Storage
    trust: Trust

    def read(self, location: str, most: int, said_by: str) -> bytes | None:
        """A file's first bytes; None where there is no file.

        Raises:
            Unreadable: Unsafe, or of the storage.
        """
        return finish(self.storage.read(within(self.trust, location, said_by), most))

    def size(self, location: str, said_by: str) -> int | None:
        """How many bytes a file has; None where there is no file.

        Raises:
            Unreadable: Unsafe, or of the storage.
        """
        return finish(self.storage.size(within(self.trust, location, said_by)))
