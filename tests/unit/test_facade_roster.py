"""The tables that the service published, as a facade shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from typing_extensions import override

from sfn.facade.roster import published, root_of
from sfn.facade.trees import tree
from sfn.inbox.memory import MemoryInbox
from sfn.reader.resolve import Question
from sfn.words import Known, Published, TableName

TREES = {root: tree(root, {}) for root in ("file:///w", "file:///w/inner", "file:///v")}


@dataclass
class Rows(MemoryInbox):
    """An inbox whose rows a test tells."""

    rows: dict[str, list[Known]]

    @override
    async def known(self, catalog: str) -> AsyncIterator[Known]:
        for row in self.rows[catalog]:
            yield row


def row(name: str, location: str | None) -> Known:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    live = None if location is None else Published(f"{location}/metadata/1.json", None, location, at)
    *namespace, last = name.split(".")
    return Known(TableName("prod", tuple(namespace), last), live, None)


async def test_live_tables_below_a_root_are_shown_with_the_narrowest_one() -> None:
    rows = [
        row("sales.orders", "file:///w/orders"),
        row("a.b.inner", "file:///w/inner/t"),
        row("sales.dropped", None),
        row("sales.elsewhere", "file:///etc/orders"),
        row("sales.wide", "file:///wide/orders"),
        row("sales.bucket", "s3://w/orders"),
    ]
    found = [one async for one in published(Rows({"prod": rows, "dev": []}), "prod", TREES)()]
    assert [(namespace, name) for namespace, name, _ in found] == [(("sales",), "orders"), (("a", "b"), "inner")]
    first, inner = (place for _, _, place in found)
    assert first.question == Question("file:///w/orders", ("sales", "orders"), allowed=("file:///w",))
    assert inner.question.allowed == ("file:///w/inner",)
    assert inner.tree is TREES["file:///w/inner"]


def test_the_root_of_a_location() -> None:
    assert root_of("file:///w/inner", TREES) == "file:///w/inner"
    assert root_of("file:///w/innermost", TREES) == "file:///w"
    assert root_of("file:///", TREES) is None
