"""Admin commands and catalog ids of every inbox."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, PublishResult, Rescheduled, Retry, TableState
from sfn.inbox.model import MAX_UNDECODABLE_PER_SENDER, AdminCommand, DeadLetterFilter, DeadLetterStatus
from tests.promises.inboxes import Ground, pointer, table

# ── Catalog ids


ORDERS, STOCK = table("orders"), table("stock")


async def written(ground: Ground, name: str, catalog_id: str | None) -> None:
    """A table whose live file carries a `catalog_id`, None for one whose was not noted."""
    done = ground.done(f"s3://lake/{name}", name)
    live = done.result.table_state.live
    assert live is not None
    story = TableState(live=structs.replace(live, catalog_id=catalog_id), has_settled=True)
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
    owner = await ground.inbox.recorded_owner("prod", catalog_id)
    assert await ground.inbox.owner_id("prod") == owner
    return owner


async def test_last_recorded_owner_is_returned(ground: Ground) -> None:
    assert await ground.inbox.owner_id("prod") is None
    for catalog_id in ("c0", "c1"):
        await ground.inbox.record_owner("prod", catalog_id)
        assert await ground.inbox.owner_id("prod") == catalog_id
    assert await ground.inbox.owner_id("few") is None


async def test_catalog_without_files_is_its_own_owner(ground: Ground) -> None:
    assert await noted(ground, "c0") == "c0"
    assert await noted(ground, "c1") == "c1"


async def test_files_without_catalog_id_belong_to_the_first_owner(ground: Ground) -> None:
    await written(ground, "orders", None)
    assert await noted(ground, "c0") == "c0"
    assert await noted(ground, "c1") == "c0"


async def test_files_from_before_a_move_belong_to_the_old_catalog(ground: Ground) -> None:
    await written(ground, "orders", "c0")
    assert await noted(ground, "c0") == "c0"
    assert await noted(ground, "c1") == "c0"
    await written(ground, "stock", "c1")
    assert await noted(ground, "c1") == "c0"


async def test_file_that_blocks_a_table_belongs_to_the_old_catalog(ground: Ground) -> None:
    await noted(ground, "c0")
    await foreign(ground, "orders", "c0")
    assert await noted(ground, "c1") == "c0"


async def test_file_of_an_unrecorded_catalog_does_not_change_the_owner(ground: Ground) -> None:
    await noted(ground, "c1")
    await foreign(ground, "orders", "c9")
    await written(ground, "stock", "c1")
    assert await noted(ground, "c1") == "c1"


async def test_owner_changes_once_the_last_file_is_adopted(ground: Ground) -> None:
    await noted(ground, "c0")
    await foreign(ground, "orders", "c0")
    await written(ground, "stock", "c0")
    await written(ground, "orders", "c1")
    assert await noted(ground, "c1") == "c0"
    await written(ground, "stock", "c1")
    assert await noted(ground, "c1") == "c1"


async def test_file_with_a_pending_adoption_does_not_count(ground: Ground) -> None:
    await noted(ground, "c0")
    await foreign(ground, "orders", "c0")
    await written(ground, "stock", "c0")
    await ground.inbox.adopt(
        [Notification(ORDERS, adopt_catalog_id="c0"), Notification(STOCK, adopt_catalog_id="c9")], ground.order()
    )
    assert await noted(ground, "c1") == "c0"
    await ground.inbox.adopt([Notification(STOCK, adopt_catalog_id="c0")], ground.order())
    assert await noted(ground, "c1") == "c1"


async def test_files_after_two_moves_belong_to_the_previous_catalog(ground: Ground) -> None:
    await noted(ground, "c0")
    await written(ground, "orders", "c1")
    assert await noted(ground, "c2") == "c1"


async def test_removed_files_have_no_owner(ground: Ground) -> None:
    await noted(ground, "c0")
    await written(ground, "orders", "c0")
    await ground.settled(ORDERS, Done(ground.after(60)))
    assert await noted(ground, "c1") == "c1"


# ── Dead letters and adoption


RETURNS = table("returns")
ODD = UndecodableRequest("etl", "/v1/events", "application/json", b"{", 1, "expected JSON, found {")


async def died(
    ground: Ground, name: TableIdentifier = ORDERS, reason: DeadLetterReason = DeadLetterReason.PERMANENT
) -> int:
    """A table's open letter."""
    await ground.settled(name, DeadLettered(reason, "why"))
    return (await ground.inbox.list_after(DeadLetterFilter(table=name), 0, 1))[0].id


