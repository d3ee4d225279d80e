"""Which events matter and whether they say enough: for those that arrive, and for those that are decoded once more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sfn.dialects import Arrived, Decoded, decode
from sfn.words import CatalogName, Hint, Subject, TableName


@dataclass(frozen=True, slots=True)
class Concern:
    """Which events matter.

    Attributes:
        covers: whether a table is published.
        told: catalogs that nobody can ask: what events do not say of them nobody will ever know.
    """

    covers: Callable[[TableName], bool]
    told: Collection[str] = ()

    def decoded(self, request: Arrived) -> Decoded:
        """All that a request says; raises `Rejected` as `decode` does."""
        return decode(request, self.told)

    def of(self, hints: Sequence[Hint]) -> list[Hint]:
        """Those hints that matter.

        What is told of a catalog that nobody can ask always does: the table may get files again, once its catalog comes
        back or the settings change, and then nobody could tell where it is.
        """
        return [hint for hint in hints if self.matters(hint.subject)]

    def matters(self, name: Subject) -> bool:
        """Whether what is told of a table or a catalog matters."""
        return isinstance(name, CatalogName) or name.catalog in self.told or self.covers(name)
