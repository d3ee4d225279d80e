"""Changes of metadata without a rewrite of data: schema, partitions, sort order; deletes; metadata retention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyarrow import parquet

from tests.spark.tour.chapter import Chapter
from tests.spark.tour.inspection import Inspection
from tests.spark.tour.stage import Stage
from tests.spark.tour.table import Table

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
_KEPT: Final = 1


def run(stage: Stage) -> None:
    table = Table(stage, "people")
    stage.narrator.step("Schema evolution: no data file is rewritten")
    table.create("id INT, name STRING, age INT")
    table.run("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'Ada', 36), (2, 'Emmy', 53)")
    for text, columns in _SCHEMAS:
        found = _metadata_alone(table, text)
        stage.narrator.check(f"columns {', '.join(columns)}", expected=columns, found=found.columns)
    table.run("INSERT INTO {t} VALUES ('Rome', 30000000000, 'Maria')")
    table.same("SELECT * FROM {t}")
    stage.narrator.step("Partition evolution: old files keep their layout, new files get the new one")
    for text, fields in _PARTITIONS:
        found = _metadata_alone(table, text)
        stage.narrator.check(
            f"partitioned by {', '.join(fields) or 'nothing'}", expected=fields, found=found.partitioned
        )
        table.run("INSERT INTO {t} VALUES ('Rome', 4, 'Laura')")
    expected = {(), (("city", "Rome"),), (("initial", "R"),)}
    stage.narrator.check("files of all three layouts", expected=expected, found=table.inspect().partitions)
    _sorts(table)
    _deletes(stage)
    _retains(stage)


def _sorts(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("Sort order: rows written later are sorted")
    before = _metadata_alone(table, "ALTER TABLE {t} WRITE ORDERED BY id DESC")
    metadata = json.loads(Path(table.pointer.removeprefix("file://")).read_text())
    (order,) = (one for one in metadata["sort-orders"] if one["order-id"] == metadata["default-sort-order-id"])
    found = [(one["direction"], one["transform"]) for one in order["fields"]]
    narrator.check("the metadata file has the order", expected=[("desc", "identity")], found=found)
    table.run("INSERT INTO {t} VALUES ('Oslo', 7, 'a'), ('Oslo', 9, 'b'), ('Oslo', 8, 'c')")
    (new,) = table.inspect().data - before.data
    (file,) = Path(table.directory).glob(f"data/**/{new}")
    ids = parquet.read_table(file, columns=["id"]).column("id").to_pylist()
    narrator.check("rows in the new file", expected=[9, 8, 7], found=ids)


def _deletes(stage: Stage) -> None:
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
        after = table.inspect(shown=True)
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


def _retains(stage: Stage) -> None:
    stage.narrator.step("Metadata retention: each commit deletes old metadata files, but no data")
    table = Table(stage, "forgetful")
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": f"{_KEPT}",
    }
    table.create("id BIGINT", properties=properties)
    for number in range(1, 4):
        table.run(f"INSERT INTO {{t}} VALUES ({number})")
        left = table.lying("metadata/*.metadata.json")
        expected = min(number, _KEPT) + 1
        stage.narrator.check(f"{expected} metadata files are left", expected=expected, found=len(left))
        stage.narrator.check("one of them is the SFN file's", expected=True, found=table.inspect().metadata in left)
    found = table.lying("data/*.parquet")
    stage.narrator.check("every data file exists", expected=table.inspect().data, found=found)
    first = table.snapshots()[0]
    stage.narrator.check(
        "the first snapshot is still readable",
        expected=[(1,)],
        found=table.same(f"SELECT * FROM {{t}} VERSION AS OF {first}", shown=False),
    )


def _metadata_alone(table: Table, text: str) -> Inspection:
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


CHAPTER: Final = Chapter("evolve", "Evolution, two ways to delete, and how long metadata files live", run)