async def statuses(ground: Ground) -> list[DeadLetterStatus]:
    return [letter.status for letter in await ground.inbox.list_after(DeadLetterFilter(status=None), 0, 1000)]


async def test_dead_letter_has_its_subject_and_opening_time(ground: Ground) -> None:
    opened = ground.now
    number = await died(ground)
    ground.clock.turn(60)
    await ground.hint(ORDERS)
    ground.clock.turn(300)
    await ground.settle(await ground.claim(), DeadLettered(DeadLetterReason.LOCATION_REFUSED, "elsewhere"))
    (letter,) = await ground.inbox.get_many([number, number + 7])
    assert (letter.subject, letter.reason, letter.detail) == (ORDERS, DeadLetterReason.LOCATION_REFUSED, "elsewhere")
    assert (letter.opened_at, letter.changed_at, letter.sender) == (opened, ground.now, None)


async def test_dead_letters_are_filtered_by_each_attribute(ground: Ground) -> None:
    await died(ground)
    ground.clock.turn(60)
    await died(ground, STOCK, DeadLetterReason.EXHAUSTED)
    await died(ground, table("orders", "few"))
    await ground.inbox.put([ODD])

    async def found(wanted: DeadLetterFilter) -> list[str]:
        return [str(letter.subject or letter.sender) for letter in await ground.inbox.list_after(wanted, 0, 10)]

    assert await found(DeadLetterFilter()) == ["prod:sales.orders", "prod:sales.stock", "few:sales.orders", "etl"]
    assert await found(DeadLetterFilter(catalog="prod")) == ["prod:sales.orders", "prod:sales.stock"]
    assert await found(DeadLetterFilter(table=STOCK)) == ["prod:sales.stock"]
    assert await found(DeadLetterFilter(reason=DeadLetterReason.PERMANENT)) == ["prod:sales.orders", "few:sales.orders"]
    assert await found(DeadLetterFilter(reason=DeadLetterReason.PERMANENT, catalog="few")) == ["few:sales.orders"]
    assert await found(DeadLetterFilter(sender="etl")) == ["etl"]
    assert await found(DeadLetterFilter(opened_before=ground.now)) == ["prod:sales.orders"]
    assert await found(DeadLetterFilter(opened_since=ground.now)) == ["prod:sales.stock", "few:sales.orders", "etl"]
    assert await found(DeadLetterFilter(status=DeadLetterStatus.REPLAYED)) == []


async def test_dead_letters_are_listed_in_pages(ground: Ground) -> None:
    for number in range(5):
        await died(ground, table(f"t{number}"))
    first = await ground.inbox.list_after(DeadLetterFilter(), 0, 2)
    second = await ground.inbox.list_after(DeadLetterFilter(), first[-1].id, 10)
    assert [str(letter.subject) for letter in [*first, *second]] == [f"prod:sales.t{number}" for number in range(5)]
    await ground.inbox.discard([second[-1].id], ground.order())
    assert await ground.inbox.list_newest(DeadLetterFilter(), 3) == [second[1], second[0], first[1]]
    assert await ground.inbox.list_newest(DeadLetterFilter(id_below=second[0].id), 3) == [first[1], first[0]]
    assert await ground.inbox.list_newest(DeadLetterFilter(table=table("t4")), 3) == []


