"""State of whole catalogs: the drop limit, the last sweep, the owner of the files, and whether they are retired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from json import dumps

from sfn.domain.identifiers import JobKey, normal_uuid
from sfn.domain.jobs import BackwardStep, IndexedTable, StepKind
from sfn.inbox import DropLimitState
from sfn.inbox.jobs import held_jobs, live_count, without_file
from sfn.inbox.model import InboxConfig, Job, LastSweep, is_renamed
from sfn.inbox.schema import CATALOG, PERMIT, decode_subject, encode_step, encode_subject, from_micros, to_micros
from sfn.inbox.transaction import Change, Query, Row, Run, Transaction, Upsert

ALL_SWEEPS = Query("SELECT name, swept_at, unlisted_namespaces FROM sfn.catalog WHERE swept_at IS NOT NULL")


def set_last_sweep(catalog: str, sweep: LastSweep, *, is_within_limit: bool) -> Change:
    """Return the change that records a complete sweep; one within the drop limit resets the limit."""
    unlisted = dumps(sorted(sweep.unlisted_namespaces)) if sweep.unlisted_namespaces else None
    reset = {"is_limit_reached": False} if is_within_limit else {}
    return set_columns(catalog, swept_at=to_micros(sweep.started_at), unlisted_namespaces=unlisted, **reset)


def set_columns(catalog: str, **columns: object) -> Change:
    """Return the change of some columns of a catalog's row; the row is made if it is missing."""
    return Upsert(CATALOG, [(catalog, *columns.values())], ("name", *columns))


async def owner_id(transaction: Transaction, catalog: str) -> str | None:
    """Return the recorded `catalog_id`; None if there is none."""
    found = await transaction.fetch("SELECT catalog_id FROM sfn.catalog WHERE name = $1", catalog)
    return found[0][0] if found else None


async def retired_catalogs(transaction: Transaction) -> frozenset[str]:
    """Return the names of the retired catalogs."""
    return frozenset(name for (name,) in await transaction.fetch("SELECT name FROM sfn.catalog WHERE is_retired"))


# ── The drop limit


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table under one of its names.

    Attributes:
        name: the name.
        uuid: the table's uuid, normalised; None or empty if unknown.
        is_renamed: an event or a sweep reported that the table of this name has another name now.
    """

    name: JobKey
    uuid: str | None
    is_renamed: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", normal_uuid(self.uuid))


@dataclass(frozen=True, slots=True)
class PassedStep:
    """A step that the drop limit let pass.

    Attributes:
        table: the table.
        at: when the step was allowed.
        is_drop: True for a drop, False for a rollback.
    """

    table: JobKey
    at: datetime
    is_drop: bool


def without_old_names(found: Iterable[NamedTable]) -> list[NamedTable]:
    """Return the names without those that a rename left, if another name belongs to that table only.

    An equal uuid does not prove a rename: two names may be registered for one metadata file, and each of them counts. A
    name of several tables, as after a swap of names, belongs to none of them only.
    """
    names = list(found)
    if not any(one.is_renamed for one in names):
        return names
    uuids: defaultdict[JobKey, set[str | None]] = defaultdict(set)
    for one in names:
        uuids[one.name].add(one.uuid)
    alone: defaultdict[str | None, list[NamedTable]] = defaultdict(list)
    for one in names:
        if one.uuid and len(uuids[one.name]) == 1:
            alone[one.uuid].append(one)
    # If a table has only old names, the first one stays.
    first = {uuid: min((one.is_renamed, str(one.name)) for one in there) for uuid, there in alone.items()}
    return [
        one
        for one in names
        if not one.is_renamed or one.uuid not in first or first[one.uuid] >= (one.is_renamed, str(one.name))
    ]


async def allow_step(
    transaction: Transaction, job: Job, step: BackwardStep, config: InboxConfig, now: datetime
) -> bool:
    """Return whether the drop limit allows a step of a job; if not, allow no further step in the catalog."""
    catalog, digest = job.subject.catalog, encode_step(job.subject, step)
    since = now - config.drop_limit_window
    steps, reached = await transaction.fetch_all([_steps_query(catalog, since), _reached_query(catalog)])
    if any(bytes(known) == digest for known, *_ in steps):
        return True
    drop = NamedTable(job.subject, step.uuid, is_renamed(job)) if step.kind is StepKind.DROP else None
    drops, used = _drops(steps)
    allowed = not reached and await _allows(transaction, catalog, drop, drops, used, config)
    if not allowed and not _is_already_counted(drop, drops):
        await transaction.write([set_columns(catalog, is_limit_reached=True)])
        return False
    details = (drop.uuid, drop.is_renamed) if drop is not None else (None, None)
    row = (catalog, digest, to_micros(now), encode_subject(job.subject), drop is not None, *details)
    await transaction.write(
        [
            Run(
                "DELETE FROM sfn.permit WHERE catalog = $1 AND at <= $2 AND step <> $3",
                (catalog, to_micros(since), digest),
            ),
            Upsert(PERMIT, [row]),
        ]
    )
    return True


async def drop_limit_state(
    transaction: Transaction, catalog: str, live: int | None, config: InboxConfig, now: datetime
) -> DropLimitState:
    """Return the state of a catalog's drop limit; see `Administration.drop_limit_state`."""
    queries = [_steps_query(catalog, now - config.drop_limit_window), _reached_query(catalog)]
    steps, reached = await transaction.fetch_all(queries)
    is_reached = bool(reached or await held_jobs(transaction, catalog, "", 1))
    if live is None:
        live = await live_count(transaction, catalog)
    drops, used = _drops(steps)
    dropped = await without_file(transaction, {drop.name for drop in without_old_names(drops)})
    return DropLimitState(is_reached, used, config.allowed_drops(catalog, live, dropped), live)


