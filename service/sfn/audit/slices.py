"""List a catalog's namespaces and tables, and check the tables of one slice of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import anyio
from anyio import to_thread

from sfn.app.catalogs import ReadOnlyConnections, open_read_only, table_filter
from sfn.audit.report import AuditState, PreviousRow, ReportRow, slice_of
from sfn.audit.throttle import CatalogRateLimiter, CatalogRetries, RateLimitedCatalog, as_namespace_lister
from sfn.catalogs import Catalog, Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.catalogs.listing import CatalogHealth
from sfn.clock import Clock, SystemClock
from sfn.domain.identifiers import Table, TableIdentifier, encode_identifier
from sfn.errors import ErrorScope, ExternalError, Permanent, SfnError
from sfn.publish.dry_run import DifferenceKind
from sfn.publish.existing_files import has_identifier, parse_or_none
from sfn.publish.policy import TableFilter
from sfn.reader.files import FileSystemOptions, RequestCounts
from sfn.reader.lookup import FoundBy
from sfn.reader.metadata import AllowedLocations
from sfn.reader.resolve import Resolved
from sfn.reader.verify import verify
from sfn.settings.root import Settings
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.sfnfile.version_hint import metadata_lifetime
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.comparison import TableComparer, TableComparison

G = TypeVar("G")
T = TypeVar("T")

LISTING_CONCURRENCY: Final = 8
"""The number of namespaces that one process lists at a time."""


@dataclass(frozen=True, slots=True)
class NamespacePart:
    """A namespace as a unit of work, which any machine may list.

    Attributes:
        catalog: the catalog's name in the configuration.
        namespace: its levels; none for the catalog as a whole.
        refused: the reason why it, or a namespace below it, can't be listed; empty if it can.
        withheld: whether the permission is missing; otherwise the catalog gave no answer.
    """

    catalog: str
    namespace: tuple[str, ...]
    refused: str = ""
    withheld: bool = False


async def list_namespaces(
    name: str, catalog: Catalog, interest: TableFilter, retries: CatalogRetries
) -> list[NamespacePart]:
    """Return all namespaces of a catalog that may have tables of interest, level by level.

    Namespaces that can't be listed are included, and so is the catalog as a whole if it can't be listed.
    """
    found: list[NamespacePart] = []
    seen: set[tuple[str, ...]] = {()}
    level: list[tuple[str, ...]] = [()]
    health = CatalogHealth(as_namespace_lister(catalog).namespaces, lambda: level)
    while level:
        results = await _map_concurrently(
            level, lambda one: _list_with_retries(name, one, retries, health, partial(_list_children, catalog, one))
        )
        found += [refused for _, refused in results if refused is not None]
        below = dict.fromkeys(child for children, _ in results for child in children)
        level = [child for child in below if child not in seen and not interest.excludes_namespace(child)]
        seen.update(level)
        found += [NamespacePart(name, namespace) for namespace in level]
    return found


async def list_tables(
    given: Sequence[NamespacePart], catalog: Catalog, interest: TableFilter, retries: CatalogRetries
) -> tuple[list[TableIdentifier], list[NamespacePart]]:
    """Return the tables of interest in some namespaces, and the namespaces that could not be listed."""
    health = CatalogHealth(as_namespace_lister(catalog).tables_in, lambda: [one.namespace for one in given])
    results = await _map_concurrently(
        given,
        lambda one: _list_with_retries(
            one.catalog, one.namespace, retries, health, partial(_list_within, catalog, one.namespace)
        ),
    )
    found = [table for listed, _ in results for table in listed if interest.covers(table)]
    return found, [refused for _, refused in results if refused is not None]


async def _list_children(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [child async for child in as_namespace_lister(catalog).namespaces(namespace)]


async def _list_within(catalog: Catalog, namespace: tuple[str, ...]) -> list[TableIdentifier]:
    return [table async for table in as_namespace_lister(catalog).tables_in(namespace)]


async def _list_with_retries(
    name: str,
    namespace: tuple[str, ...],
    retries: CatalogRetries,
    health: CatalogHealth,
    request: Callable[[], Awaitable[list[T]]],
) -> tuple[list[T], NamespacePart | None]:
    try:
        return await retries.call(partial(_list_once, namespace, health, request)), None
    except ExternalError as error:
        withheld = isinstance(error, Permanent) and error.scope is ErrorScope.TABLE
        return [], NamespacePart(name, namespace, str(error), withheld)


async def _list_once(
    namespace: tuple[str, ...], health: CatalogHealth, request: Callable[[], Awaitable[list[T]]]
) -> list[T]:
    """Call once. Set an error's scope: the namespace, if the catalog still lists others, or else the catalog."""
    began = anyio.current_time()
    try:
        found = await request()
    except ExternalError as error:
        if not namespace:
            raise
        is_down = await health.is_down(error, anyio.current_time() - began)
        scope = ErrorScope.CATALOG if is_down else ErrorScope.TABLE
        if error.scope is scope:
            raise
        raise error.with_scope(scope) from error
    if namespace:
        health.note_listed(namespace)
    return found


