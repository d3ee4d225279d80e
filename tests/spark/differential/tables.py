"""Odd tables: Iceberg's own library writes their metadata, PyArrow their files, and chance decides what is odd."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TimeTransform
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from sfn.sfnfile.naming import MAIN_BRANCH
from tests.spark.differential.values import TIMES, some, to_arrow, to_json

NAMES: Final = ["a", "b", "c", "a b", "ü", "_x", "x-y", "1st", "p.q", "group", "order", "sfn_row"]
_PRIMITIVES: Final = [
    *("boolean", "int", "long", "float", "double", "decimal(9, 2)", "date", "timestamp"),
    *("decimal(20, 4)", "decimal(20, 4)", "timestamptz", "string", "string", "uuid", "fixed[4]", "binary"),
]
_PROMOTIONS: Final = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(18, 2)"}
_NESTED: Final = ["struct", "list", "map", "list of structs"]
_FOLDERS: Final = ["data", "data", "data", "data/a=b", "data/ü ü", "data/%20", "data/_d", "data/.h", "data/x{1}"]
_FILES: Final = [
    "{}",
    "{}",
    "{}",
    "{}",
    "_{}",
    ".{}",
    "_{}=1",
    "[{}]",
    "{}*",
    "{} +&",
    "{}%41",
    "{}.gz",
    "{}._COPYING_",
    "{}#1",
    "{}?1",
]
DANGLING_BRANCH, OTHER, TAG = "dangling branch", "other", "tag"
REFERENCES: Final = ("dangling head", "heads that disagree", "branch main without a current snapshot", DANGLING_BRANCH)
"""Faults of the references to snapshots: all but the last one concern the current snapshot."""
_STRAYS: Final = [pa.int64(), pa.string(), pa.struct([("x", pa.int64())])]
"""Types of a column that has no field id and is not mapped."""
_PREFIXES: Final = ["", "file:", "file://"]
_DEFAULTS: Final = {
    "int": "7",
    "long": "7",
    "string": '"new"',
    "date": '"2026-11-02"',
    "boolean": "true",
    "double": "1.5",
}
_METRICS: Final = ["none", "counts", "truncate(2)", "truncate(16)", "full"]
_PATH_ID, _POSITION_ID, _ROW_ID = 2147483546, 2147483545, 2147483544
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MAPPING: Final = "schema.name-mapping.default"
_ODD_IN_PARTITIONS: Final = (types.FloatType, types.DoubleType, types.DateType, *TIMES)
_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""Numbers of partitions as Java's JSON has them."""


@dataclass(frozen=True, slots=True)
class Written:
    """A data file.

    Attributes:
        described: it, as Java's `ContentFileParser` has it.
        ids: of its rows.
    """

    path: str
    described: Mapping[str, Any]
    ids: Sequence[int]


@dataclass
class OddTable:
    """A table.

    Attributes:
        location: its directory.
        java: as Iceberg's own library has it.
        trace: what was done to it.
        is_mapped: it has files without field ids.
        has_milliseconds: Iceberg's own library may take such times for microseconds, on Spark.
        has_odd_deletes: it has delete files with statistics of columns that say nothing of the deleted rows. Iceberg's
            own library may overlook such files where a filter compares these columns.
        reference: which of `REFERENCES` its metadata has; empty where its references are right.
        edited: the metadata file that was changed by hand, if one was.
        ref: the branch or tag that is read.
        snapshot: the snapshot of `ref`, if it is not the current one.
    """

    location: Path
    java: Any
    trace: list[str] = field(default_factory=list)
    is_mapped: bool = False
    has_milliseconds: bool = False
    has_odd_deletes: bool = False
    reference: str = ""
    edited: Path | None = None
    ref: str = MAIN_BRANCH
    snapshot: int | None = None

    @property
    def metadata_location(self) -> str:
        """The current metadata file."""
        if self.edited is not None:
            return f"{self.edited}"
        return f"{self.java.operations().current().metadataFileLocation()}"


