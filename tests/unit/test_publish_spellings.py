"""A table has one identity under every spelling of its name that its catalog takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from typing_extensions import override

from sfn.catalogs.spelling import CACHE_LIFETIME, Spellings, fold_name
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, StoredObject
from sfn.errors import ErrorScope, Transient
from sfn.publish.policy import Policy, TableFilter
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import UUID
from sfn.storage import PreconditionFailed
from tests.promises.inboxes import TERMS
from tests.support.memory_inbox import MemoryInbox
from tests.support.publishing import EVERYTHING, LAG, CountingCatalog, CountingStore, Line, key_of

LISTED = TableIdentifier("prod", ("sales",), "orders")
OTHER = TableIdentifier("prod", ("SALES",), "ORDERS")
AT = "file:///warehouse/sales/orders"


class AnyCase(Line):
    """A catalog that takes names in any case."""

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__(policy)
        self.catalog.fold_name = fold_name
        self.catalog.create_namespace("sales")

    def files(self) -> dict[str, Any]:
        """State and pointer's number of each SFN file at the table's place, by its name."""
        keys = [key for key in self.store.files if key.startswith(AT) and key.endswith(".ver")]
        return {key.rpartition("/")[2]: self.said(key) for key in sorted(keys)}

    def said(self, key: str) -> tuple[str, str]:
        document = self.document_of(key)
        return document["state"], document["metadata_file_path"].rpartition("/")[2][:5]

    def document_of(self, key: str) -> dict[str, Any]:
        names = {key_of(name, AT): name for name in (LISTED, OTHER)}
        return self.document(names[key], AT)


def both_spellings() -> AnyCase:
    """A line whose catalog has a namespace of each spelling, and tells them apart."""
    line = AnyCase()
    line.catalog.fold_name = None
    line.catalog.create_namespace("SALES")
    return line


def of(number: int) -> dict[str, tuple[str, str]]:
    """The listed name's file alone, with the pointer of a number."""
    return {"sales_orders_main.ver": ("current", f"{number:05d}")}


async def test_a_commit_under_another_spelling_is_followed_at_once_by_the_listed_names_file() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED))
    for number in (1, 2):
        table = line.catalog.commit(LISTED)
        await line.hear(Notification(OTHER, min_metadata_location=table.metadata_location), seconds=1)
        assert line.files() == of(number)
        assert line.hint(AT) == table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json").encode()


async def test_a_table_that_is_first_heard_of_under_another_spelling_has_the_listed_names_file() -> None:
    """Before any sweep: the catalog's listing says which spelling it is."""
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=1)
    assert line.files() == of(0)


async def test_both_spellings_together_make_one_file() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), Notification(LISTED), seconds=1)
    line.catalog.commit(LISTED)
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=30)
    assert line.files() == of(1)


@pytest.mark.parametrize(
    ("listed", "other"),
    [
        ("orders", "Orders"),
        ("bestellte_b\u00fccher", "Bestellte_B\u00dcCHER"),
        ("caf\u00e9", "cafe\u0301"),
        ("cafe\u0301", "CAF\u00c9"),
        ("orders", "orders "),
        ("orders", '"orders"'),
        ("stra\u00dfe", "STRASSE"),
        ("\ufb01le", "file"),
        ("cafe", "caf\u00e9"),
    ],
)
async def test_whatever_spellings_a_catalog_takes_for_one(listed: str, other: str) -> None:
    line = AnyCase()
    name = msgspec.structs.replace(LISTED, name=listed)
    table = line.catalog.create(name, AT)
    await line.hear(Notification(msgspec.structs.replace(name, name=other)), seconds=60)
    assert [key for key in line.store.files if key.endswith(".ver")] == [key_of(name, AT)]
    assert line.document(name, AT)["guid"] == table.uuid


async def test_two_tables_whose_names_differ_by_case_stay_two() -> None:
    """A catalog that tells them apart lists both, each with its own uuid."""
    line = both_spellings()
    tables = {name: line.catalog.create(name, f"file:///warehouse/{name.name}") for name in (LISTED, OTHER)}
    for _ in range(2):
        await line.hear(*map(Notification, tables), seconds=60)
        for name, table in tables.items():
            document = line.document(name, table.location)
            assert (document["guid"], document["state"]) == (table.uuid, "current")
            assert document["metadata_file_path"] == table.metadata_location
        tables = {name: line.catalog.commit(name) for name in tables}