async def test_replay_checks_the_table_and_closes_the_dead_letter(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    await ground.settle(await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    number = await died(ground, STOCK)
    (first, _) = await ground.inbox.list_after(DeadLetterFilter(), 0, 9)
    assert await ground.inbox.replay([first.id, first.id, 99], [], ground.order("one")) == 1
    claim = await ground.claim()
    assert (claim.subject, claim.attempt, claim.pending.min_metadata_location) == (ORDERS, 1, pointer(3))
    (letter,) = await ground.inbox.get_many([first.id])
    assert (letter.status, letter.actor) == (DeadLetterStatus.REPLAYED, "ann")
    assert [letter.id for letter in await ground.inbox.list_after(DeadLetterFilter(), 0, 9)] == [number]
    assert await ground.inbox.replay([first.id], [], ground.order()) == 0


async def test_replay_has_background_priority(ground: Ground) -> None:
    numbers = [await died(ground, table(f"t{number}")) for number in range(3)]
    await ground.inbox.replay(numbers, [], ground.order())
    ground.clock.turn(1)
    await ground.hint(ORDERS)
    lanes = {str(claim.subject): claim.group.priority.value for claim in await ground.claims()}
    assert lanes == {"prod:sales.t0": "chore", "prod:sales.t1": "chore", "prod:sales.t2": "chore"} | {
        "prod:sales.orders": "live"
    }


async def test_replay_of_a_held_table_overrides_the_drop_limit_once(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "why", ground.done().result))
    (letter,) = await ground.inbox.list_after(DeadLetterFilter(), 0, 9)
    await ground.inbox.replay([letter.id], [], ground.order())
    assert (await ground.claim()).table_state.limit_overridden


async def test_replay_of_another_table_overrides_no_limit(ground: Ground) -> None:
    await ground.inbox.replay([await died(ground)], [], ground.order())
    assert not (await ground.claim()).table_state.limit_overridden


async def test_forgotten_job_supersedes_its_dead_letter(ground: Ground) -> None:
    number = await died(ground)
    await ground.hint(ORDERS)
    ground.clock.turn(300)
    claim = await ground.claim()
    await ground.settle(claim, Rescheduled(ground.now, "a moment"))
    assert [letter.id for letter in await ground.inbox.list_after(DeadLetterFilter(), 0, 9)] == [number]
    await ground.settle(await ground.claim(), Done(ground.now, forget=True))
    assert await ground.row(ORDERS) is None
    assert await statuses(ground) == [DeadLetterStatus.SUPERSEDED]


async def test_failed_replay_opens_another_dead_letter(ground: Ground) -> None:
    await ground.inbox.replay([await died(ground)], [], ground.order())
    await ground.settle(await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "still"))
    assert await statuses(ground) == [DeadLetterStatus.REPLAYED, DeadLetterStatus.OPEN]


