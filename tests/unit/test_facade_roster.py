"""The tables that the service published, as a facade shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import pytest
from typing_extensions import override

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import IndexedTable, PendingChange, PublishedPointer, TableState
from sfn.errors import ErrorScope, Transient
from sfn.facade import tables
from sfn.facade.metadata_files import open_tree
from sfn.facade.tables import PublishedTables
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import TableStatus
from sfn.reader.resolve import Question

TREES = {root: open_tree(root, {}) for root in ("file:///w", "file:///w/inner", "file:///v")}
AT = datetime(2026, 1, 1, tzinfo=UTC)
SALES = ("sales",)


@dataclass
class Told(MemoryInbox):
    """An inbox whose rows a test tells: where each is published.

    Attributes:
        asked: the rows that were asked for one by one.
        scans: how often all were.
    """

    rows: dict[str, str | None]
    trouble: Exception | None = None
    asked: list[str] = field(default_factory=list)
    scans: int = 0

    @override
    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        self.scans += 1
        for name, location in self.rows.items():
            *namespace, last = name.split(".")
            yield IndexedTable(TableIdentifier(catalog, tuple(namespace), last), published(location), None)

    @override
    async def table_status(self, subject: JobKey) -> TableStatus | None:
        assert isinstance(subject, TableIdentifier)
        self.asked.append(subject.dotted)
        if self.trouble is not None:
            raise self.trouble
        if subject.dotted not in self.rows:
            return None
        return standing(published(self.rows[subject.dotted]))


def published(location: str | None) -> PublishedPointer | None:
    return None if location is None else PublishedPointer(f"{location}/metadata/1.json", None, location, AT)


def standing(live: PublishedPointer | None) -> TableStatus:
    story = TableState(live=live)
    return TableStatus(
        state="queued",
        due_at=AT,
        not_before=None,
        attempt=0,
        failing_since=None,
        reason=None,
        has_unprocessed=False,
        pending=PendingChange(),
        skip_reason=None,
        table_state=story,
        locations=frozenset(),
        last_result=None,
        last_event=None,
        open_intents=None,
    )


@pytest.fixture(name="inbox")
def fixture_inbox() -> Told:
    return Told(
        {
            "sales.orders": "file:///w/orders",
            "a.b.inner": "file:///w/inner/t",
            "sales.dropped": None,
            "sales.elsewhere": "file:///etc/orders",
            "sales.wide": "file:///wide/orders",
            "sales.bucket": "s3://w/orders",
        }
    )


async def test_live_tables_below_a_root_are_shown_with_the_narrowest_one(inbox: Told) -> None:
    rows = PublishedTables(inbox, "prod", TREES)
    found = {(namespace, name): at for namespace, names in (await rows.tables()).items() for name, at in names.items()}
    assert set(found) == {(SALES, "orders"), (("a", "b"), "inner")}
    first, inner = found[SALES, "orders"], found[("a", "b"), "inner"]
    assert first.question == Question("file:///w/orders", ("sales", "orders"), allowed=("file:///w",))
    assert inner.question.allowed == ("file:///w/inner",)
    assert inner.tree is TREES["file:///w/inner"]
    assert await rows.find(SALES, "orders") == first
    assert await rows.find(("a", "b"), "inner") == inner
    for name in ("dropped", "elsewhere", "wide", "bucket", "none", "a\0b"):
        assert await rows.find(SALES, name) is None


async def test_a_table_is_looked_up_by_its_row_alone_and_not_each_time(
    inbox: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = PublishedTables(inbox, "prod", TREES)
    for name in ("orders", "none", "orders", "none"):
        await rows.find(SALES, name)
    assert (inbox.asked, inbox.scans) == (["sales.orders", "sales.none"], 0)
    inbox.rows["sales.orders"] = "file:///w/orders-2"
    there = await rows.find(SALES, "orders", refresh=True)
    assert there is not None
    assert there.question.directory == "file:///w/orders-2"
    assert await rows.find(SALES, "orders") is there
    monkeypatch.setattr(tables, "MISSING_MAX_AGE", 0.0)
    inbox.rows["sales.none"] = "file:///w/none"
    assert await rows.find(SALES, "none") is not None
    inbox.rows["sales.orders"] = None
    assert await rows.find(SALES, "orders") is there
    monkeypatch.setattr(tables, "FOUND_MAX_AGE", 0.0)
    assert await rows.find(SALES, "orders") is None


async def test_an_inbox_in_trouble_hides_no_table_that_is_known(inbox: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = PublishedTables(inbox, "prod", TREES)
    known = await rows.find(SALES, "orders")
    await rows.find(SALES, "none")
    inbox.trouble = Transient("inbox", scope=ErrorScope.INBOX, expected="an answer", found="none")
    monkeypatch.setattr(tables, "FOUND_MAX_AGE", 0.0)
    monkeypatch.setattr(tables, "MISSING_MAX_AGE", 0.0)
    assert await rows.find(SALES, "orders") is known
    for name in ("none", "another"):
        with pytest.raises(Transient):
            await rows.find(SALES, name)


async def test_what_is_remembered_of_rows_is_bounded(inbox: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MAX_CACHED_PLACES", 3)
    rows = PublishedTables(inbox, "prod", TREES)
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(rows.find, SALES, f"t{number}")
    inbox.asked.clear()
    for number in range(10):
        await rows.find(SALES, f"t{number}")
    assert len(inbox.asked) >= 9
