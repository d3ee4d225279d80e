"""Earlier states of a table: by snapshot, time, branch, tag and Ordinal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import sfn.spark
from sfn.sfnfile.document import render_ordinal
from tests.spark.tour.chapter import Chapter
from tests.spark.tour.place import LAKE, SFN
from tests.spark.tour.rendering import table as lines
from tests.spark.tour.stage import Stage, rows
from tests.spark.tour.table import Table


def run(stage: Stage) -> None:
    stage.narrator.step("A table with a tag, a branch with a commit of its own, and a later column")
    table = Table(stage, "prices")
    table.create("id BIGINT, price DECIMAL(9, 2)")
    ordinals = []
    for text in ("INSERT INTO {t} VALUES (1, 10.50)", "INSERT INTO {t} VALUES (2, 20.50)"):
        table.run(text)
        ordinals.append(_ordinal(table))
    table.run("ALTER TABLE {t} CREATE TAG v1", "ALTER TABLE {t} CREATE BRANCH audit")
    table.run("INSERT INTO {t}.branch_audit VALUES (9, 90.50)")
    table.run("ALTER TABLE {t} ADD COLUMN note STRING", "INSERT INTO {t} VALUES (3, 30.50, 'third')")
    first, second, *_ = table.snapshots()
    stage.narrator.step("VERSION AS OF, TIMESTAMP AS OF; a tag, a branch")
    for clause, expected in {
        f"VERSION AS OF {first}": [1],
        f"TIMESTAMP AS OF '{_committed(table, second)}'": [1, 2],
        "VERSION AS OF 'v1'": [1, 2],
        "VERSION AS OF 'audit'": [1, 2, 9],
        "": [1, 2, 3],
    }.items():
        found = table.same(f"SELECT * FROM {{t}} {clause}".rstrip())
        stage.narrator.check(f"ids {expected}", expected=expected, found=[row[0] for row in found])
    stage.narrator.step("The same by directory, without a name in a catalog")
    query = f"SELECT id FROM {SFN}.dir.`{table.directory}` VERSION AS OF 'audit'"
    found = stage.run(query)
    stage.narrator.check("ids of the branch", expected=[(1,), (2,), (9,)], found=found)
    _by_ordinal(table, dict(zip(ordinals, (first, second), strict=True)))


def _by_ordinal(table: Table, moments: dict[str, int]) -> None:
    """Read by an Ordinal, which is a time of the catalog: states without a new snapshot have one, too."""
    narrator, session = table.stage.narrator, table.stage.place.session
    narrator.step("As of an Ordinal, with sfn.spark.read")
    for ordinal, snapshot in moments.items():
        narrator.show(f">>> sfn.spark.read(spark, '{table.directory}', as_of='{ordinal}')")
        read = sfn.spark.read(session, table.directory, as_of=ordinal)
        expected = rows(table.queried(f"SELECT * FROM {{t}} VERSION AS OF {snapshot}", LAKE))
        narrator.check(f"the rows of snapshot {snapshot}", expected=expected, found=rows(read))
        narrator.show(*lines(read.columns, expected))
    now = sfn.spark.read(session, table.directory, as_of=_ordinal(table))
    narrator.check(
        "the present Ordinal gives the present table", expected=table.asked("SELECT * FROM {t}"), found=rows(now)
    )


def _ordinal(table: Table) -> str:
    """Of the metadata file that is current."""
    return render_ordinal(table.stage.place.client.load_table(table.identifier).metadata.last_updated_ms)


def _committed(table: Table, snapshot: int) -> str:
    found = table.stage.place.client.load_table(table.identifier).snapshot_by_id(snapshot)
    assert found is not None
    return f"{datetime.fromtimestamp(found.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"


CHAPTER: Final = Chapter("as-of", "As of: snapshot, time, branch, tag and Ordinal", run)