async def test_replay_of_a_sweep_is_a_sweep(ground: Ground) -> None:
    await ground.inbox.put([Notification(CatalogName("prod"))])
    await ground.settle(await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    (letter,) = await ground.inbox.list_after(DeadLetterFilter(catalog="prod"), 0, 9)
    await ground.inbox.replay([letter.id], [], ground.order())
    assert (await ground.claim()).subject == CatalogName("prod")


async def test_discarded_dead_letter_causes_no_attempt(ground: Ground) -> None:
    number = await died(ground)
    assert await ground.inbox.discard([number, number, 99], ground.order()) == 1
    assert await ground.inbox.discard([number], ground.order()) == 0
    assert await statuses(ground) == [DeadLetterStatus.DISCARDED]
    ground.clock.turn(86_400)
    assert await ground.claims() == []


async def test_undecodable_request_is_stored_unchanged(ground: Ground) -> None:
    accepted = await ground.inbox.put([ODD, Notification(ORDERS)])
    assert (accepted.accepted, accepted.duplicates) == (1, 0)
    (letter,) = await ground.inbox.list_after(DeadLetterFilter(reason=DeadLetterReason.UNDECODABLE), 0, 9)
    assert (letter.subject, letter.sender, letter.detail) == (None, "etl", ODD.detail)
    assert await ground.inbox.request_of(letter.id) == ODD
    assert await ground.inbox.request_of(letter.id + 1) is None


async def test_oldest_undecodable_request_of_a_sender_is_evicted(ground: Ground) -> None:
    await ground.inbox.put([UndecodableRequest("other", "/", None, b"", 0, "")])
    await ground.inbox.put([ODD] * MAX_UNDECODABLE_PER_SENDER)
    (oldest,) = await ground.inbox.list_after(DeadLetterFilter(sender="etl"), 0, 1)
    await ground.inbox.put([ODD])
    left = await ground.inbox.list_after(DeadLetterFilter(), 0, 2 * MAX_UNDECODABLE_PER_SENDER)
    assert len(left) == MAX_UNDECODABLE_PER_SENDER + 1
    assert oldest not in left
    assert await ground.inbox.request_of(oldest.id) is None
    assert (await ground.inbox.stats()).dead_letters == {("", "undecodable"): MAX_UNDECODABLE_PER_SENDER + 1}


async def test_replay_of_a_request_queues_its_notifications(ground: Ground) -> None:
    await ground.inbox.put([ODD])
    (letter,) = await ground.inbox.list_after(DeadLetterFilter(), 0, 9)
    assert await ground.inbox.replay([letter.id], [Notification(ORDERS, "etl", "e1")], ground.order()) == 1
    assert (await ground.claim()).subject == ORDERS
    assert await statuses(ground) == [DeadLetterStatus.REPLAYED]


async def test_every_admin_command_is_in_the_audit_log(ground: Ground) -> None:
    first, second = await died(ground), await died(ground, STOCK)
    await ground.inbox.replay([first], [], AdminCommand("ann", "ids 1", ground.now))
    ground.clock.turn(1)
    await ground.inbox.discard([second], AdminCommand("bob", "ids 2", ground.now))
    await ground.inbox.release("few", AdminCommand("bob", "few", ground.now))
    await ground.inbox.adopt(
        [Notification(ORDERS, adopt_catalog_id="c0")], AdminCommand("ann", "sales.orders", ground.now)
    )
    await ground.inbox.retire("few", retired=True, command=AdminCommand("ann", "few", ground.now))
    await ground.inbox.reconcile([Notification(CatalogName("few"))], AdminCommand("eve", "few", ground.now))
    entries = await ground.inbox.audit_log(None, 10)
    told = [(entry.actor, entry.action, entry.target, entry.count) for entry in entries]
    assert told == [
        ("eve", "reconcile", "few", 1),
        ("ann", "retire", "few", 1),
        ("ann", "adopt", "sales.orders", 1),
        ("bob", "release", "few", 0),
        ("bob", "discard", "ids 2", 1),
        ("ann", "replay", "ids 1", 1),
    ]
    assert [entry.action for entry in await ground.inbox.audit_log(entries[3].id, 1)] == ["discard"]
    assert entries[0].at - entries[-1].at == timedelta(seconds=1)


@pytest.mark.parametrize("folded", [True, False])
async def test_adoption_passes_the_catalog_id_to_the_job(ground: Ground, *, folded: bool) -> None:
    await died(ground, reason=DeadLetterReason.FOREIGN_CATALOG)
    await ground.inbox.adopt([Notification(ORDERS, adopt_catalog_id="c0")], ground.order())
    claim = await ground.claim()
    assert claim.pending.adopt_catalog_id == "c0"
    await ground.hint(ORDERS)
    if folded:
        await ground.inbox.fold()
    await ground.settle(claim, Retry(ground.now, "no"))
    assert (await ground.claim()).pending.adopt_catalog_id == "c0"


async def test_catalog_stays_retired_until_it_is_undone(ground: Ground) -> None:
    await ground.inbox.retire("few", retired=True, command=ground.order())
    await ground.inbox.retire("few", retired=True, command=ground.order())
    assert await ground.inbox.retired_catalogs() == {"few"}
    await ground.inbox.retire("few", retired=False, command=ground.order())
    assert await ground.inbox.retired_catalogs() == frozenset()


async def test_written_files_close_the_dead_letter(ground: Ground) -> None:
    await died(ground)
    ground.clock.turn(300)
    await ground.hint(ORDERS)
    ground.clock.turn(300)
    await ground.settle(await ground.claim(), Rescheduled(ground.after(60), "absent", result=PublishResult()))
    assert await statuses(ground) == [DeadLetterStatus.OPEN]
    ground.clock.turn(60)
    wrote = PublishResult(written_keys=("file:///a",))
    await ground.settle(await ground.claim(), Rescheduled(ground.after(60), "replicas lag", result=wrote))
    assert await statuses(ground) == [DeadLetterStatus.SUPERSEDED]
    assert (await ground.inbox.stats()).dead_letters == {}


async def test_drop_limit_state_is_reported(ground: Ground) -> None:
    before = await ground.inbox.drop_limit_state("few")
    assert (before.limit_reached, before.steps, before.limit) == (False, 0, 2)
    await ground.inbox.release("few", ground.order())
    assert (await ground.inbox.drop_limit_state("prod")).limit == 1


@pytest.mark.parametrize("reason", [DeadLetterReason.HELD_DROP, DeadLetterReason.PERMANENT])
async def test_replay_fences_the_running_worker(ground: Ground, reason: DeadLetterReason) -> None:
    number = await died(ground, reason=reason)
    await ground.hint(ORDERS)
    ground.clock.turn(300)
    claim = await ground.claim()
    await ground.inbox.replay([number], [], ground.order())
    assert not await ground.inbox.settle(claim, Retry(ground.now, ""), ground.now)
    assert (await ground.claim()).table_state == TableState(limit_overridden=reason is DeadLetterReason.HELD_DROP)
