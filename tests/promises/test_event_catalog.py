"""What an event-only catalog promises: it answers from its events and from metadata files."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs
from typing_extensions import override

from sfn.catalogs import Loaded, NoSuchTable, NotModified, UnlistedNamespace
from sfn.catalogs.event_sourced import MAX_CACHED_FILES, MAX_CACHED_LOG_ENTRIES, EventCatalog
from sfn.domain.events import TableReport
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, LocationRefused, Permanent, Transient
from sfn.storage.memory import MemoryStore
from tests.support.publishing import metadata

NAME = TableIdentifier("lake", ("n",), "t")
AT = "s3://lake/t"


class CountingStore(MemoryStore):
    """Counts what is opened.

    Attributes:
        away: nothing can be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened: Counter[str] = Counter()
        self.away = False

    @override
    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        if self.away:
            raise Transient(key, scope=ErrorScope.STORE, expected="an answer", found="none")
        self.opened[key] += 1
        return await super().read_range(key, start, most)


class Ground:
    """A catalog, the files that it reads, and what events reported of the one name."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.known: tuple[TableReport, ...] = ()
        self.catalog = self.restarted()

    def restarted(self) -> EventCatalog:
        """The catalog of a new process."""
        return EventCatalog("lake", "ours", self.store.read_range, (AT,), self._reported)

    async def _reported(self, table: TableIdentifier) -> tuple[TableReport, ...]:
        assert table == NAME
        return self.known

    def report(self, *locations: Table | str, uuid: str | None = None) -> None:
        """Report several files. Their names do not say which one is newest."""
        where = tuple(one.metadata_location if isinstance(one, Table) else one for one in locations)
        self.known = (TableReport(uuid, where, 1),)

    async def loaded(self, *locations: Table | str, uuid: str | None = None) -> Loaded:
        """Have files reported, and load the table."""
        self.report(*locations, uuid=uuid)
        answer = await self.catalog.load(NAME, None)
        assert isinstance(answer, Loaded)
        return answer

    def lay(self, table: Table) -> Table:
        """Write a metadata file."""
        self.store.files[table.metadata_location] = metadata(table)
        return table

    def versions(self, uuid: str, number: int, *, log: int = 100, named: str = "{:05d}") -> list[Table]:
        """A table's versions, with so many entries in their logs at most."""
        made: list[Table] = []
        for version in range(number):
            before = tuple(one.metadata_location for one in made)[max(0, version - log) :]
            name = named.format(version) + f"-{uuid * 8}-{uuid * 4}-{uuid * 4}-{uuid * 4}-{uuid * 12}"
            pointer, times = f"{AT}/metadata/{name}.metadata.json", (0,) * len(before)
            made.append(self.lay(Table(uuid, AT, pointer, before, version, version, log_times=times)))
        return made


@pytest.fixture
def ground() -> Ground:
    return Ground()


async def test_listing_reports_the_root_namespace_as_unlisted(ground: Ground) -> None:
    found = [one async for one in ground.catalog.tables()]
    assert [one.namespace for one in found if isinstance(one, UnlistedNamespace)] == [()]
    assert len(found) == 1
    assert not await ground.catalog.is_listed(NAME)
    assert await ground.catalog.identity() == "ours"


@pytest.mark.parametrize(
    "known",
    [(), (TableReport("a", (f"{AT}/metadata/1.metadata.json",), 1, 2),), (TableReport("a", (), 1),)],
    ids=["no event", "ended", "no metadata file"],
)
async def test_table_without_a_reported_file_is_missing(ground: Ground, known: tuple[TableReport, ...]) -> None:
    ground.known = known
    assert await ground.catalog.load(NAME, None) == NoSuchTable()
    assert not ground.store.opened


async def test_command_without_an_inbox_knows_no_table(ground: Ground) -> None:
    catalog = EventCatalog("lake", "ours", ground.store.read_range, (AT,))
    assert await catalog.load(NAME, None) == NoSuchTable()


