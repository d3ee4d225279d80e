"""Slices of an audit: listing, comparison and file checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from typing_extensions import override

from sfn.audit import slices, storage
from sfn.audit.report import AuditState, PreviousRow, is_valid_count, matching_slices, slice_of
from sfn.audit.slices import AuditRun, NamespacePart, list_namespaces, list_tables
from sfn.audit.throttle import MAX_TRIES, CatalogRateLimiter, CatalogRetries
from sfn.catalogs import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.catalogs.listing import MAX_CONSECUTIVE_FAILURES, MAX_PROBES
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.publish.dry_run import ComparisonResult, DifferenceKind, TableDifference
from sfn.publish.existing_files import OurFile, TableFiles
from sfn.publish.policy import TableFilter
from sfn.sfnfile.document import Document, DocumentState
from sfn.sfnfile.naming import FileLayout
from sfn.worker.comparison import CachedAnswer, TableComparison
from sfn.worker.sweep import BoundedQueue

NAME = TableIdentifier("prod", ("ns",), "orders")


def table(location: str) -> Table:
    return Table("u1", location, f"{location}/metadata/00001-a.metadata.json")


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    missing, unseen = slices.find_missing_files(NAME, table(tmp_path.as_uri()), (), {})
    assert "00001-a.metadata.json" in missing
    assert unseen == ""


def test_a_store_that_does_not_answer_is_missing_nothing() -> None:
    quick = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
    options = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:9", "config_kwargs": quick}
    missing, unseen = slices.find_missing_files(NAME, table("s3://bucket/orders"), (), options)
    assert missing == ""
    assert "expected a store that answers, found EndpointConnectionError" in unseen


class Failing(MemoryCatalog):
    """A catalog with namespaces that fail.

    Attributes:
        failing: the scope of the trouble that a namespace has, by its name.
        asked: how often tables were listed.
    """

    def __init__(self, *names: str) -> None:
        super().__init__("prod")
        self.failing: dict[str, ErrorScope] = {}
        self.asked = 0
        for name in names:
            self.create_namespace(name)
            self.create(TableIdentifier("prod", (name,), "t"))

    @override
    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        self._fail(parent)
        async for one in super().namespaces(parent):
            yield one

    @override
    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        self.asked += 1
        self._fail(namespace)
        async for one in super().tables_in(namespace):
            yield one

    def _fail(self, namespace: tuple[str, ...]) -> None:
        if (scope := self.failing.get(".".join(namespace))) is not None:
            raise Transient("prod", scope=scope, expected="a listing", found="none")


async def listed(catalog: Failing, patience: float = 60.0) -> tuple[list[str], list[NamespacePart]]:
    """The tables that are found, and the namespaces that could not be listed."""
    with anyio.fail_after(20):
        found = await list_namespaces("prod", catalog, TableFilter(), CatalogRetries(patience))
        good = [part for part in found if not part.refused]
        names, refused = await list_tables(good, catalog, TableFilter(), CatalogRetries(patience))
    return sorted(table.dotted for table in names), [*(part for part in found if part.refused), *refused]


@pytest.mark.parametrize("scope", [ErrorScope.TABLE, ErrorScope.CATALOG])
async def test_a_namespace_that_fails_is_named_and_all_others_are_listed(scope: ErrorScope) -> None:
    catalog = Failing("aa", "mm", "zz")
    catalog.failing = {"mm": scope}
    names, refused = await listed(catalog)
    assert names == ["aa.t", "zz.t"]
    assert {(part.namespace, part.withheld) for part in refused} == {(("mm",), False)}


async def test_a_catalog_that_lists_no_namespace_is_given_up_soon() -> None:
    names = [f"n{number:03}" for number in range(300)]
    catalog = Failing(*names)
    given = [NamespacePart("prod", (name,)) for name in names]
    catalog.failing = dict.fromkeys(names, ErrorScope.TABLE)
    with anyio.fail_after(20):
        found, refused = await list_tables(given, catalog, TableFilter(), CatalogRetries(0.0))
    assert (found, len(refused)) == ([], 300)
    assert catalog.asked <= MAX_TRIES * MAX_CONSECUTIVE_FAILURES * (1 + MAX_PROBES), "most were not asked about"


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DOTTED_NAME = TableIdentifier("prod", ("sales.eu",), "orders")
RUN = AuditRun("20261122T120000000Z", NOW, 8)
HOUR = 3_600_000
NOON = int(NOW.timestamp() * 1_000)


def pointer(number: int) -> str:
    return f"file:///w/t/metadata/{number:05d}-x.metadata.json"


def hourly_table(version: int = 5, **more: Any) -> Table:  # noqa: ANN401 - any attribute
    """A commit an hour, the last one an hour ago."""
    versions = range(1, version)
    return Table(
        "u1",
        "file:///w/t",
        pointer(version),
        metadata_log=tuple(map(pointer, versions)),
        log_times=tuple(NOON - (version + 1 - number) * HOUR for number in versions),
        last_updated_ms=NOON - HOUR,
        **more,
    )


def examined(said: int, kind: DifferenceKind | None = None, **more: Any) -> TableComparison:  # noqa: ANN401 - any attribute
    doc = Document(
        "c1", DOTTED_NAME.namespace, DOTTED_NAME.name, "u1", pointer(said), NOON, NOW - timedelta(hours=2), **more
    )
    own = TableFiles(FileLayout("file:///w/t"), "key", (OurFile("key", StoredObject(b"", "t"), doc),))
    difference = None if kind is None else TableDifference(DOTTED_NAME, kind, "how")
    return TableComparison(
        Loaded(hourly_table(), '"e"'),
        hourly_table(),
        ComparisonResult(own, difference, is_exact=kind is None),
        difference,
    )


@pytest.mark.parametrize("slices", [1, 2, 32])
@pytest.mark.parametrize("before", [1, 4, 32, 64])
def test_the_slices_of_an_earlier_run_that_have_the_same_tables(slices: int, before: int) -> None:
    for number in range(500):
        identifier = f"ns.t{number}"
        now, then = slice_of("c", identifier, slices), slice_of("c", identifier, before)
        assert then in matching_slices(now, slices, before)


def test_tables_are_shared_out_evenly() -> None:
    counts = Counter(slice_of("c", f"ns.t{number}", 8) for number in range(8_000))
    assert len(counts) == 8
    assert max(counts.values()) < 1.2 * min(counts.values())


@pytest.mark.parametrize(
    ("number", "fits"), [(1, True), (32, True), (1 << 16, True), (0, False), (3, False), (1 << 17, False)]
)
def test_a_number_of_slices_is_a_power_of_two(number: int, fits: bool) -> None:
    assert is_valid_count(number) == fits


def test_a_table_that_is_current_has_no_lag() -> None:
    entry = RUN.found_row(DOTTED_NAME, examined(5), NOW)
    assert entry is not None
    assert (entry.state, entry.lag_seconds, entry.commits_behind, entry.etag) == (AuditState.CURRENT, 0, 0, '"e"')
    assert (entry.identifier, entry.sfn_age_seconds, entry.notified) == ("sales%2Eeu.orders", 7_200, False)


def test_lag_is_since_the_first_commit_that_a_file_does_not_know() -> None:
    entry = RUN.found_row(DOTTED_NAME, examined(3, DifferenceKind.BEHIND), NOW)
    assert entry is not None
    assert (entry.state, entry.commits_behind, entry.lag_seconds, entry.notified) == ("behind", 2, 7_200, True)


def test_behind_by_one_it_is_since_the_last_commit() -> None:
    entry = RUN.found_row(DOTTED_NAME, examined(4, DifferenceKind.BEHIND), NOW)
    assert entry is not None
    assert (entry.commits_behind, entry.lag_seconds) == (1, 3_600)


@pytest.mark.parametrize(
    "said", [examined(99, DifferenceKind.BEHIND), examined(3, DifferenceKind.BEHIND, state=DocumentState.DROPPED)]
)
def test_a_lag_that_nothing_tells_is_none(said: TableComparison) -> None:
    entry = RUN.found_row(DOTTED_NAME, said, NOW)
    assert entry is not None
    assert (entry.commits_behind, entry.lag_seconds) == (None, None)


def test_what_could_not_be_looked_at_is_as_it_was_for_the_next_run() -> None:
    """Else one outage would forget where the files of tables are that are dropped meanwhile, and every entity tag."""
    remembered = CachedAnswer('"e"', hourly_table(previous_versions_max=7))
    entry = RUN.failed_row(
        DOTTED_NAME, "away", NOW, PreviousRow(DOTTED_NAME, remembered, "file:///w/t/f.ver", 3_600.0, NOW)
    )
    assert (entry.state, entry.error, entry.etag, entry.sfn_file) == ("unknown", "away", '"e"', "file:///w/t/f.ver")
    assert (entry.uuid, entry.location, entry.metadata_location) == ("u1", "file:///w/t", pointer(5))
    assert (entry.previous_versions_max, entry.lifetime_seconds, entry.last_updated_at) == (7, 3_600.0, NOW)
    assert RUN.failed_row(DOTTED_NAME, "away", NOW).etag is None


def test_states_without_files() -> None:
    assert RUN.found_row(DOTTED_NAME, TableComparison(NoSuchTable()), NOW) is None
    unwritten, left = (
        RUN.found_row(DOTTED_NAME, TableComparison(StagedCreate()), NOW),
        hourly_table(skip_reason="encrypted"),
    )
    assert unwritten is not None
    assert unwritten.state == AuditState.UNWRITTEN
    alone = RUN.found_row(DOTTED_NAME, TableComparison(NotModified(), left), NOW)
    assert alone is not None
    assert (alone.state, alone.skip_reason, alone.unchanged) == (AuditState.SKIPPED, "encrypted", True)


async def test_a_pace_is_kept() -> None:
    pace, began = CatalogRateLimiter(100), anyio.current_time()
    for _ in range(11):
        await pace.wait()
    assert anyio.current_time() - began >= 0.1


@pytest.mark.parametrize(("kind", "tries"), [(Transient, MAX_TRIES), (Permanent, 1)])
async def test_a_table_s_own_transient_trouble_is_tried_again_and_no_other_suffers(
    kind: type[Transient | Permanent], tries: int
) -> None:
    trials, asked = CatalogRetries(0.2), 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise kind("t", scope=ErrorScope.TABLE, expected="e", found="f")

    with pytest.raises(kind):
        await trials.call(ask)
    assert (asked, trials.final_error) == (tries, None)


async def test_a_catalog_that_is_away_is_waited_for_once_and_asked_no_more() -> None:
    trials, asked = CatalogRetries(0.25), 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise Transient("c", scope=ErrorScope.CATALOG, expected="e", found="f")

    with pytest.raises(Transient):
        await trials.call(ask)
    before = asked
    assert before > 1
    with pytest.raises(Transient):
        await trials.call(ask)
    assert asked == before


async def test_a_catalog_that_comes_back_is_forgiven() -> None:
    trials, asked = CatalogRetries(5), 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise Transient("c", scope=ErrorScope.CATALOG, expected="e", found="f")
        return asked

    assert await trials.call(ask) == 3
    assert trials.final_error is None


async def test_a_feed_gives_all_in_order_and_holds_back_who_finds_too_much() -> None:
    feed, taken = BoundedQueue[int](max_queued=2), list[int]()

    async def find() -> None:
        for number in range(5):
            await feed.put(number)
        feed.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(find)
        await anyio.wait_all_tasks_blocked()
        while (one := await feed.get()) is not None:
            taken.append(one)
    assert taken == list(range(5))
    assert await feed.get() is None


class Theirs(Exception):
    """Of a library, which none of ours inherits."""


@pytest.mark.parametrize("error", [OSError("disk\nfull"), ValueError("garbage"), Theirs("locked")])
def test_what_others_raise_of_a_report_is_one_line_that_names_it(error: Exception) -> None:
    said = f"report here: .* found {type(error).__name__}: .*; try again$"
    with pytest.raises(SfnError, match=said), storage.map_report_errors("here", "try again"):
        raise error


@pytest.mark.parametrize("error", [TypeError("ours"), SfnError("a table", expected="one", found="none")])
def test_what_is_ours_is_not_put_down_to_others(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, storage.map_report_errors("here", "try again"):
        raise error
    assert raised.value is error
