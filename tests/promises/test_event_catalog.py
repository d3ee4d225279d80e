"""What the catalog promises that nobody can ask: it answers by what it is told, and by what metadata files say."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace

import pytest
from typing_extensions import override

from sfn.catalogs import UnlistedNamespace
from sfn.catalogs.event_sourced import MAX_CACHED_FILES, MAX_CACHED_LOG_ENTRIES, EventCatalog
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified
from sfn.domain.events import EventHistory, ReportedChange, TableHistory, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import ErrorScope, Transient
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
    """A catalog, and the files that it reads."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.catalog = EventCatalog("lake", "ours", self.store.read_range, (AT,))

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


def told(*tellings: ReportedChange, tables: tuple[TableHistory, ...] = ()) -> EventHistory:
    return EventHistory(tables, reported_changes=tellings)


def of(seq: int, table: Table, birth: TableOrigin | None = None, uuid: str | None = None) -> ReportedChange:
    return ReportedChange(seq, table.metadata_location, uuid, birth)


async def test_listing_reports_the_root_namespace_as_unlisted(ground: Ground) -> None:
    found = [one async for one in ground.catalog.tables()]
    assert [one.namespace for one in found if isinstance(one, UnlistedNamespace)] == [()]
    assert len(found) == 1
    assert not await ground.catalog.is_listed(NAME)
    assert await ground.catalog.identity() == "ours"


@pytest.mark.parametrize("known", [None, EventHistory()])
async def test_table_without_events_is_missing(ground: Ground, known: EventHistory | None) -> None:
    assert await ground.catalog.load(NAME, None, known) == NoSuchTable()


async def test_answer_has_the_newest_file_and_the_next_history(ground: Ground) -> None:
    versions = ground.versions("a", 3)
    answer = await ground.catalog.load(NAME, None, told(of(1, versions[0], TableOrigin.CREATE), of(2, versions[2])))
    assert isinstance(answer, Loaded)
    assert answer.table == versions[2]
    assert answer.applied is not None
    assert answer.applied.unapplied == ()
    known = answer.applied.history
    assert known == EventHistory((TableHistory("a", versions[2].metadata_location, changed_seq=2, created_seq=1),))
    assert await ground.catalog.load(NAME, answer.etag, known) == NotModified()
    assert answer.etag != (await loaded(ground, told(of(1, versions[1])))).etag


async def loaded(ground: Ground, known: EventHistory) -> Loaded:
    answer = await ground.catalog.load(NAME, None, known)
    assert isinstance(answer, Loaded)
    return answer


async def test_files_in_the_log_of_the_newest_file_are_not_opened(ground: Ground) -> None:
    versions = ground.versions("a", 10)
    tellings = [of(seq, version) for seq, version in enumerate(reversed(versions), start=1)]
    assert (await loaded(ground, told(*tellings))).table == versions[-1]
    assert ground.store.opened == {versions[-1].metadata_location: 1}


async def test_unchanged_table_opens_no_file(ground: Ground) -> None:
    versions = ground.versions("a", 1)
    etag = (await loaded(ground, told(of(1, versions[0])))).etag
    known = told(tables=(TableHistory("a", versions[0].metadata_location, 1, 1),))
    fresh = EventCatalog("lake", "ours", ground.store.read_range, (AT,))
    ground.store.opened.clear()
    assert await fresh.load(NAME, etag, known) == NotModified()
    assert not ground.store.opened