async def _map_concurrently(given: Sequence[G], work: Callable[[G], Awaitable[T]]) -> list[T]:
    waiting, done = iter(given), list[T]()

    async def some() -> None:
        for one in waiting:
            done.append(await work(one))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(LISTING_CONCURRENCY, len(given))):
            tasks.start_soon(some)
    return done


_MAX_DETAIL: Final = 500


def find_missing_files(
    name: TableIdentifier, table: Table, allowed: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[str, str]:
    """Check the files of a table's current snapshot, starting from the catalog's own pointer. Blocks.

    Args:
        allowed: canonical prefixes that files may lie below, besides the table's own bucket or file system.
        options: options for fsspec's driver.

    Returns:
        The missing or broken files as text, and the files that could not be checked; each empty if there are none.
    """
    opening = FileSystemOptions(canonical(table.location), options)
    now = SystemClock().now()
    document = Document(
        catalog_id="",
        namespace=name.namespace,
        name=name.name,
        guid=table.uuid,
        metadata_file_path=table.metadata_location,
        ordinal=0,
        written_at=now,
    )
    found = Resolved(
        metadata_location=table.metadata_location,
        document=document,
        sfn_file=f"the catalog's answer for {name}",
        ref=MAIN_BRANCH,
        snapshot_id=None,
        found_by=FoundBy.NAME,
        via=(),
        missing_commits=0,
        requests=RequestCounts(0, 0),
        age=timedelta(),
        allowed_locations=AllowedLocations(opening.url, allowed),
        file_system_options=opening,
    )
    _, findings = verify(lambda: found, deep=True, on_progress=lambda _done, _total: None)
    wrong = [finding for finding in findings if not finding.ok]
    return (
        _first_texts([finding.text for finding in wrong if finding.was_checked]),
        _first_texts([finding.text for finding in wrong if not finding.was_checked]),
    )


def _first_texts(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f"{texts[0]}{f'; and {len(texts) - 1:,} more' if len(texts) > 1 else ''}"[:_MAX_DETAIL]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_ERROR: Final = 1_000
"""The maximum number of characters of an error in a row."""


@dataclass(frozen=True, slots=True)
class AuditRun:
    """One run of the audit.

    Attributes:
        name: the unique name; names sort by time.
        began_at: the start.
        slices: the number of slices.
    """

    name: str
    began_at: datetime
    slices: int

    def row(self, table: TableIdentifier, state: str, now: datetime) -> ReportRow:
        """Return a row with nothing but a state; without a table name it describes the namespace."""
        parts = (*table.namespace, table.name) if table.name else table.namespace
        identifier = encode_identifier(parts[:-1], parts[-1]) if parts else ""
        number = slice_of(table.catalog, identifier, self.slices)
        return ReportRow(
            run=self.name,
            began_at=self.began_at,
            checked_at=now,
            slice=number,
            catalog=table.catalog,
            identifier=identifier,
            state=state,
        )

    def failed_row(
        self, table: TableIdentifier, error: Exception | str, now: datetime, before: PreviousRow | None = None
    ) -> ReportRow:
        """Return the row of a table that could not be checked.

        Args:
            before: the table's row of an earlier run, which is copied, so that the next run can use it.
        """
        entry = self.row(table, AuditState.UNKNOWN, now)
        entry.error = error_text(error)
        if before is not None:
            entry.sfn_file, entry.lifetime_seconds = before.sfn_file, before.lifetime_seconds
            entry.last_updated_at = before.last_updated_at
            if (remembered := before.remembered) is not None:
                table_then, entry.etag = remembered.table, remembered.etag
                entry.uuid, entry.location = table_then.uuid, table_then.location
                entry.metadata_location, entry.skip_reason = table_then.metadata_location, table_then.skip_reason
                entry.previous_versions_max = table_then.previous_versions_max
        return entry

    def found_row(
        self, table: TableIdentifier, found: TableComparison, now: datetime, before: PreviousRow | None = None
    ) -> ReportRow | None:
        """Return the row of a table that was checked; None if the table is gone.

        Args:
            before: the table's row of an earlier run.
        """
        if isinstance(found.answer, NoSuchTable):
            return None
        entry = self.row(table, _audit_state(found), now)
        entry.unchanged = isinstance(found.answer, NotModified)
        if isinstance(found.answer, Loaded):
            entry.etag = found.answer.etag
        if found.difference is not None:
            entry.detail, entry.notified = found.difference.detail[:_MAX_ERROR], True
        if found.table is not None:
            _fill_from_table(entry, found.table)
        if entry.unchanged and before is not None and before.remembered is not None:
            # An answer without changes has no values: take those of the earlier row.
            entry.etag, entry.lifetime_seconds = before.remembered.etag, before.lifetime_seconds
            entry.last_updated_at = before.last_updated_at
        if found.comparison is not None:
            entry.sfn_file = found.comparison.table_files.key
            if (doc := found.comparison.table_files.main_document) is not None:
                _fill_from_document(entry, doc, found.table, now)
        return entry


def error_text(error: Exception | str) -> str:
    """Return the text of an error for a row."""
    text = str(error) if isinstance(error, SfnError | str) else f"{type(error).__name__}: {error}"
    return text[:_MAX_ERROR]


def _audit_state(found: TableComparison) -> str:
    if isinstance(found.answer, StagedCreate):
        return AuditState.UNWRITTEN
    if found.difference is not None:
        return found.difference.kind
    is_left = found.table is not None and found.table.skip_reason is not None
    return AuditState.SKIPPED if is_left else AuditState.CURRENT


def _fill_from_table(entry: ReportRow, table: Table) -> None:
    entry.uuid, entry.location, entry.metadata_location = table.uuid, table.location, table.metadata_location
    entry.previous_versions_max, entry.skip_reason = table.previous_versions_max, table.skip_reason
    if 0 < table.last_updated_ms < _MAX_TIMESTAMP:
        entry.last_updated_at = _EPOCH + timedelta(milliseconds=table.last_updated_ms)
    lives = metadata_lifetime(table)
    entry.lifetime_seconds = None if lives is None else lives.total_seconds()


_MAX_TIMESTAMP: Final = 253_370_764_800_000
"""The last Unix millisecond that fits into a datetime, less a margin for time zones."""


def _fill_from_document(entry: ReportRow, doc: Document, table: Table | None, now: datetime) -> None:
    entry.sfn_metadata_location = doc.metadata_file_path
    entry.sfn_written_at = doc.written_at
    entry.sfn_age_seconds = max(0.0, (now - doc.written_at).total_seconds())
    if table is None or not doc.is_live or doc.guid != table.uuid:
        return
    if entry.state in {AuditState.CURRENT, DifferenceKind.HINT_BEHIND}:
        entry.commits_behind, entry.lag_seconds = 0, 0.0
    elif entry.state == DifferenceKind.BEHIND:
        _fill_lag(entry, doc.metadata_file_path, table, now)


def _fill_lag(entry: ReportRow, named_file: str, table: Table, now: datetime) -> None:
    """Set how many commits the SFN file is behind, and since when."""
    log = [canonical(file) for file in table.metadata_log]
    at = canonical(named_file)
    if at not in log:
        return
    place = len(log) - 1 - log[::-1].index(at)
    entry.commits_behind = len(log) - place
    superseded = (*table.log_times[place + 1 :], table.last_updated_ms)[0] if _has_log_times(table) else 0
    if superseded > 0:
        entry.lag_seconds = max(0.0, (now - _EPOCH).total_seconds() - superseded / 1_000)


def _has_log_times(table: Table) -> bool:
    return len(table.log_times) == len(table.metadata_log)


def count_states(entries: Sequence[ReportRow]) -> dict[str, int]:
    """Return the number of rows by state."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.state] = counts.get(entry.state, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of a run; they are sent to Spark's processes, including secrets of the settings.

    Attributes:
        run: the run.
        settings: the catalogs and stores.
        catalogs: the names of the catalogs to audit.
        rate: requests a second that one process may send to a catalog; None for no limit.
        patience: how many seconds to wait for a catalog or store that has answered before.
        deep: check all files of current snapshots.
        options: options for fsspec's driver to open these files.
        files: PyIceberg's properties to open the report's own files.
        report: the report's metadata, JSON.
        report_location: the report's location.
        previous_files: data files of earlier runs, by slice.
        unreachable_catalogs: catalogs that could not list their namespaces, and the reasons: they get no more requests.
    """

    run: AuditRun
    settings: Settings = field(repr=False)
    catalogs: tuple[str, ...]
    rate: float | None
    patience: float
    deep: bool
    options: Mapping[str, Any] = field(repr=False)
    files: Mapping[str, Any] = field(repr=False)
    report: str = field(repr=False)
    report_location: str
    previous_files: Mapping[int, tuple[str, ...]] = field(default_factory=dict, repr=False)
    unreachable_catalogs: Mapping[str, str] = field(default_factory=dict)


TABLE_CONCURRENCY: Final = 32
"""The number of tables that are checked at a time."""


async def audit_slice(
    options: AuditOptions,
    tables: Sequence[TableIdentifier],
    refused: Iterable[NamespacePart],
    before: Mapping[TableIdentifier, PreviousRow],
) -> list[ReportRow]:
    """Check the tables of a slice, and return their rows.

    Args:
        tables: the tables in the catalogs' listings.
        refused: the namespaces that could not be listed.
        before: rows of earlier runs, for the tables of this slice.

    Raises:
        SfnError: the catalogs or stores can't be opened at all.
    """
    clock = SystemClock()
    entries = [_row_of_unlisted(options, part, clock) for part in refused]
    by_catalog = {name: [table for table in tables if table.catalog == name] for name in options.catalogs}
    async with open_read_only(options.settings) as parts, anyio.create_task_group() as tasks:
        for name, its in by_catalog.items():
            listed = set(its)
            covers = table_filter(options.settings.catalogs[name]).covers
            left = [table for table in before if table.catalog == name and table not in listed and covers(table)]
            if (why := options.unreachable_catalogs.get(name)) is not None:
                entries += [options.run.failed_row(table, why, clock.now(), before[table]) for table in left]
            elif its or left:
                one = _CatalogAudit(options, name, parts, before, clock)
                tasks.start_soon(one.run, its, left, entries)
    return entries


def _row_of_unlisted(options: AuditOptions, part: NamespacePart, clock: Clock) -> ReportRow:
    namespace = TableIdentifier(part.catalog, part.namespace, "")
    entry = options.run.row(namespace, AuditState.WITHHELD if part.withheld else AuditState.UNLISTED, clock.now())
    entry.error = part.refused
    return entry


class _CatalogAudit:
    """The checks of one catalog's tables."""

    def __init__(
        self,
        options: AuditOptions,
        name: str,
        parts: ReadOnlyConnections,
        before: Mapping[TableIdentifier, PreviousRow],
        clock: Clock,
    ) -> None:
        self._options, self._name, self._parts, self._before, self._clock = options, name, parts, before, clock
        self._retries = CatalogRetries(options.patience)
        self._reading = anyio.CapacityLimiter(2)

    async def run(
        self, listed: Sequence[TableIdentifier], left: Sequence[TableIdentifier], entries: list[ReportRow]
    ) -> None:
        """Check the listed tables, and the tables that an earlier run listed."""
        try:
            source = await self._retries.call(partial(self._parts.connect, self._name))
        except ExternalError as error:
            run, now = self._options.run, self._clock.now()
            entries += [run.failed_row(table, error, now, self._before.get(table)) for table in (*listed, *left)]
            return
        limited = ConnectedCatalog(
            RateLimitedCatalog(source.catalog, CatalogRateLimiter(self._options.rate)),
            source.policy,
            source.vended_stores,
        )
        comparer = TableComparer(limited, self._parts.stores)
        waiting = iter([*listed, *left])

        async def some() -> None:
            for table in waiting:
                entry = await self._row(comparer, limited, table)
                if entry is not None:
                    entries.append(entry)

        async with anyio.create_task_group() as tasks:
            for _ in range(TABLE_CONCURRENCY):
                tasks.start_soon(some)

    async def _row(self, comparer: TableComparer, source: ConnectedCatalog, table: TableIdentifier) -> ReportRow | None:
        run, before = self._options.run, self._before.get(table)
        remembered = None if before is None else before.remembered
        try:
            found = await self._retries.call(partial(comparer.compare_table, table, remembered))
            if isinstance(found.answer, NoSuchTable):
                return await self._row_of_gone_table(source, table, before)
            entry = run.found_row(table, found, self._clock.now(), before)
        except Exception as error:  # noqa: BLE001 - one table's error must not affect other tables' rows
            return run.failed_row(table, error, self._clock.now(), before)
        # If the location is not allowed, no file is opened.
        is_open = found.comparison is not None and found.table is not None and found.table.skip_reason is None
        if self._options.deep and is_open and entry is not None and found.table is not None:
            await self._check_files(entry, table, found.table, source.policy.allowed_locations)
        return entry

    async def _check_files(
        self, entry: ReportRow, name: TableIdentifier, table: Table, allowed: tuple[str, ...]
    ) -> None:
        """Check the files of the current snapshot. An error does not change the table's state in the row."""
        check = partial(find_missing_files, name, table, allowed, self._options.options)
        try:
            entry.deep, unseen = await to_thread.run_sync(check, limiter=self._reading)
        except Exception as error:  # noqa: BLE001 - drivers raise any type
            unseen = error_text(error)
        entry.error = f"files of the current snapshot: {unseen}" if unseen else None

    async def _row_of_gone_table(
        self, source: ConnectedCatalog, table: TableIdentifier, before: PreviousRow | None
    ) -> ReportRow | None:
        """Return the row of a table that is gone from the catalog, if its SFN file is still live."""
        if before is None or before.sfn_file is None:
            return None
        store = source.stores_for(table, self._parts.stores).store_for(before.sfn_file)
        held = await self._retries.call(partial(store.read, before.sfn_file))
        doc = parse_or_none(held)
        if (
            doc is None
            or not doc.is_live
            or not has_identifier(doc, table)
            or doc.catalog_id != source.policy.catalog_id
        ):
            return None
        entry = self._options.run.row(table, AuditState.GONE, self._clock.now())
        entry.detail = f"{before.sfn_file}: state {doc.state.value}, but the catalog has no such table"
        entry.sfn_file, entry.notified = before.sfn_file, True
        entry.sfn_metadata_location, entry.sfn_written_at = doc.metadata_file_path, doc.written_at
        return entry
