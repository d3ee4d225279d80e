"""What every inbox promises to remember of catalogs: for whom their files were written."""

from __future__ import annotations

from dataclasses import replace

from sfn.domain.events import Notification
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, PublishResult, TableState
from sfn.inbox.admin import recorded_owner
from tests.promises.inboxes import Ground, table

ORDERS, STOCK = table("orders"), table("stock")


async def written(ground: Ground, name: str, catalog_id: str | None) -> None:
    """A table whose live file carries a `catalog_id`, None for one whose was not noted."""
    done = ground.done(f"s3://lake/{name}", name)
    live = done.result.table_state.live
    assert live is not None
    story = TableState(live=replace(live, catalog_id=catalog_id), has_settled=True)
    await ground.settled(table(name), Done(done.due_at, PublishResult(story)))


async def foreign(ground: Ground, name: str, catalog_id: str) -> None:
    """A table that a file of that `catalog_id` keeps from its place."""
    dead = DeadLettered(
        DeadLetterReason.FOREIGN_CATALOG,
        "why",
        PublishResult(TableState(has_settled=True, foreign_catalog_id=catalog_id)),
    )
    await ground.settled(table(name), dead)


async def noted(ground: Ground, catalog_id: str) -> str:
    """Whose the files are, of a catalog that is that one now; what was answered is what is remembered."""
    owner = await recorded_owner("prod", catalog_id, ground.inbox, ground.inbox)
    assert await ground.inbox.owner_id("prod") == owner
    return owner


async def test_who_was_noted_last_is_remembered(ground: Ground) -> None:
    assert await ground.inbox.owner_id("prod") is None
    for catalog_id in ("c0", "c1"):
        await ground.inbox.record_owner("prod", catalog_id)
        assert await ground.inbox.owner_id("prod") == catalog_id
    assert await ground.inbox.owner_id("few") is None


async def test_a_catalog_without_files_is_its_own(ground: Ground) -> None:
    assert await noted(ground, "c0") == "c0"
    assert await noted(ground, "c1") == "c1"


async def test_files_of_which_nobody_noted_whose_they_are_are_the_first_ones(ground: Ground) -> None:
    await written(ground, "orders", None)
    assert await noted(ground, "c0") == "c0"
    assert await noted(ground, "c1") == "c0"


async def test_files_that_were_written_before_a_move_are_the_old_catalogs(ground: Ground) -> None:
    await written(ground, "orders", "c0")
    assert await noted(ground, "c0") == "c0"
    assert await noted(ground, "c1") == "c0"
    await written(ground, "stock", "c1")
    assert await noted(ground, "c1") == "c0"


async def test_a_table_that_the_old_file_blocks_still_has_it(ground: Ground) -> None:
    await noted(ground, "c0")
    await foreign(ground, "orders", "c0")
    assert await noted(ground, "c1") == "c0"


async def test_a_file_of_whoever_was_never_noted_is_nobody_elses_to_give(ground: Ground) -> None:
    await noted(ground, "c1")
    await foreign(ground, "orders", "c9")
    await written(ground, "stock", "c1")
    assert await noted(ground, "c1") == "c1"


async def test_once_the_last_file_is_taken_over_the_catalog_is_its_own(ground: Ground) -> None:
    await noted(ground, "c0")
    await foreign(ground, "orders", "c0")
    await written(ground, "stock", "c0")
    await written(ground, "orders", "c1")
    assert await noted(ground, "c1") == "c0"
    await written(ground, "stock", "c1")
    assert await noted(ground, "c1") == "c1"


async def test_a_file_that_is_to_be_taken_over_counts_no_more(ground: Ground) -> None:
    await noted(ground, "c0")
    await foreign(ground, "orders", "c0")
    await written(ground, "stock", "c0")
    await ground.inbox.adopt(
        [Notification(ORDERS, adopt_catalog_id="c0"), Notification(STOCK, adopt_catalog_id="c9")], ground.order()
    )
    assert await noted(ground, "c1") == "c0"
    await ground.inbox.adopt([Notification(STOCK, adopt_catalog_id="c0")], ground.order())
    assert await noted(ground, "c1") == "c1"


async def test_a_catalog_that_moved_twice_has_the_files_of_the_move_before(ground: Ground) -> None:
    await noted(ground, "c0")
    await written(ground, "orders", "c1")
    assert await noted(ground, "c2") == "c1"


async def test_nobody_owns_files_that_are_gone(ground: Ground) -> None:
    await noted(ground, "c0")
    await written(ground, "orders", "c0")
    await ground.settled(ORDERS, Done(ground.after(60)))
    assert await noted(ground, "c1") == "c1"
