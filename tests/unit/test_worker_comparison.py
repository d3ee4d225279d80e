"""The sweep of an operator: it finds what a dry run finds, and has all of it repaired that may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import anyio
import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, StoredObject
from sfn.errors import ErrorScope, ExternalError, Transient
from sfn.inbox.model import DeadLetterFilter, DeadLetterStatus
from sfn.publish.dry_run import DifferenceKind, TableDifference
from sfn.sfnfile import version_hint
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.comparison import CONCURRENT_COMPARISONS, TableComparer
from sfn.worker.dry_run import DryRunSweep
from sfn.worker.sweep import CatalogSweep, SweepPorts, SweepReport
from tests.support.publishing import AT, A, B, CountingStore, Line, key_of, named
from tests.support.working import POLICY, World

PROD = CatalogName("prod")


class SlowStore(CountingStore):
    """A store that fails for some files, and remembers how many reads ran at a time.

    Attributes:
        error: what a read raises; None for the file.
        seconds: how long a read takes.
        most: the most reads at a time.
        asked: number of reads, also of those that failed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error: ExternalError | None = None
        self.seconds = 0.001
        self.most = self.asked = self._running = 0

    @override
    def store_for(self, _location: str) -> SlowStore:
        return self

    @override
    async def read(self, key: str) -> StoredObject | None:
        self.asked += 1
        self._running += 1
        self.most = max(self.most, self._running)
        await anyio.sleep(self.seconds)
        self._running -= 1
        if self.error is not None:
            raise self.error
        return await super().read(key)


async def line(*tables: TableIdentifier) -> Line:
    """Return a catalog with tables that are published."""
    made = Line()
    for table in tables:
        made.catalog.create(table)
        await made.hear(Notification(table), seconds=1)
    return made


async def swept(made: Line, *, thorough: bool = True) -> SweepReport:
    """Sweep once, as for an operator or at an interval."""
    comparer = TableComparer(ConnectedCatalog(made.catalog, made.policy), made.store) if thorough else None
    ports = SweepPorts(made.catalog, made.inbox, made.clock)
    sweep = CatalogSweep(PROD, ports, made.policy, comparer)
    await sweep.run(0.5)
    return sweep.report


async def compared(made: Line) -> list[TableDifference]:
    """Return what a dry run finds."""
    connected = ConnectedCatalog(made.catalog, made.policy)
    return (await DryRunSweep(connected, made.store, lambda _: None).run()).differences


async def open_letters(made: Line) -> list[DeadLetterReason]:
    found = await made.inbox.list_newest(DeadLetterFilter(status=DeadLetterStatus.OPEN), 10)
    return [letter.reason for letter in found]


def delete(made: Line) -> None:
    del made.store.files[key_of(A)]


def overwrite(made: Line) -> None:
    made.store.files[key_of(A)] = b"no document"


@pytest.mark.parametrize(
    ("damage", "kind", "is_repaired"),
    [
        (delete, DifferenceKind.MISSING, True),
        (overwrite, DifferenceKind.FOREIGN_FILE, False),
        (None, DifferenceKind.HINT_BEHIND, True),
        (lambda made: made.catalog.commit(A), DifferenceKind.BEHIND, True),
        (lambda made: made.catalog.roll_back(A), DifferenceKind.AHEAD, True),
        (lambda made: made.catalog.commit(A, left_alone="encrypted"), DifferenceKind.LEFT_OVER, True),
    ],
)
async def test_operators_sweep_finds_and_repairs_what_a_dry_run_finds(
    damage: Callable[[Line], object] | None, kind: DifferenceKind, *, is_repaired: bool
) -> None:
    made = await line(A, B)
    old_hint = made.hint()
    assert old_hint is not None
    made.catalog.commit(A)
    await made.hear(Notification(A), seconds=1)
    if damage is not None:
        damage(made)
    else:
        made.store.files[version_hint.key_of(AT)] = old_hint
    dry_run, report = await compared(made), await swept(made)
    assert [one.kind for one in dry_run] == [kind]
    assert (report.differences, report.difference_count, report.tables, report.is_thorough) == (dry_run, 1, 2, True)
    await made.work(60)
    assert (await compared(made) == []) is is_repaired
    assert (await swept(made)).differences == ([] if is_repaired else dry_run)


@pytest.mark.parametrize("damage", [delete, overwrite])
async def test_sweep_at_an_interval_reads_no_files(damage: Callable[[Line], None]) -> None:
    made = await line(A)
    damage(made)
    before = made.store.reads
    report = await swept(made, thorough=False)
    assert (report.differences, report.is_thorough, made.store.reads) == ([], False, before)


