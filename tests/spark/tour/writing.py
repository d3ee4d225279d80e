"""Chapters that write: managed tables and their partitions, inserts and overwrites, and evolution of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyarrow import parquet

from sfn.reader.api import resolve
from tests.spark.tour.stage import Chapter, Row, Stage, table_lines
from tests.spark.tour.table import Inspection, Table

_COLUMNS: Final = "id BIGINT, word STRING, at TIMESTAMP"
_ROW: Final = "(1, 'apple', TIMESTAMP '2026-11-01 10:20:30')"


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A table that has several of them.

    Attributes:
        mappings: what SQL says; the partition field that it makes, and what people read of the row's partition.
    """

    title: str
    columns: str
    row: str
    mappings: Mapping[str, tuple[str, str]]


_OF_TIMES: Final = _Mapped(
    "mapped_times",
    "born TIMESTAMP, hired TIMESTAMP, paid TIMESTAMP, seen TIMESTAMP",
    ", ".join(["TIMESTAMP '2026-11-01 10:20:30'"] * 4),
    {
        "years(born)": ("born_year: year", "2026"),
        "months(hired)": ("hired_month: month", "2026-11"),
        "days(paid)": ("paid_day: day", "2026-11-01"),
        "hours(seen)": ("seen_hour: hour", "2026-11-01-10"),
    },
)
_OF_VALUES: Final = _Mapped(
    "mapped_values",
    "id BIGINT, word STRING, region STRING",
    "1, 'apple', 'north'",
    {
        "bucket(4, id)": ("id_bucket: bucket[4]", "0"),
        "truncate(2, word)": ("word_trunc: truncate[2]", "ap"),
        "region": ("region: identity", "north"),
    },
)


def create_tables(stage: Stage) -> None:
    """Create managed tables with partitions by transforms of columns."""
    stage.narrator.step("Partitions by years, months, days and hours of a time")
    _partition_by(stage, _OF_TIMES)
    stage.narrator.step("Partitions by buckets, by prefixes of words, and by the value itself")
    _partition_by(stage, _OF_VALUES)
    _add_field_later(stage)


def _partition_by(stage: Stage, one: _Mapped) -> None:
    table = Table(stage, one.title)
    table.create(one.columns, ", ".join(one.mappings))
    nothing = ", ".join(["NULL"] * (one.columns.count(",") + 1))
    table.run(f"INSERT INTO {{t}} VALUES ({one.row}), ({nothing})")
    found = table.inspect()
    fields = tuple(field for field, _ in one.mappings.values())
    stage.narrator.check(f"sfn inspect: partitioned by {', '.join(fields)}", expected=fields, found=found.partitioned)
    names = [field.partition(":")[0] for field in fields]
    values = [value for _, value in one.mappings.values()]
    expected = {tuple(zip(names, of, strict=True)) for of in (values, ["null"] * len(names))}
    stage.narrator.check(
        f"its partitions are {', '.join(values)}, and null of each", expected=expected, found=found.partitions
    )
    table.same("SELECT partition, record_count FROM {t}.partitions")


def _add_field_later(stage: Stage) -> None:
    stage.narrator.step("A partition field that is added later: old files keep their layout")
    table = Table(stage, "mapped_later")
    table.create(_COLUMNS, "days(at)")
    table.run(f"INSERT INTO {{t}} VALUES {_ROW}")
    table.run("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) AS shard", f"INSERT INTO {{t}} VALUES {_ROW}")
    found = table.inspect()
    expected = ("at_day: day", "shard: bucket[4]")
    stage.narrator.check(
        f"sfn inspect: partitioned by {', '.join(expected)}", expected=expected, found=found.partitioned
    )
    day = ("at_day", "2026-11-01")
    stage.narrator.check(
        "there are files of both layouts", expected={(day,), (day, ("shard", "0"))}, found=found.partitions
    )
    table.same("SELECT partition, record_count FROM {t}.partitions")


CREATE: Final = Chapter("create", "Managed tables: partitions by value mappings of columns", create_tables)


