"""What Spark's Python processes do: list the tables of namespaces, and look at the tables of a slice."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyspark import TaskContext

from sfn.app.catalogs import open_read_only, table_filter
from sfn.domain.identifiers import TableIdentifier, decode_identifier, encode_identifier
from sfn.errors import SfnError
from sfn.report import earlier
from sfn.report.columns import ReportRow
from sfn.report.entries import count_states, error_text
from sfn.report.listing import NamespacePart, list_tables
from sfn.report.pace import CatalogRateLimiter, RateLimitedCatalog
from sfn.report.part import audit_slice
from sfn.report.slices import slice_of
from sfn.report.terms import AuditOptions
from sfn.report.totals import RunTotals
from sfn.report.trials import CatalogRetries
from sfn.report.writing import write_data_file
from sfn.spark.audit.outcome import AuditNotification, SliceOutcome
from sfn.spark.audit.sparing import warm_up_process
from sfn.telemetry import logs

MAX_FAILURES_NAMED: Final = 20
"""Tables of a slice that are named of those that could not be looked at."""

_UVLOOP: Final = {"use_uvloop": True}
LISTED_SCHEMA: Final = (
    "catalog string, namespace array<string>, name string, refused string, withheld boolean, slice int"
)
OUTCOME_SCHEMA: Final = "outcome binary"
_LISTED_ARROW: Final = pa.schema(
    [
        ("catalog", pa.string()),
        ("namespace", pa.list_(pa.string())),
        ("name", pa.string()),
        ("refused", pa.string()),
        ("withheld", pa.bool_()),
        ("slice", pa.int32()),
    ]
)
_OUTCOME_ARROW: Final = pa.schema([("outcome", pa.binary())])

Batches = Iterable[pa.RecordBatch]


def list_tables_task(options: AuditOptions) -> Callable[[Batches], Batches]:
    """From namespaces to their tables, each with its slice."""

    def listed(batches: Batches) -> Batches:
        logs.configure_logging("error", "console")
        warm_up_process()
        for batch in batches:
            rows = batch.to_pylist()
            given = [
                NamespacePart(row["catalog"], tuple(row["namespace"]), row["refused"] or "", bool(row["withheld"]))
                for row in rows
            ]
            yield pa.RecordBatch.from_pylist(
                anyio.run(_list_tables, options, given, backend_options=_UVLOOP), _LISTED_ARROW
            )

    return listed


async def _list_tables(options: AuditOptions, given: Sequence[NamespacePart]) -> list[dict[str, Any]]:
    found = [_refused_row(options, part) for part in given if part.refused]
    async with open_read_only(options.settings) as parts:
        for name in options.catalogs:
            of = [part for part in given if part.catalog == name and not part.refused]
            if not of:
                continue
            catalog = RateLimitedCatalog(parts.catalogs[name], CatalogRateLimiter(options.rate))
            its, refused = await list_tables(
                of, catalog, table_filter(options.settings.catalogs[name]), CatalogRetries(options.patience)
            )
            found += [_listed_row(options, name, table.namespace, table.name) for table in its]
            found += [_refused_row(options, part) for part in refused]
    return found


def _listed_row(options: AuditOptions, catalog: str, namespace: tuple[str, ...], name: str) -> dict[str, Any]:
    number = slice_of(catalog, encode_identifier(namespace, name), options.run.slices)
    return {"catalog": catalog, "namespace": namespace, "name": name, "slice": number}


def _refused_row(options: AuditOptions, part: NamespacePart) -> dict[str, Any]:
    identifier = encode_identifier(part.namespace[:-1], part.namespace[-1]) if part.namespace else ""
    number = slice_of(part.catalog, identifier, options.run.slices)
    said = {"refused": part.refused, "withheld": part.withheld}
    return {"catalog": part.catalog, "namespace": part.namespace, "name": "", "slice": number, **said}


def audit_slice_task(options: AuditOptions) -> Callable[[Batches], Batches]:
    """From the tables of a slice to its outcome. It raises nothing: of a slice that fails the driver is told."""

    def looked(batches: Batches) -> Batches:
        logs.configure_logging("error", "console")
        warm_up_process()
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        try:
            outcome = _audit_slice(options, number, batches)
        except Exception as error:  # noqa: BLE001 - the driver says it
            said = str(error) if isinstance(error, SfnError) else f"{type(error).__name__}: {error}"
            outcome = SliceOutcome(number, error=said)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)])], schema=_OUTCOME_ARROW)

    return looked


def _audit_slice(options: AuditOptions, number: int, batches: Batches) -> SliceOutcome:
    names: list[TableIdentifier] = []
    refused: list[NamespacePart] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["name"]:
                names.append(TableIdentifier(row["catalog"], tuple(row["namespace"]), row["name"]))
            else:
                refused.append(
                    NamespacePart(row["catalog"], tuple(row["namespace"]), row["refused"], bool(row["withheld"]))
                )
    files = load_file_io(dict(options.files), options.report_location)
    before, unread = {}, ""
    try:
        before = earlier.read_previous_rows(
            files, options.previous_files.get(number, ()), partial(_is_of_slice, options, number)
        )
    except Exception as error:  # noqa: BLE001 - whatever a driver raises: one run must not fail by another's files
        unread = error_text(error)
    entries = anyio.run(partial(audit_slice, options, names, refused, before), backend_options=_UVLOOP)
    return replace(_to_outcome(options, number, entries), unread=unread)


def _is_of_slice(options: AuditOptions, number: int, catalog: str, identifier: str) -> bool:
    """Whether a row of an earlier run, which may have had other slices, is of a table of this one."""
    return catalog in options.catalogs and slice_of(catalog, identifier, options.run.slices) == number


def _to_outcome(options: AuditOptions, number: int, entries: list[ReportRow]) -> SliceOutcome:
    failed = [entry for entry in entries if entry.error is not None]
    return SliceOutcome(
        number,
        count_states(entries),
        RunTotals.of_rows(entries),
        write_data_file(options.report, options.files, number, entries),
        tuple(map(_to_notification, (entry for entry in entries if entry.notified))),
        tuple((f"{one.catalog}:{one.identifier}", one.error or "") for one in failed[:MAX_FAILURES_NAMED]),
    )


def _to_notification(entry: ReportRow) -> AuditNotification:
    *namespace, name = decode_identifier(entry.identifier)
    return AuditNotification(entry.catalog, tuple(namespace), name, entry.metadata_location)
