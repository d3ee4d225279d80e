"""Which store a location goes to."""

from __future__ import annotations

import pytest

from sfn.errors import ErrorScope, LocationRefused
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore

LOCAL, BUCKET, WAREHOUSE, EVERY_S3 = (MemoryStore() for _ in range(4))
ROUTER = PrefixRouter({"file:///data": LOCAL, "s3://lake": BUCKET, "s3://lake/warehouse": WAREHOUSE, "s3://": EVERY_S3})


@pytest.mark.parametrize(
    ("location", "store"),
    [
        ("file:///data", LOCAL),
        ("file:///data/orders", LOCAL),
        ("file:///data/orders/metadata/_sfn/", LOCAL),
        ("s3://lake/orders", BUCKET),
        ("s3://lake/warehouse2/orders", BUCKET),
        ("s3://lake/warehouse", WAREHOUSE),
        ("s3://lake/warehouse/orders", WAREHOUSE),
        ("s3://lake2/warehouse/orders", EVERY_S3),
    ],
)
def test_the_longest_prefix_of_whole_segments_holds_a_location(location: str, store: MemoryStore) -> None:
    assert ROUTER.store_for(location) is store


def test_every_file_is_below_the_prefix_of_all_files() -> None:
    for prefix in ("file://", "file:///"):
        assert PrefixRouter({prefix: LOCAL}).store_for("file:///data/orders") is LOCAL


@pytest.mark.parametrize("location", ["file:///data2/orders", "gs://lake/orders", "", "https://catalog/orders"])
def test_a_location_without_a_store_is_refused_for_its_table_alone_and_says_what_to_set(location: str) -> None:
    with pytest.raises(LocationRefused) as refused:
        ROUTER.store_for(location)
    assert refused.value.scope is ErrorScope.TABLE
    assert "[stores.NAME] prefix" in refused.value.remedy
    assert "s3://lake" in refused.value.expected


def test_with_no_store_at_all_nothing_has_a_place() -> None:
    with pytest.raises(LocationRefused):
        PrefixRouter({}).store_for("file:///data")


async def test_a_part_is_read_from_the_store_that_holds_it() -> None:
    store = MemoryStore()
    store.files["s3://lake/t/1.json"] = b"0123456789"
    router = PrefixRouter({"s3://lake": store})
    assert await router.read_range("s3://lake/t/1.json", 2, 3) == b"234"
    with pytest.raises(LocationRefused):
        await router.read_range("s3://pond/t/1.json", 0, 1)
