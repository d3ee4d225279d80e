"""What every inbox promises to remember of catalogs: for whom their files were written."""

from __future__ import annotations

from sfn.words import Done
from tests.promises.inboxes import Ground, table

ORDERS = table("orders")


async def test_nobody_owns_what_nobody_noted(ground: Ground) -> None:
    await ground.published(ORDERS)
    assert await ground.inbox.owner("prod") is None


async def test_who_was_noted_owns_the_files(ground: Ground) -> None:
    await ground.inbox.own("prod", "c0")
    await ground.inbox.own("few", "c2")
    await ground.published(ORDERS)
    assert await ground.inbox.owner("prod") == "c0"
    await ground.inbox.own("prod", "c1")
    assert await ground.inbox.owner("prod") == "c1"
    await ground.inbox.own("prod", None)
    assert await ground.inbox.owner("prod") is None


async def test_nobody_owns_files_that_are_gone(ground: Ground) -> None:
    await ground.inbox.own("prod", "c0")
    assert await ground.inbox.owner("prod") is None
    await ground.published(ORDERS, due=10)
    ground.clock.turn(10)
    await ground.settle(await ground.claim(), Done(ground.after(60)))
    assert await ground.inbox.owner("prod") is None
