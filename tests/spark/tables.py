"""SFN files of tables that Spark or PyIceberg wrote, and what the data source `sfn` reads of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql.datasource import Filter

from sfn.errors import SfnError
from sfn.sfnfile.document import Document, DocumentState, render
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, FileOwner, Naming
from sfn.spark.engine_sfn import PartitionFiles, SfnLoad
from tests.support.table_directory import Directory, replaced


def publish(catalog: Catalog, identifier: str, naming: Naming = IDENTIFIER) -> str:
    """Write the SFN file of a table as it is now, as the service does. Return the table's directory.

    Args:
        naming: with `ORDINAL` the commit gets a file, too.
    """
    return write_sfn_file(catalog.load_table(identifier), identifier, naming)


def write_sfn_file(table: Table, identifier: str, naming: Naming = IDENTIFIER, late: int = 0) -> str:
    """Write an SFN file as `publish` does.

    Args:
        late: milliseconds of its Ordinal after the metadata's own time, as where the one before had the same.
    """
    path = Path(canonical(table.location()).removeprefix("file://"))
    directory = Directory(path, naming=naming)
    doc = _document(directory, table, identifier)
    doc = replace(doc, ordinal=doc.ordinal + late)
    replaced(directory.sfn_file(identifier), render(doc))
    if naming is ORDINAL:
        *namespace, name = identifier.split(".")
        file = directory.folder / ORDINAL.commit_file_names(FileOwner(tuple(namespace), name), doc.ordinal)[0]
        replaced(file, render(doc))
    return str(path)


def write_tombstone(table: Table, identifier: str, naming: Naming = IDENTIFIER) -> None:
    """Write what the service leaves of a dropped table."""
    directory = Directory(Path(canonical(table.location()).removeprefix("file://")), naming=naming)
    doc = _document(directory, table, identifier, state=DocumentState.DROPPED)
    replaced(directory.sfn_file(identifier), render(doc))


def _document(
    directory: Directory, table: Table, identifier: str, state: DocumentState = DocumentState.CURRENT
) -> Document:
    metadata = table.metadata
    return directory.document(
        identifier,
        guid=str(metadata.table_uuid),
        metadata_file_path=table.metadata_location,
        snapshot_id=metadata.current_snapshot_id,
        ordinal=metadata.last_updated_ms,
        state=state,
    )


@contextmanager
def own_catalog(folder: Path) -> Iterator[SqlCatalog]:
    """Open a SQL catalog in a folder, with the namespace `n`."""
    with closing(SqlCatalog("own", uri=f"sqlite:///{folder}/own.db", warehouse=f"file://{folder}")) as catalog:
        catalog.create_namespace("n")
        yield catalog


def read_rows(directory: str, filters: Sequence[Filter] = (), **options: str) -> list[dict[str, Any]]:
    """Return the rows that the data source `sfn` gives Spark's Python processes, without such processes.

    Args:
        filters: as Spark offers them where its session has that on.
        options: as of `spark.read.options`.
    """
    load = SfnLoad({"path": directory, **options})
    reader = load.reader(load.schema())
    if filters:
        # They are taken, and left to Spark all the same.
        assert reader.pushFilters(list(filters)) == filters
    found = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row for batch in found if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]


def files_per_task(directory: str, **options: str) -> list[int]:
    """Return how many files each of Spark's tasks would read."""
    load = SfnLoad({"path": directory, **options})
    reader = load.reader(load.schema())
    return [len(one.tasks) for one in reader.partitions() if isinstance(one, PartitionFiles)]


def error_text(kind: type[Exception], action: Callable[[], object]) -> str:
    """Return the text of the error that an action raises. It must be one line with a remedy."""
    with pytest.raises(Exception, match=r".") as refused:
        action()
    assert type(refused.value) is kind
    assert "\n" not in f"{refused.value}"
    # The remedy of a remote facade is a part of its text.
    assert not isinstance(refused.value, SfnError) or refused.value.remedy or "; " in refused.value.found
    return f"{refused.value}"
