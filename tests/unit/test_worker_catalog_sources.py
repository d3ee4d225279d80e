"""Catalogs of the worker: vended credentials, removed catalogs and missing listings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from sfn.catalogs import NoSuchTable, VendedCredential
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Outcome, StoredObject
from sfn.errors import (
    FORBIDDEN_ERRORS,
    ErrorScope,
    Forbidden,
    NoVendedCredentials,
    Permanent,
    Transient,
    Unauthenticated,
)
from sfn.inbox.model import AdminCommand, DeadLetterFilter
from sfn.publish.policy import Policy
from sfn.storage import ObjectStore, PrefixRouter
from sfn.storage.memory import MemoryStore
from sfn.worker.catalog_sources import ConnectedCatalog, VendedStores
from tests.support.clock import HandClock
from tests.support.working import REFRESH, Desk

TABLE = TableIdentifier("prod", ("sales",), "orders")
RENAMED = TableIdentifier("prod", ("sales",), "sold")
AT = "s3://lake/sales/orders"
KEY = f"{AT}/metadata/_sfn/sales_orders_main.ver"


class Shop:
    """A catalog that vends, and the store behind what it vends.

    Attributes:
        vends: by table; none for one that it does not have.
        good: tokens that the store accepts.
        elsewhere: such as it accepts for other places.
        opened: what stores were opened with, in order.
    """

    def __init__(self) -> None:
        self.vends: dict[TableIdentifier, tuple[VendedCredential, ...]] = {}
        self.renews: dict[TableIdentifier, tuple[VendedCredential, ...]] = {}
        self.good = {"first", "second"}
        self.elsewhere: set[str] = set()
        self.opened: list[tuple[str, str]] = []
        self.files = MemoryStore()

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        return self.vends.get(table, NoSuchTable())

    async def renew_credentials(
        self, table: TableIdentifier, refused: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        self.vends |= {table: self.renews[table]} if table in self.renews else {}
        return self.vends.get(table, NoSuchTable())

    def open(self, grant: VendedCredential, location: str) -> ObjectStore:
        token = grant.config["token"]
        self.opened.append((grant.prefix, token))
        return _Guarded(self, token)


class _Guarded(MemoryStore):
    """Reads what the shop has, for those whom it knows."""

    def __init__(self, shop: Shop, token: str) -> None:
        super().__init__()
        self._shop, self._token = shop, token

    @override
    async def read(self, key: str) -> StoredObject | None:
        if self._token in self._shop.elsewhere:
            raise Forbidden(key, scope=ErrorScope.STORE, expected="permission to read here", found="AccessDenied")
        if self._token not in self._shop.good:
            raise Unauthenticated(
                key, scope=ErrorScope.STORE, expected="credentials that the store accepts", found="ExpiredToken"
            )
        return await self._shop.files.read(key)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def own() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def vended(shop: Shop, clock: HandClock) -> VendedStores:
    """Of a service without a store of its own."""
    return VendedStores(shop, PrefixRouter({}), shop.open, clock)


def grant(prefix: str, token: str, clock: HandClock, *, minutes: float = 60) -> VendedCredential:
    return VendedCredential(prefix, {"token": token}, clock.now() + timedelta(minutes=minutes))


async def test_the_longest_prefix_opens_a_place_and_a_store_is_opened_once(
    vended: VendedStores, shop: Shop, clock: HandClock
) -> None:
    shop.vends[TABLE] = (
        grant("s3://lake", "first", clock),
        grant(AT, "second", clock),
        grant("s3://lake/x", "x", clock),
    )
    shop.files.files[KEY] = b"1"
    store = vended.for_table(TABLE).store_for(KEY)
    for _ in range(2):
        assert await store.read(KEY) == await shop.files.read(KEY)
    assert shop.opened == [(AT, "second")]


async def test_a_prefix_ends_with_a_segment(vended: VendedStores, shop: Shop, clock: HandClock) -> None:
    shop.vends[TABLE] = (grant("s3://lake/sales/ord", "first", clock),)
    with pytest.raises(Permanent, match="found some for s3://lake/sales/ord;") as refused:
        await vended.for_table(TABLE).store_for(KEY).read(KEY)
    assert not isinstance(refused.value, NoVendedCredentials)
    assert shop.opened == []


async def test_what_is_for_wherever_the_table_lies_is_not_for_files_apart_from_it(
    shop: Shop, own: MemoryStore, clock: HandClock
) -> None:
    shop.vends[TABLE] = (grant("", "first", clock),)
    vended = VendedStores(shop, PrefixRouter({"s3://pointers": own}), shop.open, clock, "s3://pointers/sfn")
    apart = "s3://pointers/sfn/orders/sales_orders_main.ver"
    own.files[apart] = b"ours"
    held = await vended.for_table(TABLE).store_for(apart).read(apart)
    assert held is not None
    assert held.body == b"ours"
    assert await vended.for_table(TABLE).store_for(KEY).read(KEY) is None
    assert shop.opened == [("", "first")]


async def test_what_a_store_refuses_is_asked_for_anew_once(vended: VendedStores, shop: Shop, clock: HandClock) -> None:
    shop.vends[TABLE] = (grant(AT, "stale", clock),)
    shop.renews[TABLE] = (grant(AT, "second", clock),)
    assert await vended.for_table(TABLE).store_for(KEY).read(KEY) is None
    assert shop.opened == [(AT, "stale"), (AT, "second")]


async def test_what_is_denied_with_old_credentials_may_be_permitted_with_new_ones(
    vended: VendedStores, shop: Shop, clock: HandClock
) -> None:
    """A table was made anew at another place, or more is granted: what has no prefix does not tell."""
    shop.elsewhere = {"first"}
    shop.vends[TABLE] = (grant("", "first", clock),)
    shop.renews[TABLE] = (grant("", "second", clock),)
    assert await vended.for_table(TABLE).store_for(KEY).read(KEY) is None
    assert shop.opened == [("", "first"), ("", "second")]


@pytest.mark.parametrize("renewed", ["first", "second"])
async def test_what_is_denied_again_is_denied(vended: VendedStores, shop: Shop, clock: HandClock, renewed: str) -> None:
    shop.elsewhere = {"first", "second"}
    shop.vends[TABLE] = (grant("", "first", clock),)
    shop.renews[TABLE] = (grant("", renewed, clock),)
    with pytest.raises(FORBIDDEN_ERRORS, match="AccessDenied"):
        await vended.for_table(TABLE).store_for(KEY).read(KEY)


async def test_a_store_is_opened_for_each_bucket_section_and_table_that_has_no_prefix(
    shop: Shop, own: MemoryStore, clock: HandClock
) -> None:
    """Sections may tell different addresses for them, and other tables are given other credentials."""
    shop.vends[TABLE] = (grant("", "first", clock),)
    shop.vends[RENAMED] = (grant("", "second", clock),)
    vended = VendedStores(shop, PrefixRouter({"s3://lake/sales/orders/metadata": own}), shop.open, clock)
    for _ in range(2):
        for key in (KEY, f"{AT}/version-hint.text", "s3://pond/orders/version-hint.text"):
            await vended.for_table(TABLE).store_for(key).read(key)
        await vended.for_table(RENAMED).store_for(KEY).read(KEY)
    assert shop.opened == [("", "first")] * 3 + [("", "second")]


@pytest.mark.parametrize("renewed", ["stale", "another"])
async def test_what_is_refused_again_is_the_catalogs_trouble(
    vended: VendedStores, shop: Shop, clock: HandClock, renewed: str
) -> None:
    shop.vends[TABLE] = (grant(AT, "stale", clock),)
    shop.renews[TABLE] = (grant(AT, renewed, clock),)
    with pytest.raises(Transient) as trouble:
        await vended.for_table(TABLE).store_for(KEY).read(KEY)
    assert trouble.value.scope is ErrorScope.CATALOG
    assert "ExpiredToken" in str(trouble.value)
    assert renewed not in str(trouble.value)


async def test_a_table_that_moved_is_asked_for_anew(vended: VendedStores, shop: Shop, clock: HandClock) -> None:
    shop.vends[TABLE] = (grant("s3://lake/elsewhere", "first", clock),)
    shop.renews[TABLE] = (grant(AT, "second", clock),)
    assert await vended.for_table(TABLE).store_for(KEY).read(KEY) is None
    assert shop.opened == [(AT, "second")]


async def test_a_dropped_tables_files_need_a_store_of_our_own(
    shop: Shop, own: MemoryStore, vended: VendedStores, clock: HandClock
) -> None:
    with pytest.raises(NoVendedCredentials) as refused:
        await vended.for_table(TABLE).store_for(KEY).read(KEY)
    assert refused.value.scope is ErrorScope.TABLE
    assert "on_drop" in refused.value.remedy
    assert "[stores.NAME] prefix" in refused.value.remedy
    own.files[KEY] = b"ours"
    held = (
        await VendedStores(shop, PrefixRouter({"s3://lake": own}), shop.open, clock)
        .for_table(TABLE)
        .store_for(KEY)
        .read(KEY)
    )
    assert held is not None
    assert held.body == b"ours"


async def test_a_renamed_tables_old_file_is_opened_with_what_its_new_name_was_given(
    vended: VendedStores, shop: Shop, clock: HandClock
) -> None:
    shop.vends[RENAMED] = (grant(AT, "first", clock, minutes=15),)
    assert await vended.for_table(RENAMED).store_for(KEY).read(KEY) is None
    assert await vended.for_table(TABLE).store_for(KEY).read(KEY) is None
    clock.turn(15 * 60)
    with pytest.raises(Permanent):
        await vended.for_table(TABLE).store_for(KEY).read(KEY)


async def test_what_is_vended_goes_before_a_store_of_our_own(shop: Shop, own: MemoryStore, clock: HandClock) -> None:
    own.files[KEY] = b"ours"
    shop.vends[TABLE] = (grant(AT, "first", clock),)
    assert (
        await VendedStores(shop, PrefixRouter({"s3://lake": own}), shop.open, clock)
        .for_table(TABLE)
        .store_for(KEY)
        .read(KEY)
        is None
    )


async def test_nothing_of_a_grant_shows(vended: VendedStores, shop: Shop, clock: HandClock) -> None:
    shop.vends[TABLE] = (grant(AT, "first", clock),)
    await vended.for_table(TABLE).store_for(KEY).read(KEY)
    assert "first" not in repr([vars(vended), shop.vends])


LATER = timedelta(days=30)


async def published() -> Desk:
    """A table that was published, and then its catalog left the configuration."""
    desk = Desk()
    desk.catalog.create(TABLE)
    await desk.hear()
    desk.source = None
    return desk


async def looked_at(desk: Desk) -> Outcome:
    desk.clock.turn(REFRESH.total_seconds())
    (outcome,) = await desk.work()
    return outcome


async def rows(desk: Desk) -> list[JobKey]:
    return [row.table async for row in desk.inbox.tables("prod")]


async def test_a_file_that_is_still_live_has_a_letter_that_says_what_to_do() -> None:
    desk = await published()
    outcome = await looked_at(desk)
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason is DeadLetterReason.PERMANENT
    assert "put [catalogs.prod] back into the configuration and `sfn retire prod`" in outcome.detail


async def test_its_letter_stays_discarded() -> None:
    desk = await published()
    await looked_at(desk)
    (letter,) = await desk.inbox.list_after(DeadLetterFilter(), 0, 9)
    await desk.inbox.discard([letter.id], AdminCommand("ops", "it", desk.clock.now()))
    desk.clock.turn(LATER.total_seconds())
    assert await desk.work() == []
    assert await desk.inbox.list_after(DeadLetterFilter(), 0, 9) == []


async def test_once_the_catalog_is_back_a_replay_goes_on_where_it_was() -> None:
    desk = await published()
    await looked_at(desk)
    (letter,) = await desk.inbox.list_after(DeadLetterFilter(), 0, 9)
    desk.source = ConnectedCatalog(desk.catalog, Policy("c1"))
    await desk.inbox.replay([letter.id], [], AdminCommand("ops", "it", desk.clock.now()))
    (outcome,) = await desk.work()
    assert isinstance(outcome, Done)
    assert await desk.inbox.list_after(DeadLetterFilter(), 0, 9) == []


async def test_a_table_of_a_catalog_that_retired_is_forgotten_and_a_file_that_was_left_is_told() -> None:
    desk = await published()
    desk.has_retired = True
    with capture_logs() as records:
        outcome = await looked_at(desk)
    assert isinstance(outcome, Done)
    assert await rows(desk) == []
    assert await desk.inbox.list_after(DeadLetterFilter(status=None), 0, 9) == []
    (warning,) = [record for record in records if record["event"] == "SFN file left behind"]
    assert (warning["log_level"], warning["table"]) == ("warning", str(TABLE))


async def test_a_table_without_a_file_is_forgotten() -> None:
    desk = Desk()
    desk.source = None
    with capture_logs() as records:
        (outcome,) = await desk.hear()
    assert isinstance(outcome, Done)
    assert (await rows(desk), records) == ([], [])


async def test_so_is_the_catalogs_own_row() -> None:
    desk = Desk()
    desk.source = None
    (outcome,) = await desk.hear(CatalogName("prod"))
    assert isinstance(outcome, Done)
    assert outcome.forget
    desk.clock.turn(LATER.total_seconds())
    assert await desk.work() == []


PROD = CatalogName("prod")


async def test_a_sweep_that_somebody_asked_for_settles_without_trouble_and_calms_no_brake() -> None:
    desk = Desk()
    assert desk.source is not None
    desk.source = ConnectedCatalog(desk.source.catalog, replace(desk.source.policy, event_only=True))
    (outcome,) = await desk.hear(PROD)
    assert isinstance(outcome, Done)
    assert outcome.forget
    desk.clock.turn(10**6)
    assert (await desk.inbox.claim(desk.inbox.slots)).jobs == ()