async def test_answer_has_the_reported_file(ground: Ground) -> None:
    versions = ground.versions("a", 3)
    answer = await ground.loaded(versions[2])
    assert answer.table == versions[2]
    assert await ground.catalog.load(NAME, answer.etag) == NotModified()
    assert answer.etag != (await ground.loaded(versions[1])).etag


async def test_table_that_got_the_name_last_has_it(ground: Ground) -> None:
    (first,), (other,) = ground.versions("a", 1), ground.versions("b", 1)
    ground.known = (TableReport("b", (other.metadata_location,), 5), TableReport("a", (first.metadata_location,), 4))
    answer = await ground.catalog.load(NAME, None)
    assert isinstance(answer, Loaded)
    assert answer.table == other


async def test_files_in_the_log_of_the_newest_file_are_not_opened(ground: Ground) -> None:
    versions = ground.versions("a", 4, named="x{}")
    assert (await ground.loaded(*versions)).table == versions[-1]
    assert ground.store.opened == {versions[-1].metadata_location: 1}


async def test_files_of_lower_versions_are_not_opened(ground: Ground) -> None:
    versions = ground.versions("a", 3, log=0)
    for version in versions[:-1]:
        del ground.store.files[version.metadata_location]
    assert (await ground.loaded(*versions)).table == versions[-1]


async def test_unchanged_table_opens_no_file(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    etag = (await ground.loaded(version)).etag
    ground.store.opened.clear()
    assert await ground.restarted().load(NAME, etag) == NotModified()
    assert not ground.store.opened


async def test_repeated_load_opens_a_file_once(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    for _ in range(3):
        await ground.loaded(version)
    assert ground.store.opened.total() == 1


async def test_cache_has_a_limited_number_of_files(ground: Ground) -> None:
    versions = ground.versions("a", MAX_CACHED_FILES + 1, log=0)
    for version in (*versions, versions[-1], versions[0]):
        await ground.loaded(version)
    assert ground.store.opened[versions[0].metadata_location] == 2
    assert ground.store.opened[versions[-1].metadata_location] == 1


@pytest.mark.slow
async def test_cache_has_a_limited_number_of_log_entries(ground: Ground) -> None:
    entries = tuple(f"{AT}/metadata/{number}.metadata.json" for number in range(MAX_CACHED_LOG_ENTRIES))
    versions = [replace(version, metadata_log=entries) for version in ground.versions("a", 2)]
    for version in (*versions, versions[-1], versions[0]):
        await ground.loaded(ground.lay(version))
    opened = [ground.store.opened[version.metadata_location] for version in versions]
    assert opened[0] > opened[1], "the younger alone was still known"


async def test_metadata_log_orders_files_regardless_of_names(ground: Ground) -> None:
    versions = ground.versions("a", 3, named="x{}")
    assert (await ground.loaded(versions[2], versions[1])).table == versions[2]
    assert (await ground.loaded(versions[0], versions[2], versions[1])).table == versions[2]


async def test_last_reported_file_wins_if_the_order_is_unknown(ground: Ground) -> None:
    versions = ground.versions("a", 3, log=0, named="x{}")
    assert (await ground.loaded(versions[2], versions[0])).table == versions[0]


async def test_file_of_another_table_is_late(ground: Ground) -> None:
    (first,), others = ground.versions("a", 1), ground.versions("b", 3, log=0)
    assert (await ground.loaded(first, others[2], uuid="a")).table == first


async def test_file_of_another_table_alone_is_an_error(ground: Ground) -> None:
    (other,) = ground.versions("b", 1)
    ground.report(other, uuid="a")
    with pytest.raises(Permanent, match="send create, register and drop events") as caught:
        await ground.catalog.load(NAME, None)
    assert caught.value.scope is ErrorScope.TABLE


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("s3://lake/other/metadata/00001-x.metadata.json", LocationRefused),
        ("http://nessie/00001-x.metadata.json", LocationRefused),
        (f"{AT}/../other/00001-x.metadata.json", LocationRefused),
        (f"{AT}/metadata/empty.metadata.json", Permanent),
        (f"{AT}/metadata/other.metadata.json", Permanent),
        (f"{AT}/metadata/cut.gz.metadata.json", Permanent),
        (f"{AT}/metadata/broken.gz.metadata.json", Permanent),
        (f"{AT}/metadata/00009-missing.metadata.json", Transient),
    ],
)
async def test_unreadable_file_is_an_error_of_the_table(ground: Ground, location: str, kind: type[Exception]) -> None:
    (version,) = ground.versions("a", 1)
    ground.store.files |= {
        f"{AT}/metadata/empty.metadata.json": b"",
        f"{AT}/metadata/other.metadata.json": b'{"format-version": 2}',
        f"{AT}/metadata/cut.gz.metadata.json": gzip.compress(metadata(version))[:-20],
        f"{AT}/metadata/broken.gz.metadata.json": b"\x1f\x8b\x08\x00 nonsense",
        "s3://lake/other/metadata/00001-x.metadata.json": metadata(version),
    }
    for locations in ((location,), (version, location)):
        ground.report(*locations)
        with pytest.raises(kind) as caught:
            await ground.catalog.load(NAME, None)
        assert isinstance(caught.value, Permanent | Transient)
        assert (caught.value.scope, location in caught.value.where) == (ErrorScope.TABLE, True)