async def test_repeated_load_opens_a_file_once(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    for _ in range(3):
        await loaded(ground, told(of(1, version)))
    assert ground.store.opened.total() == 1


async def test_cache_has_a_limited_number_of_files(ground: Ground) -> None:
    versions = ground.versions("a", MAX_CACHED_FILES + 1, log=0)
    for version in (*versions, versions[-1], versions[0]):
        await loaded(ground, told(of(1, version)))
    assert ground.store.opened[versions[0].metadata_location] == 2
    assert ground.store.opened[versions[-1].metadata_location] == 1


@pytest.mark.slow
async def test_cache_has_a_limited_number_of_log_entries(ground: Ground) -> None:
    entries = tuple(f"{AT}/metadata/{number}.metadata.json" for number in range(MAX_CACHED_LOG_ENTRIES))
    versions = [replace(version, metadata_log=entries) for version in ground.versions("a", 2)]
    for version in (*versions, versions[-1], versions[0]):
        await loaded(ground, told(of(1, ground.lay(version))))
    opened = [ground.store.opened[version.metadata_location] for version in versions]
    assert opened[0] > opened[1], "the younger alone was still known"


async def test_metadata_log_orders_files_regardless_of_names(ground: Ground) -> None:
    versions = ground.versions("a", 3, named="x{}")
    known = told(of(9, versions[1]), tables=(TableHistory("a", versions[2].metadata_location, 2, 1),))
    assert (await loaded(ground, known)).table == versions[2]
    assert (await loaded(ground, told(of(1, versions[2]), of(2, versions[0])))).table == versions[2]


async def test_last_reported_file_wins_if_the_order_is_unknown(ground: Ground) -> None:
    versions = ground.versions("a", 3, log=0, named="x{}")
    assert (await loaded(ground, told(of(1, versions[2]), of(2, versions[0])))).table == versions[0]
    gone = told(of(2, versions[0]), tables=(TableHistory("a", f"{AT}/metadata/gone.metadata.json", 1, 1),))
    assert (await loaded(ground, gone)).table == versions[0]


async def test_uuid_comes_from_the_file_and_not_from_the_event(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    assert (await loaded(ground, told(of(1, version, uuid="b")))).table == version


async def test_commit_of_another_table_waits_for_its_create_event(ground: Ground) -> None:
    (first,), others = ground.versions("a", 1), ground.versions("b", 3, log=0)
    answer = await loaded(ground, told(of(1, first, TableOrigin.CREATE), of(2, others[2])))
    assert answer.table == first
    assert answer.applied is not None
    known = EventHistory(answer.applied.history.tables, reported_changes=(of(3, others[0], TableOrigin.CREATE),))
    assert (await loaded(ground, known)).table == others[2]


async def test_files_of_ended_tables_are_not_opened(ground: Ground) -> None:
    (first,), (other,) = ground.versions("a", 1), ground.versions("b", 1)
    over = (TableHistory("a", first.metadata_location, 1, 1, 2), TableHistory("b", other.metadata_location, 3, 3))
    late = ReportedChange(4, f"{AT}/metadata/00007-purged.metadata.json", "a")
    assert (await loaded(ground, told(late, tables=over))).table == other
    assert list(ground.store.opened) == [other.metadata_location]


async def test_ended_table_is_missing(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    ended = told(of(1, version), ReportedChange(2, is_end=True))
    assert await ground.catalog.load(NAME, None, ended) == NoSuchTable()


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("s3://lake/other/metadata/00001-x.metadata.json", DeadLetterReason.LOCATION_REFUSED),
        ("http://nessie/00001-x.metadata.json", DeadLetterReason.LOCATION_REFUSED),
        (f"{AT}/../other/00001-x.metadata.json", DeadLetterReason.LOCATION_REFUSED),
        (f"{AT}/metadata/empty.metadata.json", DeadLetterReason.PERMANENT),
        (f"{AT}/metadata/other.metadata.json", DeadLetterReason.PERMANENT),
        (f"{AT}/metadata/cut.gz.metadata.json", DeadLetterReason.PERMANENT),
        (f"{AT}/metadata/broken.gz.metadata.json", DeadLetterReason.PERMANENT),
        (f"{AT}/metadata/00009-missing.metadata.json", None),
    ],
)
async def test_unreadable_file_is_reported_and_blocks_no_other(
    ground: Ground, location: str, reason: DeadLetterReason | None
) -> None:
    (version,) = ground.versions("a", 1)
    ground.store.files |= {
        f"{AT}/metadata/empty.metadata.json": b"",
        f"{AT}/metadata/other.metadata.json": b'{"format-version": 2}',
        f"{AT}/metadata/cut.gz.metadata.json": gzip.compress(metadata(version))[:-20],
        f"{AT}/metadata/broken.gz.metadata.json": b"\x1f\x8b\x08\x00 nonsense",
        "s3://lake/other/metadata/00001-x.metadata.json": metadata(version),
    }
    bad = ReportedChange(1, location)
    answer = await loaded(ground, told(bad, of(2, version, TableOrigin.CREATE)))
    assert answer.table == version
    assert answer.applied is not None
    (unheard,) = answer.applied.unapplied
    assert (unheard.change, unheard.reason) == (bad, reason)
    assert location in unheard.detail
    assert answer.applied.history.reported_changes == ()


async def test_doubtful_change_yields_only_to_a_newer_change(ground: Ground) -> None:
    first, second = ground.versions("a", 2)
    bad = ReportedChange(2, "http://nowhere/1.metadata.json", is_doubtful=True)
    tables = (TableHistory("a", first.metadata_location, 1, 1),)
    answer = await loaded(ground, told(bad, tables=tables))
    assert answer.applied is not None
    assert [one.change for one in answer.applied.unapplied] == [bad]
    answer = await loaded(ground, told(bad, of(3, second), tables=tables))
    assert answer.applied is not None
    assert answer.applied.unapplied == ()


@pytest.mark.parametrize(
    "late",
    [
        ReportedChange(9, f"{AT}/metadata/00001-{'c' * 8}-cccc-cccc-cccc-{'c' * 12}.metadata.json"),
        ReportedChange(3, f"{AT}/metadata/00000-gone.metadata.json", origin=TableOrigin.CREATE),
    ],
    ids=["of a lower number", "of a table that ended"],
)
async def test_likely_deleted_file_is_not_waited_for(ground: Ground, late: ReportedChange) -> None:
    versions = ground.versions("a", 4)
    tables = (TableHistory("a", versions[3].metadata_location, 5, 5),)
    answer = await loaded(ground, EventHistory(tables, 4, (late,)))
    assert answer.applied is not None
    assert answer.applied.unapplied == ()


async def test_store_outage_has_store_scope(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    ground.store.away = True
    with pytest.raises(Transient) as caught:
        await ground.catalog.load(NAME, None, told(of(1, version)))
    assert caught.value.scope is ErrorScope.STORE


@pytest.mark.parametrize("name", ["00000-x.gz.metadata.json", "00000-x.metadata.json.gz", "00000-x.metadata.json"])
async def test_gzip_is_detected_by_content(ground: Ground, name: str) -> None:
    table = Table("a", AT, f"{AT}/metadata/{name}", (), 7, 8)
    ground.store.files[table.metadata_location] = gzip.compress(metadata(table))
    assert (await loaded(ground, told(of(1, table)))).table == table


async def test_spellings_of_a_location_are_equal(ground: Ground) -> None:
    (version,) = ground.versions("a", 1)
    spelled = version.metadata_location.replace("s3:", "s3a:")
    known = (TableHistory("a", version.metadata_location, 1, 1),)
    answer = await loaded(ground, told(ReportedChange(2, spelled), tables=known))
    assert answer.table.metadata_location == version.metadata_location