class Maker:
    """Makes a table.

    Args:
        folder: where it will lie.
        seed: of all that is left to chance.
        most: steps at most, to find the one that matters.
    """

    def __init__(self, spark: SparkSession, folder: Path, seed: int, most: int | None = None) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no name of its own for it
        self._jvm, self._iceberg = jvm, jvm.org.apache.iceberg
        # Hadoop starts a process for each permission that it sets, and its raw file system sets none.
        self._conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
        self._conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        self._conf.setBoolean("fs.file.impl.disable.cache", True)
        features = self._iceberg.shaded.com.fasterxml.jackson.core.JsonParser.Feature
        self._mapper = self._iceberg.util.JsonUtil.mapper().copy()
        self._mapper.configure(features.ALLOW_NON_NUMERIC_NUMBERS, True)
        self._seed, self._rng = seed, Random(seed)
        self._most = most
        self._folder = folder / f"t{seed}"
        self._numbers = iter(range(1, 1_000_000))
        self._files: list[Written] = []
        self._deleted: set[str] = set()

    def make(self) -> OddTable:
        """Return the table, with its rows."""
        self._version = self._rng.choice([1, 2, 2, 2, 3, 3])
        self._has_plain_names = self._rng.random() < 0.4
        self._rounds_times = self._rng.random() < 0.5
        fields = [{"id": 1, "name": "id", "required": True, "type": "long"}]
        names = self._rng.sample(NAMES, self._rng.randrange(2, 6))
        for number, name in enumerate(names, 2):
            kind = self._struct(100 * number) if number == 2 and self._rng.random() < 0.2 else self._type(100 * number)
            required = isinstance(kind, str) and self._rng.random() < 0.15
            fields.append({"id": number, "name": name, "required": required, "type": kind})
        schema = self._iceberg.SchemaParser.fromJson(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}))
        properties = self._jvm.java.util.HashMap()
        properties.put("format-version", f"{self._version}")
        properties.put("write.metadata.metrics.default", self._rng.choice(_METRICS))
        tables = self._iceberg.hadoop.HadoopTables(self._conf)
        java = tables.create(
            schema,
            self._iceberg.PartitionSpec.unpartitioned(),
            self._iceberg.SortOrder.unsorted(),
            properties,
            f"{self._folder}",
        )
        self._table = OddTable(self._folder, java)
        self._say(f"version {self._version}: " + ", ".join(f"{one['name']} {one['type']}" for one in fields))
        steps = [self._partition] if self._rng.random() < 0.6 else []
        steps += [self._append, *(self._step() for _ in range(self._rng.randrange(1, 7)))]
        for number, step in enumerate(steps):
            if self._most is None or number < self._most:
                step()
        if kind := reference_of(self._seed):
            self._refer(kind)
        return self._table

    def _refer(self, kind: str) -> None:
        """Write a metadata file that has one of `REFERENCES`, if the table has snapshots enough."""
        path = Path(self._table.metadata_location.removeprefix("file:"))
        metadata = json.loads(path.read_text())
        current = metadata["current-snapshot-id"]
        others = [one["snapshot-id"] for one in metadata.get("snapshots", []) if one["snapshot-id"] != current]
        gone, refs = {"snapshot-id": 1, "type": "branch"}, metadata.setdefault("refs", {})
        if kind == DANGLING_BRANCH and not self._table.is_mapped:
            refs[OTHER] = gone
        elif kind == "dangling head":
            metadata["current-snapshot-id"] = 1
            if self._rng.random() < 0.5:
                refs["main"] = gone
            else:
                del metadata["refs"]
        elif kind == "heads that disagree" and others:
            refs["main"]["snapshot-id"] = self._rng.choice(others)
        elif kind == "branch main without a current snapshot" and "main" in refs:
            metadata["current-snapshot-id"] = self._rng.choice([None, -1])
        else:
            return
        self._table.reference, self._table.edited = kind, path.with_name(f"v99{path.name}")
        self._table.edited.write_text(json.dumps(metadata))
        self._say(kind)

    def _step(self) -> Any:  # noqa: ANN401 - a method
        evolving = [self._add, self._drop, self._rename, self._promote, self._move, self._nest]
        deleting = [self._delete_rows, self._delete_rows, self._delete_equal] if self._version > 1 else []
        rare = [self._partition, self._unpartition, self._delete_file, self._map_names]
        return self._rng.choice([self._append] * 5 + evolving + deleting * 2 + rare)

    def _say(self, what: str) -> None:
        self._table.trace.append(what)

    @property
    def _schema(self) -> Schema:
        return Schema.model_validate_json(self._iceberg.SchemaParser.toJson(self._table.java.schema()))

    @property
    def _spec(self) -> PartitionSpec:
        return PartitionSpec.model_validate_json(self._iceberg.PartitionSpecParser.toJson(self._table.java.spec()))

    def _type(self, number: int) -> str | dict[str, Any]:
        """Return a type, as JSON has it, whose own fields have ids from a number on."""
        rng = self._rng
        if rng.random() < 0.8:
            return rng.choice(_PRIMITIVES)
        struct = self._struct(number)
        match rng.choice(_NESTED):
            case "struct":
                return struct
            case "list":
                return {"type": "list", "element-id": number, "element": "double", "element-required": False}
            case "map":
                ids = {"key-id": number, "value-id": number + 1, "value-required": False}
                return {"type": "map", "key": "string", "value": "int"} | ids
            case _:
                return {"type": "list", "element-id": number, "element": struct, "element-required": False}

    def _struct(self, number: int) -> dict[str, Any]:
        inner = [
            {"id": number + one, "name": name, "required": False, "type": self._rng.choice(["int", "string", "double"])}
            for one, name in enumerate(("x", "y"), 1)
        ]
        return {"type": "struct", "fields": inner}

    # Schema and partitions.

    def _change(self, what: str, change: Any) -> None:  # noqa: ANN401 - a function of Java's builder
        """Commit a change of the schema, unless Iceberg refuses it."""
        self._commit(what, self._table.java.updateSchema(), change)

    def _commit(self, what: str, builder: Any, change: Any) -> None:  # noqa: ANN401 - Java's, and as above
        try:
            change(builder)
            builder.commit()
        except Exception as error:  # noqa: BLE001 - Java says no to some of what chance wants
            self._say(f"refused: {what}: {type(error).__name__}")
            return
        self._table.java.refresh()
        self._say(what)

    def _primitive(self, text: str) -> Any:  # noqa: ANN401 - Java's
        return self._iceberg.types.Types.fromPrimitiveString(text)

    def _add(self) -> None:
        free = [name for name in NAMES if name not in {one.name for one in self._schema.fields}]
        name, kind = self._rng.choice(free), self._rng.choice(_PRIMITIVES)
        if self._version > 2 and kind in _DEFAULTS and self._rng.random() < 0.6:
            java = self._primitive(kind)
            default = self._iceberg.expressions.Expressions.lit(json.loads(_DEFAULTS[kind])).to(java)
            self._change(
                f"add {name} {kind} default {_DEFAULTS[kind]}", lambda to: to.addColumn(name, java, None, default)
            )
        else:
            self._change(f"add {name} {kind}", lambda to: to.addColumn(name, self._primitive(kind)))

    def _others(self) -> list[types.NestedField]:
        return [one for one in self._schema.fields if one.name != "id"]

    def _drop(self) -> None:
        if others := self._others():
            one = self._rng.choice(others)
            self._change(f"drop {one.name}", lambda to: to.deleteColumn(one.name))
            if self._rng.random() < 0.5:
                kind = self._rng.choice(_PRIMITIVES)
                self._change(f"add {one.name} again, {kind}", lambda to: to.addColumn(one.name, self._primitive(kind)))

    def _rename(self) -> None:
        if others := self._others():
            one = self._rng.choice(others)
            free = [name for name in NAMES if name not in {each.name for each in self._schema.fields}]
            name = self._rng.choice(free)
            self._change(f"rename {one.name} to {name}", lambda to: to.renameColumn(one.name, name))

    def _promote(self) -> None:
        fitting = [one for one in self._others() if f"{one.field_type}" in _PROMOTIONS]
        if fitting:
            one = self._rng.choice(fitting)
            kind = _PROMOTIONS[f"{one.field_type}"]
            self._change(f"make {one.name} {kind}", lambda to: to.updateColumn(one.name, self._primitive(kind)))

    def _move(self) -> None:
        one = self._rng.choice(self._schema.fields)
        self._change(f"move {one.name}", lambda to: to.moveFirst(one.name))
        self._change(f"{one.name} optional", lambda to: to.makeColumnOptional(one.name))

    def _nest(self) -> None:
        structs = [one for one in self._others() if isinstance(one.field_type, types.StructType)]
        if structs and "." not in structs[0].name:
            one = structs[0]
            if self._rng.random() < 0.5:
                self._change(f"add {one.name}.z", lambda to: to.addColumn(one.name, "z", self._primitive("int")))
            else:
                self._change(f"rename {one.name}.x", lambda to: to.renameColumn(f"{one.name}.x", "w"))

    def _partition(self) -> None:
        if (parts := _parts(self._schema)) and self._rng.random() < 0.5:
            part = self._schema.find_column_name(self._rng.choice(parts).field_id)
            builder, ref = self._table.java.updateSpec(), self._iceberg.expressions.Expressions.ref(part)
            self._commit(f"partition by identity({part})", builder, lambda to: to.addField(ref))
            return
        simple = [one for one in self._schema.fields if one.field_type.is_primitive and "." not in one.name]
        # Of these some values are odd.
        odd = [one for one in simple if isinstance(one.field_type, _ODD_IN_PARTITIONS)]
        one = self._rng.choice(odd if odd and self._rng.random() < 0.5 else simple)
        of = self._iceberg.expressions.Expressions
        fitting: list[tuple[str, Any]] = [("identity", of.ref(one.name))] * 3
        match one.field_type:
            case types.DateType():
                fitting += [("year", of.year(one.name)), ("month", of.month(one.name)), ("day", of.day(one.name))]
            case kind if isinstance(kind, TIMES):
                fitting += [("month", of.month(one.name)), ("day", of.day(one.name)), ("hour", of.hour(one.name))]
                fitting += [("year", of.year(one.name))]
            case types.IntegerType() | types.LongType() | types.StringType() | types.DecimalType():
                fitting += [("bucket", of.bucket(one.name, 4)), ("truncate", of.truncate(one.name, 2))]
            case types.UUIDType() | types.FixedType() | types.BinaryType():
                fitting += [("bucket", of.bucket(one.name, 4))]
            case _:
                pass
        name, term = self._rng.choice(fitting)
        builder = self._table.java.updateSpec()
        self._commit(f"partition by {name}({one.name})", builder, lambda to: to.addField(term))

    def _unpartition(self) -> None:
        fields = self._spec.fields
        if fields:
            one = self._rng.choice(fields)
            builder = self._table.java.updateSpec()
            self._commit(f"no partition by {one.name}", builder, lambda to: to.removeField(one.name))

    def _map_names(self) -> None:
        if self._table.has_milliseconds:
            return
        mapping = self._iceberg.mapping.MappingUtil.create(self._table.java.schema())
        text = self._iceberg.mapping.NameMappingParser.toJson(mapping)
        self._table.java.updateProperties().set(_MAPPING, text).commit()
        self._table.java.refresh()
        self._say("map names")
        self._table.is_mapped = True
        self._append(has_ids=False)

    # Files.

    def _append(self, *, has_ids: bool = True) -> None:
        files = [self._data(has_ids=has_ids) for _ in range(self._rng.choice([1, 1, 2, 3]))]
        append = self._table.java.newAppend()
        for one in files:
            append.appendFile(self._java_file(one.described))
        append.commit()
        self._table.java.refresh()
        self._files += files

    def _path(self, kind: str) -> Path:
        # The engine `files` refuses a table for one hidden name.
        files, folders = (["{}"], ["data"]) if self._has_plain_names else (_FILES, _FOLDERS)
        name = self._rng.choice(files).format(f"{next(self._numbers)}")
        path = self._folder / self._rng.choice(folders) / f"{name}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _rows(self, schema: Schema, spec: PartitionSpec, *, whole: bool) -> list[dict[int, Any]]:
        """Return rows of one partition, by field ids."""
        rng = self._rng
        sources = {
            one.source_id: _partition_value(rng, schema.find_field(one.source_id), whole=whole)
            for one in spec.fields
            if not _is_gone(one, schema)
        }
        rows: list[dict[int, Any]] = []
        for _ in range(rng.choice([0, 1, 2, 3, 3, 5])):
            row: dict[int, Any] = {
                one.field_id: some(rng, one.field_type, optional=not one.required, whole=whole) for one in schema.fields
            }
            row[1] = next(self._numbers)
            for source, value in sources.items():
                _put(row, schema, source, value)
            rows.append(row)
        return rows

    def _data(self, *, has_ids: bool) -> Written:
        rng, schema, spec = self._rng, self._schema, self._spec
        # No library reads milliseconds right where names are mapped.
        odd_times = rng.random() < 0.15 and not self._table.is_mapped
        rows = self._rows(schema, spec, whole=odd_times)
        identity = {one.source_id for one in spec.fields if isinstance(one.transform, IdentityTransform)}
        missing = identity - {1} if rng.random() < 0.3 else set()
        missing -= {_last(one, missing) for one in schema.fields}
        fields = [_lacking(one, missing) for one in schema.fields if one.field_id not in missing]
        arrow = schema_to_pyarrow(Schema(*fields), include_field_ids=has_ids)
        if rng.random() < 0.4:
            arrow = pa.schema([_small(one) for one in arrow])
        columns = [
            pa.array([to_arrow(_left(rng, row, one, schema), one.field_type) for row in rows], kind.type)
            for one, kind in zip(fields, arrow, strict=True)
        ]
        path = self._path("parquet")
        options: dict[str, Any] = {
            "row_group_size": rng.choice([1, 2, 1_000]),
            "compression": rng.choice(["snappy", "zstd", "gzip", "none"]),
            "use_dictionary": rng.random() < 0.5,
            "write_statistics": rng.random() < 0.8,
            # Of truths in pages of the second version Iceberg's own library reads none on Spark.
            "data_page_version": "1.0" if pa.bool_() in arrow.types else rng.choice(["1.0", "2.0"]),
            "store_decimal_as_integer": rng.random() < 0.5,
        }
        if odd_times:
            # Of times without a zone Iceberg's own library makes those with one, where they have 96 bits.
            is_96 = rng.random() < 0.5 and not any(isinstance(one.field_type, types.TimestampType) for one in fields)
            options |= {"use_deprecated_int96_timestamps": True} if is_96 else {"coerce_timestamps": "ms"}
            self._table.has_milliseconds |= not is_96
        if has_stray := rng.random() < 0.1:
            # Iceberg's own generic reader fails for one with parts, in a file of which other columns have ids.
            kind = rng.choice(_STRAYS[:2] if has_ids else _STRAYS)
            arrow, columns = arrow.append(pa.field("stray", kind)), [*columns, pa.nulls(len(rows), kind)]
        pq.write_table(pa.Table.from_arrays(columns, schema=arrow), path, **options)
        self._say(
            f"file {path.relative_to(self._folder)}: {len(rows)} rows{'' if has_ids else ', no ids'}"
            f"{f', without {missing}' if missing else ''}{', with a stray column' if has_stray else ''}"
            f"{f', {options}' if odd_times else ''}"
        )
        described = self._described(path, rows, missing, has_ids=has_ids)
        if "coerce_timestamps" in options:
            # Iceberg's own library takes the bounds of milliseconds for those of microseconds.
            described = {name: value for name, value in described.items() if not name.endswith("-bounds")}
        return Written(described["file-path"], described, [row[1] for row in rows])

    def _described(
        self, path: Path, rows: Sequence[Mapping[int, Any]], missing: set[int], *, has_ids: bool
    ) -> dict[str, Any]:
        """Return a data file as a manifest has it, with the metrics of its footer or fewer."""
        rng, java = self._rng, self._table.java
        config = self._iceberg.MetricsConfig.forTable(java)
        source = java.io().newInputFile(f"{path}")
        builder = (
            self._iceberg.DataFiles.builder(java.spec())
            .withPath(rng.choice(_PREFIXES) + f"{path}")
            .withFormat("PARQUET")
            .withFileSizeInBytes(path.stat().st_size)
        )
        if rng.random() < 0.8:
            mapping = None if has_ids else self._iceberg.mapping.MappingUtil.create(java.schema())
            metrics = self._iceberg.parquet.ParquetUtil.fileMetrics(source, config, mapping)
            builder = builder.withMetrics(metrics)
        else:
            builder = builder.withRecordCount(len(rows))
        if java.spec().isPartitioned():
            builder = builder.withPartition(self._key(rows))
        found: dict[str, Any] = json.loads(self._iceberg.ContentFileParser.toJson(builder.build(), java.spec()))
        if missing and rng.random() < 0.5 and "value-counts" in found:
            # So do writers that count the values of a partition's column by the rows.
            found["value-counts"]["keys"] += sorted(missing)
            found["value-counts"]["values"] += [len(rows)] * len(missing)
        if "partition" in found:
            # A text is never one of these.
            found["partition"] = [_NOT_FINITE.get(f"{one}", one) for one in found["partition"]]
        for name in ("null-value-counts", "nan-value-counts", "lower-bounds", "upper-bounds"):
            if rng.random() < 0.1:
                found.pop(name, None)
        return found

    def _key(self, rows: Sequence[Mapping[int, Any]]) -> Any:  # noqa: ANN401 - Java's
        """Return the partition of rows."""
        java, schema = self._table.java, self._schema
        first = rows[0] if rows else {}
        sources = [schema.find_field(one.source_id) for one in self._spec.fields if not _is_gone(one, schema)]
        cells = {
            f"{one.field_id}": to_json(first[one.field_id], one.field_type)
            for one in sources
            if first.get(one.field_id) is not None
        }
        for one in schema.fields:
            if isinstance(one.field_type, types.StructType) and first.get(one.field_id) is not None:
                pairs = zip(one.field_type.fields, first[one.field_id], strict=True)
                cells[f"{one.field_id}"] = {
                    f"{part.field_id}": value for part, value in pairs if part in sources and value is not None
                }
        if schema.find_field(1).required:
            cells = {"1": 1} | cells
        node = self._mapper.readTree(json.dumps(cells))
        record = self._iceberg.SingleValueParser.fromJson(java.schema().asStruct(), node)
        key = self._iceberg.PartitionKey(java.spec(), java.schema())
        key.partition(record)
        for number, by in enumerate(self._spec.fields if self._rounds_times else []):
            if isinstance(by.transform, TimeTransform) and first.get(by.source_id) is not None:
                key.set(number, self._rounded(f"{by.transform}", first[by.source_id]))
        return key

    def _rounded(self, unit: str, value: date | int) -> int:
        """Return the years, months, days or hours since 1970 as Iceberg before 0.12 counted them: rounded to zero."""
        time = self._jvm.java.time
        if isinstance(value, date):
            first, last = (time.LocalDate.ofEpochDay(days) for days in (0, value.toordinal() - _EPOCH))
        else:
            first, last = (
                time.LocalDateTime.ofEpochSecond(micros // 1_000_000, micros % 1_000_000 * 1_000, time.ZoneOffset.UTC)
                for micros in (0, value)
            )
        rounded: int = time.temporal.ChronoUnit.valueOf(f"{unit.upper()}S").between(first, last)
        return rounded

    def _java_file(self, described: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Java's
        node = self._mapper.readTree(json.dumps(described))
        return self._iceberg.ContentFileParser.fromJson(node, self._table.java.specs())

    def _is_parsed(self, one: Written) -> bool:
        """Whether Java's JSON has the partition of a file: it has none where the partition's column was dropped."""
        spec = self._table.java.specs().get(one.described.get("spec-id", 0))
        return all(f"{field.type()}" != "unknown" for field in spec.partitionType().fields())

    # Deletes.

    def _delete_rows(self) -> None:
        """Delete rows by their positions: in version 3 with a deletion vector, in version 2 with a file."""
        live = [one for one in self._files if one.path not in self._deleted and one.ids and self._is_parsed(one)]
        if not live:
            return
        one = self._rng.choice(live)
        positions = sorted(self._rng.sample(range(len(one.ids)), self._rng.randrange(1, len(one.ids) + 1)))
        if self._version > 2:
            self._deleted.add(one.path)
            described = self._vector(one, positions)
        else:
            described = self._positions(one, positions)
        self._say(f"delete rows {positions} of {one.path.rpartition('/')[2]} with {described['file-path']}")
        self._add_deletes(described)

    def _add_deletes(self, described: Mapping[str, Any]) -> None:
        self._table.java.newRowDelta().addDeletes(self._java_file(described)).commit()
        self._table.java.refresh()

    def _positions(self, of: Written, positions: Sequence[int]) -> dict[str, Any]:
        schema = pa.schema(
            [
                pa.field("file_path", pa.string(), False, {"PARQUET:field_id": f"{_PATH_ID}"}),
                pa.field("pos", pa.int64(), False, {"PARQUET:field_id": f"{_POSITION_ID}"}),
            ]
        )
        others = ["/elsewhere.parquet"] if self._rng.random() < 0.3 else []
        path = self._path("parquet")
        paths = [*others, *([of.path] * len(positions))]
        found: list[list[Any]] = [paths, [*(0 for _ in others), *positions]]
        rows = self._new_values(len(paths)) if self._rng.random() < 0.3 else []
        if rows:
            # Arrow makes no array of structs with a uuid.
            fields = [one for one in self._schema.fields if not isinstance(one.field_type, types.UUIDType)]
            kind = pa.struct(list(schema_to_pyarrow(Schema(*fields))))
            schema = schema.append(pa.field("row", kind, True, {"PARQUET:field_id": f"{_ROW_ID}"}))
            found.append([{one.name: to_arrow(row[one.field_id], one.field_type) for one in fields} for row in rows])
        pq.write_table(pa.table(found, schema=schema), path)
        described = self._deletes(of, path, "position-deletes", len(paths), "parquet")
        return described | (self._statistics(path, rows) if rows else {})

    def _new_values(self, count: int) -> list[dict[int, Any]]:
        """Return rows that are in no data file: an upsert deletes a row by its key, and may give its new values."""
        fields = self._schema.fields
        row = {one.field_id: some(self._rng, one.field_type, optional=not one.required) for one in fields}
        return [row | {1: next(self._numbers)} for _ in range(count)]

    def _statistics(self, path: Path, rows: Sequence[Mapping[int, Any]]) -> dict[str, Any]:
        """Return the statistics of a delete file that has whole rows."""
        self._table.has_odd_deletes = True
        found = self._described(path, rows, set(), has_ids=True)
        return {name: one for name, one in found.items() if name.endswith(("-counts", "-bounds"))}

    def _deletes(self, of: Written, path: Path, content: str, count: int, kind: str) -> dict[str, Any]:
        shared = {name: of.described[name] for name in ("spec-id", "partition") if name in of.described}
        return shared | {
            "content": content,
            "file-path": f"{path}",
            "file-format": kind,
            "file-size-in-bytes": path.stat().st_size,
            "record-count": count,
        }

    def _vector(self, of: Written, positions: Sequence[int]) -> dict[str, Any]:
        content = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
        blob = len(content).to_bytes(4, "big") + content + crc32(content).to_bytes(4, "big")
        described = {
            "type": "deletion-vector-v1",
            "fields": [2147483645],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": 4,
            "length": len(blob),
            "properties": {"referenced-data-file": of.path, "cardinality": f"{len(positions)}"},
        }
        footer = json.dumps({"blobs": [described], "properties": {}}).encode()
        path = self._path("puffin")
        magic = b"PFA1"
        path.write_bytes(magic + blob + magic + footer + len(footer).to_bytes(4, "little") + bytes(4) + magic)
        found = self._deletes(of, path, "position-deletes", len(positions), "puffin")
        return found | {"referenced-data-file": of.path, "content-offset": 4, "content-size-in-bytes": len(blob)}

    def _delete_equal(self) -> None:
        live = [one for one in self._files if one.ids and self._is_parsed(one)]
        if not live or self._rng.random() < 0.5:
            return
        of = self._rng.choice(live)
        gone = self._rng.sample(of.ids, self._rng.randrange(1, len(of.ids) + 1))
        path = self._path("parquet")
        is_whole = self._rng.random() < 0.5
        fields = [one for one in self._schema.fields if is_whole or one.field_id == 1]
        rows = [row | {1: number} for row, number in zip(self._new_values(len(gone)), gone, strict=True)]
        arrow = schema_to_pyarrow(Schema(*fields))
        columns = [[to_arrow(row[one.field_id], one.field_type) for row in rows] for one in fields]
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, arrow, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=arrow), path)
        self._say(f"delete the ids {gone}{', by whole rows' if is_whole else ''}")
        found = self._deletes(of, path, "equality-deletes", len(gone), "parquet") | {"equality-ids": [1]}
        self._add_deletes(found | (self._statistics(path, rows) if is_whole else {}))

    def _delete_file(self) -> None:
        live = [one for one in self._files if self._is_parsed(one)]
        if len(live) > 1:
            one = self._rng.choice(live)
            self._files.remove(one)
            self._table.java.newDelete().deleteFile(self._java_file(one.described)).commit()
            self._table.java.refresh()
            self._say(f"delete the file {one.path.rpartition('/')[2]}")