async def test_table_that_was_given_up_is_repaired_once_its_cause_is_gone() -> None:
    made = Line()
    made.catalog.create(A)
    overwrite(made)
    await made.hear(Notification(A), seconds=1)
    assert await open_letters(made) == [DeadLetterReason.FOREIGN_FILE]
    assert [one.kind for one in (await swept(made)).differences] == [DifferenceKind.FOREIGN_FILE]
    await made.work(1)
    assert await open_letters(made) == [DeadLetterReason.FOREIGN_FILE]
    delete(made)
    assert (await swept(made, thorough=False)).differences == []
    assert [one.kind for one in (await swept(made)).differences] == [DifferenceKind.MISSING]
    await made.work(1)
    assert (await open_letters(made), await compared(made)) == ([], [])


async def test_hold_of_the_drop_limit_stays() -> None:
    made = Line()
    made.inbox = type(made.inbox)(replace(made.inbox._config, max_drops={"prod": 0}), made.clock)  # noqa: SLF001
    for table in (A, B):
        made.catalog.create(table)
        await made.hear(Notification(table), seconds=1)
    made.catalog.commit(A)
    await made.hear(Notification(A), seconds=1)
    made.catalog.roll_back(A)
    made.catalog.drop(B)
    await made.hear(Notification(A), Notification(B, drop=True), seconds=600)
    files = dict(made.store.files)
    assert await open_letters(made) == [DeadLetterReason.HELD_DROP] * 2
    for _ in range(2):
        report = await swept(made)
        assert {one.table: one.kind for one in report.differences} == {
            A: DifferenceKind.AHEAD,
            B: DifferenceKind.ABSENT,
        }
        assert report.held == {A, B}
        await made.work(600)
        assert made.store.files == files
    assert await open_letters(made) == [DeadLetterReason.HELD_DROP] * 2


@pytest.mark.parametrize("reason", [DeadLetterReason.POISON, DeadLetterReason.HELD_DROP])
async def test_table_that_is_gone_is_retried_for_an_operator_unless_it_is_held(reason: DeadLetterReason) -> None:
    world = World()
    table = world.create("t")
    await world.published(table, reason)
    world.catalog.drop(table)
    comparer = TableComparer(ConnectedCatalog(world.catalog, POLICY), SlowStore())
    await CatalogSweep(PROD, SweepPorts(world.catalog, world.inbox, world.clock), POLICY, comparer).run(0.5)
    is_held = reason is DeadLetterReason.HELD_DROP
    assert [(one.subject, one.force, one.retry) for one in world.inbox.noted] == (
        [] if is_held else [(table, True, True)]
    )


async def test_store_that_fails_costs_one_read_and_the_sweep_ends() -> None:
    made, store = await line(*(named(f"t{number:02}") for number in range(50))), SlowStore()
    store.files, store.error = (
        made.store.files,
        Transient("lake", scope=ErrorScope.STORE, expected="an answer", found="none"),
    )
    made.store = store
    made.catalog.commit(named("t07"))
    report = await swept(made)
    assert [(one.table, one.kind) for one in report.differences] == [(named("t07"), DifferenceKind.BEHIND)]
    assert (report.failed_count, report.failed_reason) == (50, str(store.error))
    assert store.asked <= CONCURRENT_COMPARISONS
    store.error = None
    await made.work(1)
    assert await compared(made) == []


async def test_table_that_cannot_be_read_does_not_hide_the_others() -> None:
    made, store = await line(A, B), SlowStore()
    store.error = Transient("a", scope=ErrorScope.TABLE, expected="a file", found="a busy one")
    made.store = store
    report = await swept(made)
    assert (set(report.failed_tables), store.asked) == ({A, B}, 2)


async def test_trouble_of_the_process_ends_the_sweep() -> None:
    made, store = await line(A), SlowStore()
    store.error = Transient("prod", scope=ErrorScope.PROCESS, expected="descriptors", found="none")
    made.store = store
    with pytest.raises(Transient, match="descriptors"):
        await swept(made)


async def test_reads_are_bounded_and_progress_shows_each_table() -> None:
    made, store = Line(), SlowStore()
    tables = [named(f"t{number:03}") for number in range(4 * CONCURRENT_COMPARISONS)]
    for table in tables:
        made.catalog.create(table)
    made.store, store.seconds = store, 0.05
    report = await swept(made)
    assert (report.tables, report.difference_count) == (len(tables), len(tables))
    assert 1 < store.most <= CONCURRENT_COMPARISONS


async def test_files_of_a_retired_catalog_are_not_read() -> None:
    made = await line(A)
    made.policy, made.store = replace(made.policy, is_retired=True), SlowStore()
    assert (await swept(made)).differences == []
    assert isinstance(made.store, SlowStore)
    assert made.store.asked == 0


async def test_file_that_is_right_is_checked_where_the_inbox_remembers_an_older_state() -> None:
    made = await line(A)
    ahead = Line()
    ahead.catalog, ahead.store = made.catalog, made.store
    made.catalog.commit(A)
    await ahead.hear(Notification(A), seconds=1)
    made.clock.turn(timedelta(minutes=1).total_seconds())
    assert await compared(made) == []
    assert (await swept(made)).differences == []
    count = len(made.outcomes)
    await made.work(1)
    assert len(made.outcomes) > count
    assert not isinstance(made.outcomes[-1], DeadLettered)
