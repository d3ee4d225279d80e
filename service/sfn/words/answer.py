"""What a catalog answers about one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from sfn.words.outcome import Reason
from sfn.words.table import Table
from sfn.words.told import Telling, Told


@dataclass(frozen=True, slots=True)
class Unheard:
    """A telling that means nothing yet.

    Attributes:
        telling: which.
        reason: of the dead letter that this is; None where it may come by itself.
        detail: what is waited for, or wrong, for a person.
    """

    telling: Telling
    reason: Reason | None
    detail: str


@dataclass(frozen=True, slots=True)
class Hearing:
    """What a catalog without a memory of its own has heard.

    Attributes:
        told: what it wants to be given the next time, beside what was told since.
        unheard: what of it means nothing yet.
    """

    told: Told
    unheard: tuple[Unheard, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The catalog has the table.

    Attributes:
        table: as it is now.
        etag: entity tag of this answer.
        heard: where the answer is what was told.
    """

    table: Table
    etag: str | None = None
    heard: Hearing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The catalog's answer is the one whose entity tag was sent along (RFC 9110, 13.1.2).

    Attributes:
        heard: as of `Loaded`.
    """

    heard: Hearing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """The catalog answered, in Iceberg's own error shape, that it has no such table.

    Attributes:
        heard: as of `Loaded`.
    """

    heard: Hearing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The table exists without a metadata file (a staged create): neither present nor absent."""


Answer: TypeAlias = Loaded | NotModified | Missing | Unwritten
