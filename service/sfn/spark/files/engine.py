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
from sfn.reader.predicate import parse_filter
from sfn.reader.table import open_allowed_io
from sfn.spark.asked import ReadRequest
from sfn.spark.files import features, footers, manifests, vectors
from sfn.spark.files.constants import fill_partition_values
from sfn.spark.files.deletes import DeletedRows, with_positions
from sfn.spark.files.history import SchemaHistory, schema_history
from sfn.spark.files.names import column_names
from sfn.spark.files.plan import PlannedFile, ReadPlan, plan_read
from sfn.spark.files.pruning import prune_files
from sfn.spark.files.relation import ParquetReader
from sfn.spark.files.schema import read_field, result_field
from sfn.spark.files.seen import output_columns
from sfn.spark.files.spelling import HadoopUris, check_file_location
from sfn.spark.pinned import PinnedTable, pin_table


class FilesEngine:
    """Implements `Engine`. PyIceberg plans, and Spark's own Parquet reader reads.

    It can't read what Iceberg's own library can beside that: see `sfn.spark.files.features` and `footers`.
    """

    name: Final = "files"

    def missing_requirement(self, spark: SparkSession) -> str:
        return "Spark Connect" if getattr(spark, "_jvm", None) is None else ""

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        if lacking := self.missing_requirement(spark):
            remedy = "use a classic session, or engine='sfn'"
            raise NotInstalled("Spark", expected="a session with its JVM", found=lacking, remedy=remedy)
        pinned = pin_table(request)
        where, found = pinned.found.metadata_location, pinned.found
        case_sensitive = spark.conf.get("spark.sql.caseSensitive") == "true"
        past = schema_history(pinned.metadata.schemas, pinned.metadata.last_column_id)
        features.check_schema(where, pinned.schema, past, case_sensitive=case_sensitive)
        plan = _plan_files(
            pinned, open_allowed_io(where, found.allowed_locations, found.file_system_options), request.row_filter
        )
        if not plan.plain and not plan.with_deletes:
            return spark.createDataFrame([], StructType([result_field(field) for field in pinned.schema.fields]))
        return _read_files(spark, pinned, plan, past)


def _plan_files(pinned: PinnedTable, io: FileIO, row_filter: str | None) -> ReadPlan:
    where = pinned.found.metadata_location
    entries: Sequence[ManifestEntry] = []
    if pinned.snapshot is not None:
        entries = manifests.list_live_files(io, pinned.snapshot, where)
    if row_filter is not None:
        entries = prune_files(entries, parse_filter(row_filter), pinned.schema)
    features.check_files(where, (entry.data_file for entry in entries))
    footers.check_field_ids(io, footers.files_to_check(entries, pinned.metadata), where)
    plan = plan_read(entries, vectors.read_deletion_vectors(io, entries, where), pinned.metadata.specs())
    _check_nested(plan, pinned.schema)
    required = {field.field_id: field.name for field in pinned.schema.fields if field.required}
    for file in (*plan.plain, *plan.with_deletes):
        for number in file.constants.keys() & required.keys():
            # Spark refuses a file without it, in the middle of a query.
            raise features.not_supported_error(
                file.path, f"a file that may lack the required column {required[number]!r}, a partition's"
            )
    if plan.listed_twice:
        raise features.not_supported_error(where, f"a file that is listed twice: {plan.listed_twice}")
    return plan


def _check_nested(plan: ReadPlan, schema: Schema) -> None:
    """Refuse files that may lack a field of a struct which their partition has a value of: that is not put in here.

    Raises:
        NotSupported: there is one.
    """
    top = {field.field_id for field in schema.fields}
    nested = {number: name for number, name in index_name_by_id(schema).items() if number not in top}
    for file in (*plan.plain, *plan.with_deletes):
        for number in file.constants.keys() & nested.keys():
            if file.constants[number] is not None:
                raise features.not_supported_error(
                    file.path, f"a file that may lack {nested[number]!r}, a field of a struct and a partition's"
                )


def _read_files(spark: SparkSession, pinned: PinnedTable, plan: ReadPlan, past: SchemaHistory) -> DataFrame:
    where, allowed_locations, hadoop_uris = (
        pinned.found.metadata_location,
        pinned.found.allowed_locations,
        HadoopUris(spark),
    )
    every = (*plan.plain, *plan.with_deletes, *plan.deletes)
    uris = {file.path: hadoop_uris.uri(check_file_location(file.path, allowed_locations, where)) for file in every}
    fields = pinned.schema.fields
    names = column_names(pinned.schema, past)
    schema = StructType([read_field(field, names[field.field_id]) for field in fields])
    reader = ParquetReader(spark, [file.size for file in every])

    deletes = DeletedRows(spark, reader, plan, uris)
    parts = []
    for files, is_touched in ((plan.plain, False), (plan.with_deletes, True)):
        for some, is_lacking in _group_by_lacking(files, {field.field_id for field in fields}):
            part = reader.rows([(uris[file.path], file.size) for file in some], schema)
            part = with_positions(part) if is_touched or is_lacking else part
            part = deletes.remove_from(part) if is_touched else part
            parts.append(fill_partition_values(spark, part, some, fields, names, uris) if is_lacking else part)
    first, *others = [output_columns(part, fields, names, past) for part in parts]
    for other in others:
        first = first.union(other)
    return first


def _group_by_lacking(
    files: Sequence[PlannedFile], columns: Collection[int]
) -> list[tuple[Sequence[PlannedFile], bool]]:
    """The files that have all of the columns, and those that may lack one, without groups that are empty."""

    def is_lacking(file: PlannedFile) -> bool:
        # A column is NULL as well where its partition is.
        return any(value is not None for number, value in file.constants.items() if number in columns)

    groups = (([file for file in files if is_lacking(file) is lacking], lacking) for lacking in (False, True))
    return [(some, lacking) for some, lacking in groups if some]
