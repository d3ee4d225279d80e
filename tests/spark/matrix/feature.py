"""Something that a table can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.spark.matrix.lake import NAMESPACE, REST
from tests.spark.matrix.table import Look, Table


@dataclass(frozen=True, slots=True)
class Feature:
    """A row of the matrix, or several.

    Attributes:
        title: of its first row; what the others are of.
        write: writes a table that has it, and says how the table is to be looked at.
        catalog, namespace: what it is written through, and into.
        name: the table's; None for any.
    """

    title: str
    write: Callable[[Table], Iterable[Look]]
    catalog: str = REST
    namespace: tuple[str, ...] = (NAMESPACE,)
    name: str | None = None
