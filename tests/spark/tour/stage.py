"""The catalogs and the printer that a chapter uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sfn.demo.demo import Narrator
from sfn.errors import SfnError
from tests.spark.tour.place import LAKE, NAMESPACE, SFN, Place
from tests.spark.tour.rendering import statement, table

Row: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A place, with the printer of the steps.

    Attributes:
        place: shared by all chapters: each has tables of its own.
        narrator: prints and checks.
    """

    place: Place
    narrator: Narrator

    def sql(self, text: str) -> DataFrame:
        """Run a statement without printing it."""
        return self.place.session.sql(text)

    def run(self, text: str) -> list[Row]:
        """Print and run a statement."""
        self.narrator.show(*statement(f"> {text}"))
        return rows(self.sql(text))

    def refused(self, text: str, saying: str) -> None:
        """Run a statement that must fail with a message.

        Raises:
            SfnError: it does not fail so.
        """
        self.narrator.show(*statement(f"> {text}"))
        found = "it passed"
        try:
            self.sql(text).collect()
        except (PySparkException, Py4JJavaError) as error:
            found = str(error)
        message = next((line.strip() for line in found.splitlines() if saying in line), None)
        if message is None:
            raise SfnError(text, expected=f"a refusal that says {saying!r}", found=found.partition("\n")[0])
        self.narrator.note(f"✓ refused: {saying}")

    def same(self, what: str, query: Callable[[str], DataFrame], *, shown: bool = True) -> list[Row]:
        """Return the rows of a query, which must be the same through the facade as through the catalog.

        Args:
            query: takes a catalog's name.
            shown: True to print the rows.
        """
        with ThreadPoolExecutor(2) as pool:
            theirs = pool.submit(lambda: rows(query(LAKE)))
            ours = query(SFN)
            found = rows(ours)
            expected = theirs.result()
        self.narrator.check(f"{what}: the same through `{SFN}` as in the catalog", expected=expected, found=found)
        if shown:
            self.narrator.show(*table(ours.columns, found))
        return found


def rows(found: DataFrame) -> list[Row]:
    """Return plain rows, sorted, so that the order of files does not matter."""
    return sorted((tuple(row) for row in found.collect()), key=repr)


def qualified(catalog: str, name: str) -> str:
    """Return the name of a table in SQL."""
    return f"{catalog}.{NAMESPACE}.{name}"
