"""Lists of tables from every inbox: each page of each list, compared with all tables filtered and sorted one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Retry
from sfn.inbox import table_list
from sfn.inbox.model import DeadLetterFilter, Job, stat_state, waiting_since
from sfn.inbox.schema import encode_key
from sfn.inbox.table_list import ALWAYS, ListedTable, Position, TableOrder, TableQuery
from tests.promises.inboxes import Ground, table
from tests.support.clock import HandClock

LONG = TableIdentifier("prod", ("sales", "n" * 900, "m" * 900), "orders" * 60)
"""Its key is cut."""
TABLES = (
    *(TableIdentifier("prod", ("sales", *deeper), f"t{number}") for deeper in ((), ("eu",)) for number in range(6)),
    *(TableIdentifier(catalog, ("stock",), f"t{number}") for catalog in ("few", "prod") for number in range(6)),
    TableIdentifier("prod", (), "loose"),
    LONG,
)
NEW = table("new"), table("newer", "few")
DEAD = DeadLettered(DeadLetterReason.PERMANENT, "why")
HELD = DeadLettered(DeadLetterReason.HELD_DROP, "why")


async def fill(ground: Ground) -> None:
    """Bring the tables into all states, at different times."""
    endings: Sequence[Callable[[], Done | Retry | DeadLettered]] = (
        lambda: Done(ground.after(3600)),
        lambda: Retry(ground.after(3600), "no answer"),
        lambda: DEAD,
        lambda: HELD,
        lambda: DeadLettered(DeadLetterReason.EXHAUSTED, "why", recheck_at=ground.after(7200)),
    )
    for number, name in enumerate(TABLES[:-4]):
        await ground.hint(name)
        ground.clock.turn(1)
        await ground.settle(await ground.claim(), endings[number % len(endings)]())
        ground.clock.turn(1)
    await ground.hint(*TABLES[-4:])
    await ground.claims()
    await ground.hint(*TABLES[::3], *NEW)


async def every_job(ground: Ground) -> list[Job]:
    found = [await ground.inbox.table_status(name) for name in (*TABLES, *NEW)]
    return [one.job for one in found if one is not None]


async def listed(ground: Ground, query: TableQuery, limit: int) -> list[ListedTable]:
    """All pages of a list."""
    found: list[ListedTable] = []
    after: Position | None = Position()
    while after is not None:
        page = await ground.inbox.list_tables(query, after, limit)
        assert len(page.tables) <= limit
        assert page.next != after
        found, after = found + page.tables, page.next
    return found


QUERIES = [
    TableQuery(catalogs, order, frozenset(states), since, namespace, matches)
    for catalogs in (("prod",), ("few", "prod"), ())
    for order in TableOrder
    for states in ((), ("dead",), ("held", "retrying"), ("due", "leased"), ("dead", "scheduled"))
    for since in ((ALWAYS, HandClock().now() + timedelta(seconds=30)) if order is TableOrder.LAG else (ALWAYS,))
    for namespace, matches in (((), None), (("sales",), None), ((), lambda name: name.name.endswith(("1", "s"))))
]


@pytest.mark.parametrize("scan", [7, 5_000])
async def test_the_pages_of_each_list_are_all_its_tables(
    ground: Ground, scan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "SCAN_SIZE", scan)
    await fill(ground)
    jobs = await every_job(ground)
    letters = await ground.inbox.list_after(DeadLetterFilter(), 0, 1000)
    letter_of = {one.subject: one for one in letters}
    assert {stat_state(job) for job in jobs} == {"due", "scheduled", "retrying", "leased", "dead", "held"}
    for query in QUERIES:
        wanted = [job for job in jobs if is_wanted(job, query)]
        wanted.sort(key=lambda job: order_of(job, query.order))
        for limit in (2, 1000):
            found = await listed(ground, query, limit)
            assert [one.job.subject for one in found] == [job.subject for job in wanted], query
            assert [one.letter for one in found] == [letter_of.get(job.subject) for job in wanted]


def is_wanted(job: Job, query: TableQuery) -> bool:
    name = job.subject
    assert isinstance(name, TableIdentifier)
    since = waiting_since(job)
    return (
        name.catalog in query.catalogs
        and (not query.states or stat_state(job) in query.states)
        and name.namespace[: len(query.namespace)] == query.namespace
        and (query.matches is None or query.matches(name))
        and (query.order is TableOrder.NAME or (since is not None and since <= query.waiting_since))
    )


def order_of(job: Job, order: TableOrder) -> tuple[object, ...]:
    return (waiting_since(job), encode_key(job.subject)) if order is TableOrder.LAG else (encode_key(job.subject),)
