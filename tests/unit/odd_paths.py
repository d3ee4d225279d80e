"""A table whose data files, manifests and manifest list have names that a URL can't have as they are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from sfn.sfnfile.document import Document, render
from sfn.sfnfile.naming import FileLayout, FileOwner
from tests.unit.directory import FIRST_ORDINAL, WRITTEN_AT

ODD: Final = (
    *("s=a#1", "s=a?1", "s=a?x=1&y=2#z", "s=a%2Fb", "s=100%", "s=%zz", "s=a b", " s", "s ", "s=a+b", "s=ä/é", "s=日本"),
    *("s=a;b", "s=a&b", "s=a'b", 's="b"', "s=a,b", "s=a:b", "s=a@b", "s=a|b", "s=a^b", "s=`a`", "s=<a>", "s=~", "s=$a"),
    *("s=*", "s=[a]", "s={a}", "s=!a", "s=(a)", "..a", "a..", "...", "_s", ".s", "s=\U0001f9ca", "s=e\u0301"),
)
"""Folders of data files, one file in each."""
NOT_ON_EVERY_STORE: Final = ("s=a\\1", "/s=1", "//s=2/")
"""Such with a backslash or with empty segments."""


@dataclass(frozen=True, slots=True)
class OddTable:
    """The table.

    Attributes:
        directory: where it is read.
        rows: how many it has.
    """

    directory: str
    rows: int


def odd_table(
    catalog: SqlCatalog, location: str, put: Callable[[str, bytes], None], names: tuple[str, ...], below: str = "odd#?"
) -> OddTable:
    """Make the table, with its SFN file.

    Args:
        catalog: writes metadata; its namespace `n` is there.
        put: writes a file at a location.
        names: of the folders of data files, one row in each.
        below: the folder of manifests and manifest list.
    """
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    metadata = f"{location}/metadata"
    table = catalog.create_table(
        "n.t", schema, location=location, properties={"write.metadata.path": f"{metadata}/{below}"}
    )
    files = []
    for number, name in enumerate(names):
        path, body = f"{location}/data/{name}/f.parquet", io.BytesIO()
        pq.write_table(pa.table({"id": [number]}, schema=schema), body)
        put(path, body.getvalue())
        files.append(_data_file(path, len(body.getvalue())))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for one in files:
            append.append_data_file(one)
    table.refresh()
    # A metadata file of such a name is not published.
    pointer = f"{metadata}/00001-a.metadata.json"
    put(pointer, table.metadata.model_dump_json().encode())
    document = Document(
        catalog_id="0123456789abcdef0123456789abcdef",
        namespace=("n",),
        name="t",
        guid=str(table.metadata.table_uuid),
        metadata_file_path=pointer,
        ordinal=FIRST_ORDINAL,
        written_at=WRITTEN_AT,
        snapshot_id=table.metadata.current_snapshot_id,
    )
    put(FileLayout(location).keys(FileOwner(("n",), "t"))[0], render(document))
    assert json.loads(table.metadata.model_dump_json())["snapshots"][0]["manifest-list"].startswith(
        f"{metadata}/{below}/"
    )
    return OddTable(location, len(names))


def _data_file(path: str, size: int) -> DataFile:
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
        column_sizes=None,
        value_counts=None,
        null_value_counts=None,
        nan_value_counts=None,
        lower_bounds=None,
        upper_bounds=None,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = 0
    return made
