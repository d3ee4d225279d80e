"""The port to a catalog: the only place where truth comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from sfn.words import Answer, TableName


class Catalog(Protocol):
    """One configured catalog.

    Every verb raises `Transient` or `Permanent` with scope table or catalog for whatever is not an answer: time-outs,
    refused connections, 401, 403, 429, 5xx, a body that is no JSON, a 404 that is not in Iceberg's error shape.
    """

    async def load(self, table: TableName, known: str | None) -> Answer:
        """What the catalog says about a table now.

        Args:
            table: whose metadata.
            known: entity tag of an answer that the caller still has; `NotModified` is returned only where it was given.
        """
        ...

    async def listed(self, table: TableName) -> bool:
        """Whether a complete listing of the table's namespace names it; a missing namespace lists nothing."""
        ...

    def tables(self) -> AsyncIterator[TableName]:
        """Every table of every namespace, pages followed."""
        ...


__all__ = ["Catalog"]