async def test_two_tables_whose_names_differ_by_case_stay_two_where_one_is_not_listed_yet() -> None:
    """Its catalog answers another table for the listed name: that is not the same one."""
    line = both_spellings()
    first, second = line.catalog.create(LISTED), line.catalog.create(OTHER, "file:///warehouse/second")
    line.catalog.listing_hides = frozenset({OTHER})
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=60)
    assert line.document(LISTED, AT)["guid"] == first.uuid
    assert line.document(OTHER, second.location)["guid"] == second.uuid


async def test_a_copy_with_the_same_uuid_at_another_place_is_a_table_of_its_own() -> None:
    line = both_spellings()
    table = line.catalog.create(LISTED)
    copy = replace(line.catalog.create(OTHER, "file:///warehouse/second"), uuid=table.uuid)
    line.catalog.amend(OTHER, copy)
    line.catalog.listing_hides = frozenset({OTHER})
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=60)
    assert line.document(OTHER, copy.location)["metadata_file_path"] == copy.metadata_location


async def test_one_table_that_is_listed_under_two_spellings_has_two_files() -> None:
    line = both_spellings()
    table = line.catalog.create(LISTED)
    line.catalog.register(OTHER, table)
    await line.hear(Notification(OTHER), Notification(LISTED), seconds=60)
    assert line.files() == {**of(0), "SALES_ORDERS_main.ver": ("current", "00000")}


async def test_a_name_that_a_lagging_listing_lacks_is_published_once_it_is_listed() -> None:
    """A table that was registered under a second name is taken for the first one until it is looked at again."""
    line = both_spellings()
    table = line.catalog.create(LISTED)
    line.catalog.register(OTHER, table)
    line.catalog.listing_hides = frozenset({OTHER})
    await line.hear(Notification(OTHER))
    assert line.files() == of(0)
    line.catalog.listing_hides = frozenset()
    line.clock.turn(CACHE_LIFETIME.total_seconds())
    await line.work(LAG.total_seconds())
    assert line.files() == {**of(0), "SALES_ORDERS_main.ver": ("current", "00000")}


async def test_tables_without_a_uuid_are_one_only_where_they_have_one_metadata_file() -> None:
    line = both_spellings()
    first = line.catalog.create(LISTED)
    line.catalog.amend(LISTED, replace(first, uuid=None))
    second = line.catalog.create(OTHER, "file:///warehouse/second")
    line.catalog.amend(OTHER, replace(second, uuid=None))
    line.catalog.listing_hides = frozenset({OTHER})
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=60)
    assert line.document(OTHER, second.location)["metadata_file_path"] == second.metadata_location


async def test_the_file_of_another_spelling_leads_to_the_listed_names() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    line.spellings = Spellings(None, line.clock)
    await line.hear(Notification(OTHER), seconds=60)
    assert line.files() == {"SALES_ORDERS_main.ver": ("current", "00000")}
    line.spellings = Spellings(line.catalog, line.clock)
    line.catalog.commit(LISTED)
    await line.hear(Notification(OTHER), seconds=60)
    assert line.files() == {**of(1), "SALES_ORDERS_main.ver": ("renamed", "00000")}
    assert line.hint(AT) is not None