async def passed_steps(transaction: Transaction, catalog: str, config: InboxConfig, now: datetime) -> list[PassedStep]:
    """Return the steps that the drop limit of a catalog let pass within its window, oldest first."""
    found = await transaction.fetch_all([_steps_query(catalog, now - config.drop_limit_window)])
    return [
        PassedStep(decode_subject(subject), from_micros(at), is_drop=bool(is_drop))
        for _, subject, is_drop, _, _, at in found[0]
    ]


def _steps_query(catalog: str, since: datetime) -> Query:
    return Query(
        "SELECT step, subject, is_drop, uuid, is_renamed, at FROM sfn.permit "
        "WHERE catalog = $1 AND at > $2 ORDER BY at",
        (catalog, to_micros(since)),
    )


def _reached_query(catalog: str) -> Query:
    return Query("SELECT 1 FROM sfn.catalog WHERE name = $1 AND is_limit_reached", (catalog,))


def _drops(steps: Sequence[Row]) -> tuple[list[NamedTable], int]:
    """Return the drops among the allowed steps, and how many steps count: each table once."""
    drops = [
        NamedTable(decode_subject(subject), uuid, bool(renamed))
        for _, subject, is_drop, uuid, renamed, _ in steps
        if is_drop
    ]
    return drops, len(steps) - len(drops) + len(without_old_names(drops))


def _is_already_counted(drop: NamedTable | None, drops: Sequence[NamedTable]) -> bool:
    """Return True if a step drops a table that was already counted as dropped under another name."""
    if drop is None or not drop.uuid:
        return False
    return len(without_old_names([*drops, drop])) <= len(without_old_names(drops))


async def _allows(
    transaction: Transaction,
    catalog: str,
    drop: NamedTable | None,
    drops: Sequence[NamedTable],
    used: int,
    config: InboxConfig,
) -> bool:
    """Return whether the limit allows one more step; a table that is dropped twice counts once."""
    # Counting many live tables takes long, and more live tables never allow fewer steps.
    if used >= config.max_steps(catalog, 0):
        live = await live_count(transaction, catalog)
        if used >= config.max_steps(catalog, live):
            return False
    if drop is None:
        return True
    gone: set[JobKey] = {one.name for one in without_old_names([*drops, drop])}
    # At most half of more tables than these are gone.
    live = await live_count(transaction, catalog, 2 * len(gone) + 1)
    return len(gone) <= config.max_drops_of(catalog, live + await without_file(transaction, gone))


def owner_of_file(row: IndexedTable, recorded: str | None) -> str | None:
    """Return the `catalog_id` in the file of a table if the listener wrote that file; None if unknown."""
    if row.live is not None:
        return row.catalog_id_in_file or recorded
    return row.foreign_catalog_id if row.foreign_catalog_id == recorded else None