_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement.

    Attributes:
        mode: of overwrites.
        rows: what the table then has.
    """

    title: str
    mode: str
    text: str
    rows: list[Row]


_STEPS: Final = (
    _Step(
        "Insert",
        "static",
        "INSERT INTO {t} VALUES ('north', 1, 10), ('south', 2, 20), ('west', 3, 30)",
        [("north", 1, 10), ("south", 2, 20), ("west", 3, 30)],
    ),
    _Step(
        "Overwrite the partition that the statement names",
        "static",
        "INSERT OVERWRITE {t} PARTITION (region = 'north') VALUES (4, 40), (5, 50)",
        [("north", 4, 40), ("north", 5, 50), ("south", 2, 20), ("west", 3, 30)],
    ),
    _Step(
        "Overwrite the partitions that the statement has rows for",
        "dynamic",
        "INSERT OVERWRITE {t} VALUES ('south', 6, 60), ('east', 7, 70)",
        [("east", 7, 70), ("north", 4, 40), ("north", 5, 50), ("south", 6, 60), ("west", 3, 30)],
    ),
    _Step(
        "Overwrite the table: no partition is named",
        "static",
        "INSERT OVERWRITE {t} VALUES ('east', 8, 80)",
        [("east", 8, 80)],
    ),
)


def insert_rows(stage: Stage) -> None:
    """Insert and overwrite: each statement makes a snapshot, and each snapshot stays readable."""
    narrator = stage.narrator
    narrator.step("Create a table")
    table = Table(stage, "sales")
    table.create("region STRING, id BIGINT, amount INT", "region")
    states: dict[int, list[Row]] = {}
    for step in _STEPS:
        narrator.step(step.title)
        stage.run(f"SET {_MODE} = {step.mode}")
        table.run(step.text)
        narrator.show(*table_lines(("region", "id", "amount"), table.rows))
        narrator.check("these are the rows that the statement meant", expected=step.rows, found=table.rows)
        states[_snapshot(table, known=states)] = table.rows
    narrator.step("Every older snapshot is still readable, through the facade, too")
    for snapshot, expected in states.items():
        found = table.same(f"SELECT * FROM {{t}} VERSION AS OF {snapshot}", printed=False)
        narrator.check(f"snapshot {snapshot}: rows of its time, {len(expected)}", expected=expected, found=found)


def _snapshot(table: Table, known: dict[int, list[Row]]) -> int:
    """Return the newest snapshot, which must be a new one and that of the SFN file."""
    narrator = table.stage.narrator
    *earlier, newest = table.snapshots()
    narrator.check(f"there is one more snapshot, {newest}", expected=[*known], found=earlier)
    resolved = resolve(table.directory, table.identifier)
    narrator.check("the SFN file names it", expected=newest, found=resolved.snapshot_id)
    if not known:
        file = Path(resolved.sfn_file.removeprefix("file://"))
        narrator.show(f"$ cat {file}", *file.read_text().splitlines())
    return newest


INSERT: Final = Chapter("insert", "Insert, snapshot, SFN file; overwrites, static and dynamic", insert_rows)


_SCHEMAS: Final = (
    ("ALTER TABLE {t} ADD COLUMN city STRING", ("id: int", "name: string", "age: int", "city: string")),
    ("ALTER TABLE {t} RENAME COLUMN name TO called", ("id: int", "called: string", "age: int", "city: string")),
    ("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT", ("id: long", "called: string", "age: int", "city: string")),
    ("ALTER TABLE {t} DROP COLUMN age", ("id: long", "called: string", "city: string")),
    ("ALTER TABLE {t} ALTER COLUMN city FIRST", ("city: string", "id: long", "called: string")),
)
_PARTITIONS: Final = (
    ("ALTER TABLE {t} ADD PARTITION FIELD city", ("city: identity",)),
    ("ALTER TABLE {t} REPLACE PARTITION FIELD city WITH truncate(1, city) AS initial", ("initial: truncate[1]",)),
    ("ALTER TABLE {t} DROP PARTITION FIELD initial", ()),
)
_PREVIOUS_VERSIONS: Final = 1


def evolve_tables(stage: Stage) -> None:
    """Change schema, partitions and sort order without a rewrite of data; delete rows; limit the metadata files."""
    table = Table(stage, "people")
    stage.narrator.step("Schema evolution: no data file is rewritten")
    table.create("id INT, name STRING, age INT")
    table.run("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'Ada', 36), (2, 'Emmy', 53)")
    for text, columns in _SCHEMAS:
        found = _run_without_data(table, text)
        stage.narrator.check(f"columns {', '.join(columns)}", expected=columns, found=found.columns)
    table.run("INSERT INTO {t} VALUES ('Rome', 30000000000, 'Maria')")
    table.same("SELECT * FROM {t}")
    stage.narrator.step("Partition evolution: old files keep their layout, new files get the new one")
    for text, fields in _PARTITIONS:
        found = _run_without_data(table, text)
        stage.narrator.check(
            f"partitioned by {', '.join(fields) or 'nothing'}", expected=fields, found=found.partitioned
        )
        table.run("INSERT INTO {t} VALUES ('Rome', 4, 'Laura')")
    expected = {(), (("city", "Rome"),), (("initial", "R"),)}
    stage.narrator.check("files of all three layouts", expected=expected, found=table.inspect().partitions)
    _sort_order(table)
    _delete_row(stage)
    _retain_metadata(stage)


def _sort_order(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("Sort order: rows written later are sorted")
    before = _run_without_data(table, "ALTER TABLE {t} WRITE ORDERED BY id DESC")
    metadata = json.loads(Path(table.pointer.removeprefix("file://")).read_text())
    (order,) = (one for one in metadata["sort-orders"] if one["order-id"] == metadata["default-sort-order-id"])
    found = [(one["direction"], one["transform"]) for one in order["fields"]]
    narrator.check("the metadata file has the order", expected=[("desc", "identity")], found=found)
    table.run("INSERT INTO {t} VALUES ('Oslo', 7, 'a'), ('Oslo', 9, 'b'), ('Oslo', 8, 'c')")
    (new,) = table.inspect().data - before.data
    (file,) = Path(table.directory).glob(f"data/**/{new}")
    ids = parquet.read_table(file, columns=["id"]).column("id").to_pylist()
    narrator.check("rows in the new file", expected=[9, 8, 7], found=ids)


def _delete_row(stage: Stage) -> None:
    """One row is deleted of one file, in each of three ways."""
    stage.narrator.step("A deleted row: copy-on-write against merge-on-read")
    for title, mode, version, deletes in (
        ("copied", "copy-on-write", 2, 0),
        ("merged", "merge-on-read", 2, 1),
        ("vectored", "merge-on-read", 3, 1),
    ):
        table = Table(stage, title)
        table.create(
            "id BIGINT",
            properties={"format-version": f"{version}", "write.delete.mode": mode},
            then="INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2), (3)",
        )
        before = table.inspect()
        table.run("DELETE FROM {t} WHERE id = 2")
        after = table.inspect(printed=True)
        stage.narrator.check("ids 1 and 3", expected=[(1,), (3,)], found=table.rows)
        is_kept = mode == "merge-on-read"
        stage.narrator.check(
            f"{mode}, version {version}: the data file {'stays, with a file of deletes' if is_kept else 'is replaced'}",
            expected=(is_kept, 1, deletes),
            found=(after.data == before.data, len(after.data), len(after.deletes)),
        )
        if deletes:
            kind = {2: "parquet", 3: "puffin"}[version]
            found = {file.rsplit(".", 1)[-1] for file in after.deletes}
            stage.narrator.check(f"the deletes are in {kind}", expected={kind}, found=found)


def _retain_metadata(stage: Stage) -> None:
    stage.narrator.step("Metadata retention: each commit deletes old metadata files, but no data")
    table = Table(stage, "forgetful")
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": f"{_PREVIOUS_VERSIONS}",
    }
    table.create("id BIGINT", properties=properties)
    for number in range(1, 4):
        table.run(f"INSERT INTO {{t}} VALUES ({number})")
        left = table.file_names("metadata/*.metadata.json")
        expected = min(number, _PREVIOUS_VERSIONS) + 1
        stage.narrator.check(f"{expected} metadata files are left", expected=expected, found=len(left))
        stage.narrator.check("one of them is the SFN file's", expected=True, found=table.inspect().metadata in left)
    found = table.file_names("data/*.parquet")
    stage.narrator.check("every data file exists", expected=table.inspect().data, found=found)
    first = table.snapshots()[0]
    stage.narrator.check(
        "the first snapshot is still readable",
        expected=[(1,)],
        found=table.same(f"SELECT * FROM {{t}} VERSION AS OF {first}", printed=False),
    )


def _run_without_data(table: Table, text: str) -> Inspection:
    """A statement that makes a metadata file, and nothing else."""
    before = table.inspect()
    table.run(text)
    after = table.inspect()
    table.stage.narrator.check(
        "sfn inspect: another metadata file; the same manifest list, manifests and data",
        expected=(True, before.manifest_list, before.manifests, before.data, before.deletes),
        found=(after.metadata != before.metadata, after.manifest_list, after.manifests, after.data, after.deletes),
    )
    return after


EVOLVE: Final = Chapter("evolve", "Evolution, two ways to delete, and how long metadata files live", evolve_tables)
