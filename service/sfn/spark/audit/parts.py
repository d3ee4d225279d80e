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

from sfn import telemetry
from sfn.errors import SfnError
from sfn.report import earlier
from sfn.report.columns import Entry
from sfn.report.entries import shown, states
from sfn.report.listing import Part, tables
from sfn.report.pace import Pace, Paced
from sfn.report.part import audited
from sfn.report.slices import slice_of
from sfn.report.terms import Terms
from sfn.report.totals import Totals
from sfn.report.trials import Trials
from sfn.report.writing import written
from sfn.spark.audit.outcome import Hinted, Outcome
from sfn.spark.audit.sparing import spare
from sfn.wiring.looking import open_read_only
from sfn.wiring.terms import table_filter
from sfn.words import TableName
from sfn.words.table import levels, spelled

REFUSED_NAMED: Final = 20
"""Tables of a slice that are named of those that could not be looked at."""

_UVLOOP: Final = {"use_uvloop": True}
LISTED: Final = "catalog string, namespace array<string>, name string, refused string, withheld boolean, slice int"
OUTCOME: Final = "outcome binary"
_LISTED: Final = pa.schema(
    [
        ("catalog", pa.string()),
        ("namespace", pa.list_(pa.string())),
        ("name", pa.string()),
        ("refused", pa.string()),
        ("withheld", pa.bool_()),
        ("slice", pa.int32()),
    ]
)
_OUTCOME: Final = pa.schema([("outcome", pa.binary())])

Batches = Iterable[pa.RecordBatch]


def listing(terms: Terms) -> Callable[[Batches], Batches]:
    """From namespaces to their tables, each with its slice."""

    def listed(batches: Batches) -> Batches:
        telemetry.configure("error", "console")
        spare()
        for batch in batches:
            rows = batch.to_pylist()
            given = [
                Part(row["catalog"], tuple(row["namespace"]), row["refused"] or "", bool(row["withheld"]))
                for row in rows
            ]
            yield pa.RecordBatch.from_pylist(anyio.run(_listed, terms, given, backend_options=_UVLOOP), _LISTED)

    return listed


async def _listed(terms: Terms, given: Sequence[Part]) -> list[dict[str, Any]]:
    found = [_refused(terms, part) for part in given if part.refused]
    async with open_read_only(terms.settings) as parts:
        for name in terms.catalogs:
            of = [part for part in given if part.catalog == name and not part.refused]
            if not of:
                continue
            catalog = Paced(parts.catalogs[name], Pace(terms.rate))
            its, refused = await tables(
                of, catalog, table_filter(terms.settings.catalogs[name]), Trials(terms.patience)
            )
            found += [_row(terms, name, table.namespace, table.name) for table in its]
            found += [_refused(terms, part) for part in refused]
    return found


def _row(terms: Terms, catalog: str, namespace: tuple[str, ...], name: str) -> dict[str, Any]:
    number = slice_of(catalog, spelled(namespace, name), terms.run.slices)
    return {"catalog": catalog, "namespace": namespace, "name": name, "slice": number}


def _refused(terms: Terms, part: Part) -> dict[str, Any]:
    identifier = spelled(part.namespace[:-1], part.namespace[-1]) if part.namespace else ""
    number = slice_of(part.catalog, identifier, terms.run.slices)
    said = {"refused": part.refused, "withheld": part.withheld}
    return {"catalog": part.catalog, "namespace": part.namespace, "name": "", "slice": number, **said}


def auditing(terms: Terms) -> Callable[[Batches], Batches]:
    """From the tables of a slice to its outcome. It raises nothing: of a slice that fails the driver is told."""

    def looked(batches: Batches) -> Batches:
        telemetry.configure("error", "console")
        spare()
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        try:
            outcome = _slice(terms, number, batches)
        except Exception as error:  # noqa: BLE001 - the driver says it
            said = str(error) if isinstance(error, SfnError) else f"{type(error).__name__}: {error}"
            outcome = Outcome(number, error=said)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)])], schema=_OUTCOME)

    return looked


def _slice(terms: Terms, number: int, batches: Batches) -> Outcome:
    names: list[TableName] = []
    refused: list[Part] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["name"]:
                names.append(TableName(row["catalog"], tuple(row["namespace"]), row["name"]))
            else:
                refused.append(Part(row["catalog"], tuple(row["namespace"]), row["refused"], bool(row["withheld"])))
    files = load_file_io(dict(terms.files), terms.report_location)
    before, unread = {}, ""
    try:
        before = earlier.read(files, terms.before.get(number, ()), partial(_is_ours, terms, number))
    except Exception as error:  # noqa: BLE001 - whatever a driver raises: one run must not fail by another's files
        unread = shown(error)
    entries = anyio.run(partial(audited, terms, names, refused, before), backend_options=_UVLOOP)
    return replace(_outcome(terms, number, entries), unread=unread)


def _is_ours(terms: Terms, number: int, catalog: str, identifier: str) -> bool:
    """Whether a row of an earlier run, which may have had other slices, is of a table of this one."""
    return catalog in terms.catalogs and slice_of(catalog, identifier, terms.run.slices) == number


def _outcome(terms: Terms, number: int, entries: list[Entry]) -> Outcome:
    failed = [entry for entry in entries if entry.error is not None]
    return Outcome(
        number,
        states(entries),
        Totals.of(entries),
        written(terms.report, terms.files, number, entries),
        tuple(map(_hint, (entry for entry in entries if entry.hinted))),
        tuple((f"{one.catalog}:{one.identifier}", one.error or "") for one in failed[:REFUSED_NAMED]),
    )


def _hint(entry: Entry) -> Hinted:
    *namespace, name = levels(entry.identifier)
    return Hinted(entry.catalog, tuple(namespace), name, entry.metadata_location)