async def test_missing_file_that_may_be_newer_is_waited_for(ground: Ground) -> None:
    opaque, numbered = ground.versions("a", 2, log=0, named="x{}"), ground.versions("a", 2, log=0)
    for first, last in (opaque, reversed(numbered)):
        missing = max(first, last, key=lambda one: one.snapshot_id or 0)
        del ground.store.files[missing.metadata_location]
        ground.report(first, last)
        with pytest.raises(Transient):
            await ground.catalog.load(NAME, None)


async def test_missing_file_that_was_reported_before_one_of_unknown_order_is_older(ground: Ground) -> None:
    versions = ground.versions("a", 2, log=0, named="x{}")
    del ground.store.files[versions[0].metadata_location]
    assert (await ground.loaded(*versions)).table == versions[1]


async def test_commit_without_a_uuid_after_an_end_counts_for_another_table_alone(ground: Ground) -> None:
    former, (other,) = ground.versions("a", 3), ground.versions("b", 1)
    ended = TableReport("a", (former[0].metadata_location,), 1, 2)
    late, gone = former[2].metadata_location, former[1].metadata_location
    del ground.store.files[gone]
    for known_etag in (None, (await ground.loaded(former[2])).etag):
        ground.known = (ended, TableReport(None, (late,)))
        assert await ground.catalog.load(NAME, known_etag) == NoSuchTable()
    for locations in ((gone,), (gone, late)):
        ground.known = (ended, TableReport(None, locations))
        with pytest.raises(Transient):
            await ground.catalog.load(NAME, None)
    for locations in ((other.metadata_location,), (other.metadata_location, late), (late, other.metadata_location)):
        ground.known = (ended, TableReport(None, locations))
        answer = await ground.catalog.load(NAME, None)
        assert isinstance(answer, Loaded)
        assert answer.table == other
    ground.known = (structs.replace(ended, uuid=None), TableReport(None, (other.metadata_location,)))
    assert await ground.catalog.load(NAME, None) == NoSuchTable(), "it may be a late event of the one that ended"


async def test_store_outage_has_store_scope(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    ground.store.away = True
    ground.report(version)
    with pytest.raises(Transient) as caught:
        await ground.catalog.load(NAME, None)
    assert caught.value.scope is ErrorScope.STORE


@pytest.mark.parametrize("name", ["00000-x.gz.metadata.json", "00000-x.metadata.json.gz", "00000-x.metadata.json"])
async def test_gzip_is_detected_by_content(ground: Ground, name: str) -> None:
    table = Table("a", AT, f"{AT}/metadata/{name}", (), 7, 8)
    ground.store.files[table.metadata_location] = gzip.compress(metadata(table))
    assert (await ground.loaded(table)).table == table
