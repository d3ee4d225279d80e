"""What the chapters of the tour share: the catalogs, the listener, the session and the printer."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final, TypeAlias

from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from sfn.demo.demo import Narrator
from sfn.demo.environment import RestCatalogServer, RunningService, running_service
from sfn.errors import SfnError
from tests.spark.session import INTERPRETED

Row: TypeAlias = tuple[object, ...]
NAMESPACE: Final = "tour"
LAKE, GATED, SFN, FOLDERS = "lake", "gated", "sfn", "folders"
"""The catalog itself, the same through the service's gateway, the facade, and a catalog that is nothing but folders."""

_SETTINGS: Final = {"spark.sql.sources.partitionOverwriteMode": "static", **INTERPRETED}
WIDTH: Final = 100
_CELL: Final = 80
_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter of the tour: an entry in `__main__.CHAPTERS`.

    Attributes:
        name: the name on the command line.
        title: the printed title.
        run: runs and prints the steps; raises `SfnError` if a check fails.
    """

    name: str
    title: str
    run: Callable[[Stage], None]


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
        self.narrator.show(*wrap_statement(f"> {text}"))
        return rows(self.sql(text))

    def refused(self, text: str, saying: str) -> None:
        """Run a statement that must fail with a message.

        Raises:
            SfnError: it does not fail so.
        """
        self.narrator.show(*wrap_statement(f"> {text}"))
        found = "it passed"
        try:
            self.sql(text).collect()
        except (PySparkException, Py4JJavaError) as error:
            found = str(error)
        message = next((line.strip() for line in found.splitlines() if saying in line), None)
        if message is None:
            raise SfnError(text, expected=f"a refusal that says {saying!r}", found=found.partition("\n")[0])
        self.narrator.note(f"✓ refused: {saying}")

    def same(self, what: str, query: Callable[[str], DataFrame], *, printed: bool = True) -> list[Row]:
        """Return the rows of a query, which must be the same through the facade as through the catalog.

        Args:
            query: takes a catalog's name.
            printed: True to print the rows.
        """
        with ThreadPoolExecutor(2) as pool:
            theirs = pool.submit(lambda: rows(query(LAKE)))
            ours = query(SFN)
            found = rows(ours)
            expected = theirs.result()
        self.narrator.check(f"{what}: the same through `{SFN}` as in the catalog", expected=expected, found=found)
        if printed:
            self.narrator.show(*table_lines(ours.columns, found))
        return found


def rows(found: DataFrame) -> list[Row]:
    """Return plain rows, sorted, so that the order of files does not matter."""
    return sorted((tuple(row) for row in found.collect()), key=repr)


def qualified(catalog: str, name: str) -> str:
    """Return the name of a table in SQL."""
    return f"{catalog}.{NAMESPACE}.{name}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where tables live.

    Attributes:
        session: knows the catalogs by the names above.
        service: sees what passes its gateway.
        client: of the catalog itself, for what it says.
        warehouse: the folder that all tables lie below, those of the catalog of folders too.
    """

    session: SparkSession
    service: RunningService
    client: Catalog
    warehouse: Path


@contextmanager
def place(spark: SparkSession, catalog: RestCatalogServer, folder: Path) -> Iterator[Place]:
    """Run a listener, with a session of its own.

    Args:
        spark: knows the catalog as `lake`, which has no namespace `tour` yet.
        folder: an empty one, for what the service keeps.
    """
    # Other tests have tables there too, whose files they write themselves.
    only = f'include = ["{NAMESPACE}.**"]'
    warehouse = Path(catalog.warehouse.removeprefix("file://"))
    with running_service(folder, catalog, only) as service, catalog.client() as client:
        session = spark.newSession()
        properties = {
            **_SETTINGS,
            **_catalog(GATED, type="rest", uri=f"{service.gateway}"),
            **_catalog(SFN, type="rest", uri=service.facade, token=service.reader_token),
            **_catalog(FOLDERS, type="hadoop", warehouse=f"{catalog.warehouse}/{FOLDERS}"),
        }
        for name, value in properties.items():
            session.conf.set(name, value)
        session.sql(f"CREATE NAMESPACE {GATED}.{NAMESPACE}")
        yield Place(session, service, client, warehouse)


def _catalog(name: str, **properties: str) -> Mapping[str, str]:
    own = {"": "org.apache.iceberg.spark.SparkCatalog", ".cache-enabled": "false"}
    options = own | {f".{key}": value for key, value in properties.items()}
    return {f"spark.sql.catalog.{name}{key}": value for key, value in options.items()}


def wrap_statement(sql: str) -> list[str]:
    """Return a statement, wrapped."""
    return textwrap.wrap(sql, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the first rows below the names of the columns."""
    lines = [[*columns], *([_cell(value) for value in row] for row in rows[:_ROWS])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    if len(rows) > _ROWS:
        yield f"… and {len(rows) - _ROWS} more"


def _cell(value: object) -> str:
    match value:
        case None:
            text = "null"
        case SparkRow():
            text = " ".join(f"{key}={_cell(one)}" for key, one in value.asDict().items())
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M:%S}"
        case date():
            text = value.isoformat()
        case _:
            text = f"{value}"
    return text if len(text) <= _CELL else f"…{text[-_CELL + 1 :]}"