@pytest.mark.parametrize("is_taken_first", [True, False])
async def test_the_file_of_another_spelling_says_whose_the_name_is_now(is_taken_first: bool) -> None:
    """Its table was renamed, and the name is another table's: whoever asks for it under that spelling is told."""
    line = AnyCase()
    line.catalog.create(LISTED)
    line.spellings = Spellings(None, line.clock)
    await line.hear(Notification(OTHER), seconds=60)
    assert line.files() == {"SALES_ORDERS_main.ver": ("current", "00000")}
    line.spellings = Spellings(line.catalog, line.clock)
    sold = msgspec.structs.replace(LISTED, name="sold")
    line.catalog.rename(LISTED, sold)
    await line.hear(Notification(sold), *(() if is_taken_first else [Notification(OTHER, renamed_to=sold)]), seconds=60)
    line.catalog.create(LISTED, "file:///warehouse/second")
    await line.hear(Notification(LISTED), Notification(OTHER, renamed_to=sold), seconds=60)
    left = line.document_of(key_of(OTHER, AT))
    assert (left["state"], left["moved_to"]["name"]) == ("renamed", "sold")
    assert left["name_now"]["sfn_file_path"] == key_of(LISTED, "file:///warehouse/second")
    assert (left["name_now"]["namespace"], left["name_now"]["name"]) == (["sales"], "orders")


async def test_a_drop_under_another_spelling_is_one_of_the_listed_name() -> None:
    """It need not wait for `absence_delay`, which is ten minutes."""
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=60)
    line.catalog.drop(LISTED)
    await line.hear(Notification(OTHER, drop=True), seconds=2 * LAG.total_seconds())
    # Nothing of the table is left in its folder, so neither is the file.
    assert line.files() == {}


async def test_a_rename_under_other_spellings_leads_to_the_listed_name() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED), seconds=60)
    new = msgspec.structs.replace(LISTED, name="sold")
    line.catalog.rename(LISTED, new)
    spelled = msgspec.structs.replace(OTHER, name="SOLD")
    await line.hear(
        Notification(OTHER, renamed_to=spelled),
        Notification(spelled),
        Notification(LISTED, renamed_to=spelled),
        seconds=120,
    )
    assert (line.document(LISTED, AT)["state"], line.document(new, AT)["state"]) == ("renamed", "current")
    assert line.document(LISTED, AT)["moved_to"]["name"] == "sold"
    assert key_of(spelled, AT) not in line.store.files


async def test_a_rename_that_only_another_spelling_was_told_of_is_no_drop() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=60)
    new = msgspec.structs.replace(LISTED, name="sold")
    line.catalog.rename(LISTED, new)
    await line.hear(Notification(OTHER, renamed_to=msgspec.structs.replace(OTHER, name="SOLD")), seconds=60)
    assert (line.document(LISTED, AT)["state"], line.document(new, AT)["state"]) == ("renamed", "current")


async def test_a_rename_to_another_spelling_is_followed() -> None:
    """A catalog that keeps the spelling of a rename lists the new one, and still takes the old one."""
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED), seconds=60)
    line.catalog.create_namespace("SALES")
    line.catalog.rename(LISTED, OTHER)
    await line.hear(Notification(LISTED, renamed_to=OTHER), Notification(OTHER), seconds=120)
    assert line.files() == {
        "SALES_ORDERS_main.ver": ("current", "00000"),
        "sales_orders_main.ver": ("renamed", "00000"),
    }


async def test_a_table_that_took_the_place_of_another_one_ends_that_ones_file() -> None:
    """Under the spelling that has a file of its own lies one of a table that is nowhere any more."""
    line = AnyCase()
    line.spellings = Spellings(None, line.clock)
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=60)
    line.spellings = Spellings(line.catalog, line.clock)
    line.catalog.drop(LISTED)
    new = line.catalog.create(LISTED, AT)
    await line.hear(Notification(OTHER), seconds=3600)
    assert line.files() == of(0)
    assert line.document(LISTED, AT)["guid"] == new.uuid


async def test_a_namespace_that_may_not_be_listed_keeps_nothing_from_being_published() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    line.catalog.close_namespace("sales")
    await line.hear(Notification(LISTED))
    assert line.files() == of(0)


async def test_a_listed_name_that_is_left_out_has_no_file_in_the_other_ones_place() -> None:
    """`include` names the spelling that events use: nothing is taken from who relies on that."""
    line = AnyCase(Policy("c1", replica_lag=LAG, is_swept=False, table_filter=TableFilter(include=("SALES.*",))))
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=60)
    assert line.files() == {"SALES_ORDERS_main.ver": ("current", "00000")}