def reference_of(seed: int) -> str:
    """Return which of `REFERENCES` a seed's table has, if it can; empty where its references are right."""
    rng = Random(f"reference {seed}")
    return rng.choice(REFERENCES) if rng.random() < 0.25 else ""


def _is_gone(one: Any, schema: Schema) -> bool:  # noqa: ANN401 - a partition field
    """Whether the column of a partition field was dropped."""
    return schema.find_column_name(one.source_id) is None


def _parts(schema: Schema) -> list[types.NestedField]:
    """Return the fields of structs, which a table can be partitioned by."""
    structs = [one for one in schema.fields if isinstance(one.field_type, types.StructType) and "." not in one.name]
    return [part for one in structs for part in one.field_type.fields]  # type: ignore[attr-defined] # as above


def _put(row: dict[int, Any], schema: Schema, source: int, value: Any) -> None:  # noqa: ANN401 - of any type
    """Set a column or a field of a struct, which is not NULL then: Iceberg's own library knows none of such a NULL."""
    for one in schema.fields:
        if one.field_id == source:
            row[source] = value
        elif isinstance(one.field_type, types.StructType):
            ids = [part.field_id for part in one.field_type.fields]
            if source in ids:
                parts = list(row[one.field_id] or [None] * len(ids))
                parts[ids.index(source)] = value
                row[one.field_id] = tuple(parts)


