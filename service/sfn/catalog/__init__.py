"""The port to a catalog: the only place where truth comes from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sfn.words import Answer, TableName, Told

Skip: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Whether a namespace, and all that lies below it, is left out."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """What a catalog does not let us see: whether a table of that namespace exists, or of one below it, is not known.

    Attributes:
        namespace: its levels, outermost first; none for the whole catalog.
        why: what happened, for a person.
        remedy: the setting that is wrong, and what to set it to; empty where a permission is missing.
    """

    namespace: tuple[str, ...]
    why: str
    remedy: str = ""

    @property
    def said(self) -> str:
        """All of it in one line."""
        return f"{self.why}; {self.remedy}" if self.remedy else self.why


class Catalog(Protocol):
    """One configured catalog.

    Every verb raises `Transient` or `Permanent` with scope table or catalog for whatever is not an answer: time-outs,
    refused connections, 401, 403, 429, 5xx, a body that is no JSON, a 404 that is not in Iceberg's error shape.
    """

    async def load(self, table: TableName, known: str | None, told: Told | None = None) -> Answer:
        """What the catalog says about a table now.

        Args:
            table: whose metadata.
            known: entity tag of an answer that the caller still has; `NotModified` is returned only where it was given.
            told: all that was told of the table, for a catalog that has no other source; every other passes over it.
        """
        ...

    async def listed(self, table: TableName) -> bool:
        """Whether a complete listing of the table's namespace names it; a missing namespace lists nothing."""
        ...

    def tables(self, skip: Skip | None = None) -> AsyncGenerator[TableName | Withheld]:
        """Every table of every namespace, pages followed, and once each namespace that is withheld.

        No trouble is raised for one namespace that may not be listed, and will not be until somebody changes
        something: all others are walked. Some of its tables may come all the same.

        Args:
            skip: namespaces that nothing is asked about; None for none.
        """
        ...


__all__ = ["Catalog", "Skip", "Withheld"]
