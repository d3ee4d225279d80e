"""The readers: each is the very line that the page shows, run as it stands there, and what a reader showed."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sfn.demo.lake import duckdb_for_iceberg

if TYPE_CHECKING:
    from chdb.state.sqlitelike import Connection
    from duckdb import DuckDBPyConnection

Rows = list[dict[str, Any]]
Run = Callable[[str], Rows]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table lies.

    Attributes:
        name: by which the catalog knows it.
        directory: its location, now or once.
        file: its SFN file there.
    """

    name: str
    directory: Path
    file: Path


@dataclass(frozen=True, slots=True)
class Reader:
    """One way to read a directory.

    Attributes:
        name: of its column.
        packages: what is installed for it, the reader's own first.
        line: what its user writes, with `{directory}` and `{file}` for the place.
        run: runs such a line.
        led: whether it goes by a file of ours; else it looks for metadata files itself.
    """

    name: str
    packages: tuple[str, ...]
    line: str
    run: Run
    led: bool = True

    def read(self, place: Place) -> Rows:
        """All rows that it shows; an error of its own is a refusal."""
        return self.run(self.line_for(str(place.directory), str(place.file)))

    def line_for(self, directory: str, file: str) -> str:
        """The line for a place."""
        return self.line.format(directory=directory, file=file)


def by_duckdb(line: str) -> Rows:
    """SQL to one DuckDB for all reads: what it keeps from one to the next is tested too."""
    return _rows(_duckdb().execute(line).to_arrow_table())


def by_clickhouse(line: str) -> Rows:
    """SQL to one ClickHouse in this process, which keeps metadata in caches."""
    told = _clickhouse().query(line, "ArrowStream").bytes()
    # An answer without rows has no stream either.
    return _rows(pa.ipc.open_stream(told).read_all()) if told else []


def by_python(line: str) -> Rows:
    """A Python expression that is an Arrow table."""
    return _rows(eval(line, _libraries()))  # noqa: S307 - the lines are those below


@cache
def _duckdb() -> DuckDBPyConnection:
    return duckdb_for_iceberg()


@cache
def _clickhouse() -> Connection:
    connection: Connection = import_module("chdb").connect(":memory:")
    return connection


@cache
def _libraries() -> dict[str, Any]:
    # Else Daft tells its makers that it was imported.
    os.environ["DO_NOT_TRACK"] = "true"  # noqa: TID251 - this process's own
    table = import_module("pyiceberg.table")
    return {**{name: import_module(name) for name in ("daft", "polars", "sfn")}, "StaticTable": table.StaticTable}


def _rows(table: pa.Table) -> Rows:
    rows: Rows = table.to_pylist()
    return rows


READERS = (
    Reader("DuckDB", ("duckdb", "duckdb-extension-iceberg"), "FROM iceberg_scan('{directory}')", by_duckdb),
    Reader(
        "DuckDB, by the SFN file",
        ("duckdb", "duckdb-extension-iceberg"),
        "SET VARIABLE p = (SELECT metadata_file_path FROM read_json('{file}') WHERE state = 'current'); "
        "FROM iceberg_scan(getvariable('p'))",
        by_duckdb,
    ),
    Reader(
        "ClickHouse",
        ("chdb", "chdb-core"),
        "SELECT * FROM icebergLocal('{directory}', SETTINGS iceberg_use_version_hint = 1)",
        by_clickhouse,
    ),
    Reader(
        "ClickHouse, by listing",
        ("chdb", "chdb-core"),
        "SELECT * FROM icebergLocal('{directory}')",
        by_clickhouse,
        led=False,
    ),
    Reader(
        "PyIceberg", ("pyiceberg", "pyarrow"), 'StaticTable.from_metadata("{directory}").scan().to_arrow()', by_python
    ),
    Reader("Polars", ("polars", "pyiceberg"), 'polars.scan_iceberg("{directory}").collect().to_arrow()', by_python),
    Reader("Daft", ("daft", "pyiceberg"), 'daft.read_iceberg("{directory}").to_arrow()', by_python),
    Reader(
        "PyIceberg, by `sfn.resolve`",
        ("pyiceberg", "pyarrow"),
        'StaticTable.from_metadata(sfn.resolve("{directory}").metadata_location).scan().to_arrow()',
        by_python,
    ),
)
"""Those of one product side by side."""


SAME = "same rows"
REFUSES = "refuses"
_LONGEST = 160
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def outcome(reader: Reader, place: Place, now: Rows, before: Rows) -> str:
    """What comes of reading a place.

    Args:
        now: the rows through the catalog; none of a table that was dropped.
        before: those that were there when this place was read last.

    Returns:
        `same rows`, `old rows` (those before), `refuses: why`, or how many rows are wrong.
    """
    try:
        found = _counted(reader.read(place))
    except Exception as error:  # noqa: BLE001 - each reader has errors of its own, and each is a refusal
        return f"{REFUSES}: {_why(error, place)}"
    if found == (wanted := _counted(now)):
        return SAME
    if found == _counted(before):
        return "old rows"
    return f"wrong rows: {(found - wanted).total()} too many, {(wanted - found).total()} missing"


def _counted(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


def _why(error: Exception, place: Place) -> str:
    """The first line of an error, without what is another in each run."""
    line = str(error).strip().partition("\n")[0]
    for path, name in ((place.file, "<file>"), (place.directory, "<directory>")):
        line = line.replace(path.as_uri(), name).replace(str(path), name)
    line = _TIME.sub("<time>", line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
