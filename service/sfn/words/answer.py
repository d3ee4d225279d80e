"""What a catalog answers about one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from sfn.words.table import Table
from sfn.words.told import Told


@dataclass(frozen=True, slots=True)
class Loaded:
    """The catalog has the table.

    Attributes:
        table: as it is now.
        etag: entity tag of this answer.
        told: of a catalog without a memory of its own, what it wants to be given the next time.
    """

    table: Table
    etag: str | None = None
    told: Told | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The catalog's answer is the one whose entity tag was sent along (RFC 9110, 13.1.2).

    Attributes:
        told: as of `Loaded`.
    """

    told: Told | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """The catalog answered, in Iceberg's own error shape, that it has no such table.

    Attributes:
        told: as of `Loaded`.
    """

    told: Told | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The table exists without a metadata file (a staged create): neither present nor absent."""


Answer: TypeAlias = Loaded | NotModified | Missing | Unwritten