async def test_a_listed_name_that_was_given_up_is_tried_again_as_by_its_own_event() -> None:
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=60)
    await line.inbox.put([Notification(LISTED)])
    (claim,) = (await line.inbox.claim(EVERYTHING)).jobs
    await line.inbox.settle(
        claim, DeadLettered(DeadLetterReason.FOREIGN_FILE, "something lies there"), line.clock.now()
    )
    line.catalog.commit(LISTED)
    await line.hear(Notification(OTHER), seconds=2)
    assert line.files() == of(1)


async def test_files_that_are_called_by_the_uuid_are_the_listed_names() -> None:
    line = AnyCase(Policy("c1", replica_lag=LAG, is_swept=False, naming=UUID))
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=120)
    (key,) = [key for key in line.store.files if key.endswith(".ver")]
    assert b'"orders"' in line.store.files[key]
    assert not any(isinstance(outcome, DeadLettered) for outcome in line.outcomes)


@pytest.mark.parametrize("was_asked_about", [False, True])
async def test_while_nothing_is_listed_the_name_that_has_the_files_keeps_them(was_asked_about: bool) -> None:
    """Two files, each written after what one of two replicas said, would lead readers back to an older answer."""
    line = AnyCase()
    line.catalog.create(LISTED)
    await line.hear(Notification(LISTED), *([Notification(OTHER)] if was_asked_about else []), seconds=60)
    line.spellings = Spellings(None, line.clock)
    line.catalog.commit(LISTED)
    await line.hear(Notification(OTHER), seconds=1)
    assert line.files() == of(1)


class Interleaved(CountingStore):
    """Lets others go on wherever a request to a store takes time."""

    @override
    async def read(self, key: str) -> StoredObject | None:
        await anyio.lowlevel.checkpoint()
        return await super().read(key)

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        await anyio.lowlevel.checkpoint()
        held = await super().write(key, body, replacing)
        await anyio.lowlevel.checkpoint()
        return held


async def test_two_spellings_that_are_published_at_once_do_not_give_way_to_each_other() -> None:
    """Neither would have a live file, and while nothing is listed no commit would be followed."""
    line = AnyCase()
    line.store = Interleaved()
    line.spellings = Spellings(None, line.clock)
    table = line.catalog.create(LISTED)
    for number in range(4):
        await line.inbox.put([Notification(LISTED), Notification(OTHER)])
        async with anyio.create_task_group() as tasks:
            for claim in (await line.inbox.claim(EVERYTHING)).jobs:
                tasks.start_soon(line.publish, claim)
        assert ("current", f"{number:05d}") in line.files().values()
        line.clock.turn(60)
        table = line.catalog.commit(LISTED)
    await line.hear(Notification(LISTED), seconds=600)
    assert sorted(line.files().values()) == [("current", "00004"), ("renamed", "00000")]
    assert line.hint(AT) == version_hint.content(table)


@pytest.mark.parametrize("failures", [1, 1000])
async def test_a_name_whose_namespace_can_not_be_listed_for_now_waits_once(failures: int) -> None:
    """Of two spellings that come first each would write a file. Where it never can be listed, the table has one too."""

    class Failing(CountingCatalog):
        failures = 0

        @override
        async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
            self.failures -= 1
            if self.failures >= 0:
                raise Transient("prod", scope=ErrorScope.CATALOG, expected="a listing", found="none in time")
            async for name in super().tables_in(namespace):
                yield name

    line = AnyCase()
    line.catalog = catalog = Failing("prod")
    catalog.fold_name, catalog.failures = fold_name, failures
    catalog.create_namespace("sales")
    line.spellings = Spellings(catalog, line.clock)
    catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=1)
    assert line.files() == {}
    await line.hear(seconds=60)
    assert line.files() == (of(0) if failures == 1 else {"SALES_ORDERS_main.ver": ("current", "00000")})


