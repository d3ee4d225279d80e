"""The engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry
from pyiceberg.schema import Schema, index_name_by_id
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sfn.errors import NotInstalled
from sfn.reader.predicate import parsed
from sfn.reader.table import bounded
from sfn.spark.asked import Asked
from sfn.spark.files import features, footers, manifests, vectors
from sfn.spark.files.constants import filled
from sfn.spark.files.deletes import Deletes, placed
from sfn.spark.files.history import History, history
from sfn.spark.files.names import read_by
from sfn.spark.files.plan import File, Plan, planned
from sfn.spark.files.pruning import pruned
from sfn.spark.files.relation import Reader
from sfn.spark.files.schema import as_read, as_seen
from sfn.spark.files.seen import seen
from sfn.spark.files.spelling import Spelling, place_of
from sfn.spark.pinned import Pinned, pin


class FilesEngine:
    """Implements `Engine`. PyIceberg plans, and Spark's own Parquet reader reads.

    It can't read what Iceberg's own library can beside that: see `sfn.spark.files.features` and `footers`.
    """

    name: Final = "files"

    def why_not(self, spark: SparkSession) -> str:
        return "Spark Connect" if getattr(spark, "_jvm", None) is None else ""

    def read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        if lacking := self.why_not(spark):
            remedy = "use a classic session, or engine='sfn'"
            raise NotInstalled("Spark", expected="a session with its JVM", found=lacking, remedy=remedy)
        pinned = pin(asked)
        where, found = pinned.found.metadata_location, pinned.found
        case_sensitive = spark.conf.get("spark.sql.caseSensitive") == "true"
        past = history(pinned.whole.schemas, pinned.whole.last_column_id)
        features.check_schema(where, pinned.schema, past, case_sensitive=case_sensitive)
        plan = _plan(pinned, bounded(where, found.trust, found.opening), asked.row_filter)
        if not plan.plain and not plan.touched:
            return spark.createDataFrame([], StructType([as_seen(field) for field in pinned.schema.fields]))
        return _rows(spark, pinned, plan, past)


def _plan(pinned: Pinned, io: FileIO, row_filter: str | None) -> Plan:
    where = pinned.found.metadata_location
    entries: Sequence[ManifestEntry] = []
    if pinned.snapshot is not None:
        entries = manifests.live(io, pinned.snapshot, where)
    if row_filter is not None:
        entries = pruned(entries, parsed(row_filter), pinned.schema)
    features.check_files(where, (entry.data_file for entry in entries))
    footers.check(io, footers.in_doubt(entries, pinned.whole), where)
    plan = planned(entries, vectors.read(io, entries, where), pinned.whole.specs())
    _check_nested(plan, pinned.schema)
    required = {field.field_id: field.name for field in pinned.schema.fields if field.required}
    for file in (*plan.plain, *plan.touched):
        for number in file.constants.keys() & required.keys():
            # Spark refuses a file without it, in the middle of a query.
            raise features.refused(
                file.path, f"a file that may lack the required column {required[number]!r}, a partition's"
            )
    if plan.twice:
        raise features.refused(where, f"a file that is listed twice: {plan.twice}")
    return plan


def _check_nested(plan: Plan, schema: Schema) -> None:
    """Refuse files that may lack a field of a struct which their partition has a value of: that is not put in here.

    Raises:
        NotSupported: there is one.
    """
    top = {field.field_id for field in schema.fields}
    nested = {number: name for number, name in index_name_by_id(schema).items() if number not in top}
    for file in (*plan.plain, *plan.touched):
        for number in file.constants.keys() & nested.keys():
            if file.constants[number] is not None:
                raise features.refused(
                    file.path, f"a file that may lack {nested[number]!r}, a field of a struct and a partition's"
                )


def _rows(spark: SparkSession, pinned: Pinned, plan: Plan, past: History) -> DataFrame:
    where, trust, spelling = pinned.found.metadata_location, pinned.found.trust, Spelling(spark)
    every = (*plan.plain, *plan.touched, *plan.deletes)
    uris = {file.path: spelling.uri(place_of(file.path, trust, where)) for file in every}
    fields = pinned.schema.fields
    names = read_by(pinned.schema, past)
    schema = StructType([as_read(field, names[field.field_id]) for field in fields])
    reader = Reader(spark, [file.size for file in every])

    deletes = Deletes(spark, reader, plan, uris)
    parts = []
    for files, is_touched in ((plan.plain, False), (plan.touched, True)):
        for some, is_lacking in _apart(files, {field.field_id for field in fields}):
            part = reader.rows([(uris[file.path], file.size) for file in some], schema)
            part = placed(part) if is_touched or is_lacking else part
            part = deletes.without(part) if is_touched else part
            parts.append(filled(spark, part, some, fields, names, uris) if is_lacking else part)
    first, *others = [seen(part, fields, names, past) for part in parts]
    for other in others:
        first = first.union(other)
    return first


def _apart(files: Sequence[File], columns: Collection[int]) -> list[tuple[Sequence[File], bool]]:
    """The files that have all of the columns, and those that may lack one, without groups that are empty."""

    def is_lacking(file: File) -> bool:
        # A column is NULL as well where its partition is.
        return any(value is not None for number, value in file.constants.items() if number in columns)

    groups = (([file for file in files if is_lacking(file) is lacking], lacking) for lacking in (False, True))
    return [(some, lacking) for some, lacking in groups if some]