def _last(one: types.NestedField, missing: set[int]) -> int:
    """Return the last part of a struct that is missing as a whole: Parquet has none without parts."""
    ids = [part.field_id for part in one.field_type.fields] if isinstance(one.field_type, types.StructType) else []
    return ids[-1] if ids and missing.issuperset(ids) else 0


def _lacking(one: types.NestedField, missing: set[int]) -> types.NestedField:
    """Return a column without the parts of a struct that are missing."""
    if not isinstance(one.field_type, types.StructType):
        return one
    parts = [part for part in one.field_type.fields if part.field_id not in missing]
    return one.model_copy(update={"field_type": types.StructType(*parts)})


def _left(rng: Random, row: Mapping[int, Any], one: types.NestedField, schema: Schema) -> Any:  # noqa: ANN401 - of any type
    """Return a column as a file has it: parts of it may be missing."""
    value, whole = row[one.field_id], schema.find_field(one.field_id).field_type
    if value is None or not isinstance(one.field_type, types.StructType) or not isinstance(whole, types.StructType):
        return value
    own = {part.field_id for part in one.field_type.fields}
    parts = list(zip(whole.fields, value, strict=True))
    there = tuple(part for field, part in parts if field.field_id in own)
    # A file may have NULL for a struct that is not NULL, because its partition has a value for a field of it. Iceberg's
    # own library knows this only where no field that the file has comes before that one.
    read = (field.field_id for field, part in parts if part is not None or field.field_id in own)
    is_known = next(read) not in own
    return None if is_known and not any(part is not None for part in there) and rng.random() < 0.5 else there


def _partition_value(rng: Random, column: types.NestedField, *, whole: bool) -> Any:  # noqa: ANN401 - of any type
    """Return a value of a column that a table is partitioned by."""
    while True:
        value: Any = some(rng, column.field_type, optional=not column.required, whole=whole)
        # To truncate the least decimal gives one that is too large for its type.
        if not isinstance(value, Decimal) or abs(value) < 1_000:
            return value


def _small(one: pa.Field) -> pa.Field:
    """Return a column whose texts count their bytes in 32 bits."""
    kind = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(one.type, one.type)
    return one.with_type(kind)