async def test_a_file_by_the_uuid_that_another_spelling_has_is_taken_over_whatever_the_inbox_knows() -> None:
    """It was written while nothing was listed, and the inbox was lost since."""
    line = AnyCase(Policy("c1", replica_lag=LAG, is_swept=False, naming=UUID))
    line.catalog.create(LISTED)
    line.spellings = Spellings(None, line.clock)
    await line.hear(Notification(OTHER), seconds=60)
    (key,) = [key for key in line.store.files if key.endswith(".ver")]
    assert b'"ORDERS"' in line.store.files[key]
    line.inbox = MemoryInbox(TERMS, line.clock)
    line.spellings = Spellings(line.catalog, line.clock)
    table = line.catalog.commit(LISTED)
    await line.hear(Notification(LISTED), seconds=60)
    assert {outcome.reason for outcome in line.outcomes if isinstance(outcome, DeadLettered)} == set()
    assert [key for key in line.store.files if key.endswith(".ver")] == [key]
    assert b'"orders"' in line.store.files[key]
    assert table.metadata_location.encode() in line.store.files[key]


async def test_two_spellings_do_not_wake_one_another_without_end() -> None:
    """One has the file by the uuid, the other is what the catalog lists, and for now it lists nothing."""
    line = AnyCase(Policy("c1", replica_lag=LAG, is_swept=False, naming=UUID))
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=60)
    (key,) = [key for key in line.store.files if key.endswith(".ver")]
    line.store.files[key] = line.store.files[key].replace(b'"orders"', b'"ORDERS"').replace(b'"sales"', b'"SALES"')
    line.spellings = Spellings(None, line.clock)
    line.catalog.commit(LISTED)
    await line.hear(Notification(LISTED), Notification(OTHER), seconds=300)
    assert len(line.outcomes) < 20


async def test_two_spellings_of_a_table_that_is_gone_do_not_pass_its_drop_on_without_end() -> None:
    """One gave way while nothing was listed, the other where the catalog's answers were older: each calls the other."""
    line = AnyCase()
    line.spellings = Spellings(None, line.clock)
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=60)
    await line.hear(Notification(LISTED), seconds=60)
    line.spellings = Spellings(line.catalog, line.clock)
    line.clock.turn(600)
    line.store.files.clear()
    line.catalog.commit(LISTED)
    await line.inbox.put([Notification(OTHER)])
    await line.work(60, only=lambda table: table == OTHER)
    line.catalog.drop(LISTED)
    line.outcomes.clear()
    line.clock.turn(TERMS.lease.total_seconds())
    await line.hear(Notification(LISTED, drop=True), Notification(OTHER, drop=True), seconds=300)
    assert len(line.outcomes) < 20


async def test_a_listing_that_takes_long_is_not_asked_for_with_each_new_table() -> None:
    """Fifty thousand names come in many pages: who creates tables must not have them listed all the time."""

    class Slow(CountingCatalog):
        times = 0

        @override
        async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
            async for name in super().tables_in(namespace):
                yield name
            self.times += 1
            line.clock.turn(10)

    line = AnyCase()
    line.catalog = slow = Slow("prod")
    line.catalog.create_namespace("sales")
    line.spellings = Spellings(line.catalog, line.clock)
    for number in range(30):
        name = msgspec.structs.replace(LISTED, name=f"t{number}")
        line.catalog.create(name)
        await line.hear(Notification(name), seconds=5)
        assert line.document(name, f"file:///warehouse/sales/{name.name}")["state"] == "current"
    # They took 160 s in all.
    assert slow.times == 1


async def test_listings_are_asked_for_once_for_many_tables() -> None:
    line = AnyCase()
    names = [msgspec.structs.replace(LISTED, name=f"t{number}") for number in range(20)]
    for name in names:
        line.catalog.create(name)
    await line.hear(*map(Notification, names))
    assert line.catalog.listings == 2
    for name in names:
        line.catalog.commit(name)
    await line.hear(*map(Notification, names), seconds=3600)
    assert line.catalog.listings == 2


async def test_a_spelling_is_forgotten_when_nobody_uses_it_any_more() -> None:
    line = AnyCase(Policy("c1", replica_lag=LAG, is_swept=False, expire_after=timedelta(days=1)))
    line.catalog.create(LISTED)
    await line.hear(Notification(OTHER), seconds=60)
    assert await line.inbox.table_status(OTHER) is not None
    await line.work(3 * 86400)
    assert await line.inbox.table_status(OTHER) is None
    assert line.files() == of(0)
