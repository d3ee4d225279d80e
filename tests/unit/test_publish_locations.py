"""Where files lie once the settings have them lie or be called otherwise, and files that are refused their place."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, StoredObject
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.publish.policy import OnDrop, Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import (
    IDENTIFIER,
    NAMINGS,
    ORDINAL,
    UUID,
    FileLayout,
    FileOwner,
    Naming,
    Placement,
    folder_below_root,
)
from sfn.storage import Deleted, Guarantees, PreconditionFailed
from tests.promises.inboxes import TERMS
from tests.support.publishing import AT, EVERYTHING, LAG, A, B, CountingStore, HintsNoted, Line, TornStore, key_of

ROOT = "file:///sfn"

DAY = timedelta(days=1).total_seconds()


def line_of(naming: Naming, placement: Placement) -> Line:
    """A line with these settings."""
    return Line(
        Policy("c1", replica_lag=LAG, absence_delay=LAG, is_swept=False, naming=naming, placement=placement, root=ROOT)
    )


def laid(line: Line, table: Table) -> Table:
    """The table with its metadata file."""
    line.store.files[table.metadata_location] = b"{}"
    return table


def site_of(line: Line, table: Table) -> FileLayout:
    """Where its files belong."""
    return line.policy.layout(A, f"file://{table.location.removeprefix('file://')}")


def document(line: Line, site: FileLayout, table: Table) -> dict[str, Any]:
    """A leading document."""
    body: dict[str, Any] = json.loads(line.store.files[site.keys(FileOwner(A.namespace, A.name, table.uuid))[0]])
    return body


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("placement", Placement)
async def test_each_naming_goes_with_each_placement(naming: Naming, placement: Placement) -> None:
    """Created, changed, moved, dropped, and gone in the end."""
    line = line_of(naming, placement)
    table = laid(line, line.catalog.create(A))
    for _ in range(2):
        table = laid(line, line.catalog.commit(A))
        await line.hear(Notification(A), seconds=20)
        body = document(line, site_of(line, table), table)
        assert (body["state"], body["metadata_file_path"]) == ("current", table.metadata_location)
    assert line.hint() == (version_hint.content(table) if placement is not Placement.ROOT else None)
    before = site_of(line, table)
    table = laid(line, line.catalog.commit(A, location="file:///warehouse/n/elsewhere"))
    await line.hear(Notification(A), seconds=20)
    assert document(line, site_of(line, table), table)["metadata_file_path"] == table.metadata_location
    if placement is not Placement.ROOT:
        assert document(line, before, table)["state"] == "moved"
    await line.drop()
    assert document(line, site_of(line, table), table)["state"] == "dropped"
    await line.work(2 * line.policy.expire_after.total_seconds())
    assert not [key for key in line.store.files if key.endswith((".ver", ".text"))]


def test_below_a_root_each_table_has_a_folder() -> None:
    policy = line_of(IDENTIFIER, Placement.ROOT).policy
    assert policy.layout(A, AT).folder == f"{folder_below_root(ROOT, A.namespace, A.name)}/" == "file:///sfn/n/a/"


@pytest.mark.parametrize("after", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("before", NAMINGS.values(), ids=NAMINGS)
async def test_another_naming_leads_on_from_the_files_of_the_old_one(before: Naming, after: Naming) -> None:
    line = line_of(before, Placement.INSIDE)
    table = laid(line, line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.policy = replace(line.policy, naming=after)
    table = laid(line, line.catalog.commit(A))
    await line.hear(Notification(A), seconds=20)
    new = document(line, FileLayout(AT, after), table)
    assert (new["state"], new["metadata_file_path"]) == ("current", table.metadata_location)
    assert line.hint() == version_hint.content(table)
    if before != after:
        old = document(line, FileLayout(AT, before), table)
        assert old["state"] == "moved"
        assert (
            old["moved_to"]["sfn_file_path"]
            == FileLayout(AT, after).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
        )
    await line.work(2 * line.policy.expire_after.total_seconds())
    stays = {FileLayout(AT, after).keys(FileOwner(A.namespace, A.name, table.uuid))[0]}
    kept = {key for key in line.store.files if key.endswith(".ver")}
    assert stays <= kept
    assert all(json.loads(line.store.files[key])["state"] == "current" for key in kept)
    assert line.hint() == version_hint.content(table)


class Watched(TornStore):
    """Notes after each change which metadata files live documents name."""

    def __init__(self) -> None:
        super().__init__()
        self.live: list[set[str]] = []

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        try:
            return await super().write(key, body, replacing)
        finally:
            self.live.append(self.named())

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        gone = await super().delete(key, expected)
        self.live.append(self.named())
        return gone

    def named(self) -> set[str]:
        """The metadata files that live leading documents name."""
        docs = [json.loads(held) for key, held in self.files.items() if key.endswith(("_main.ver", "_head.ver"))]
        return {doc["metadata_file_path"] for doc in docs if doc["state"] == "current"}


@pytest.mark.parametrize("on_drop", [OnDrop.TOMBSTONE, OnDrop.DELETE])
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(NAMINGS, 2)))
async def test_of_two_files_of_a_table_that_is_gone_the_older_one_goes_first(
    before: str, after: str, on_drop: OnDrop
) -> None:
    """Else a reader of the directory would go back to it between the two."""
    line = line_of(NAMINGS[before], Placement.INSIDE)
    line.policy = replace(line.policy, on_drop=on_drop)
    line.store = store = Watched()
    first = laid(line, line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.policy = replace(line.policy, naming=NAMINGS[after])
    second = laid(line, line.catalog.commit(A))
    store.torn = True
    with pytest.raises(Transient):
        await line.hear(Notification(A))
    store.torn = False
    assert store.named() == {first.metadata_location, second.metadata_location}
    since = len(store.live)
    line.clock.turn((2 * LAG + TERMS.lease).total_seconds())
    await line.drop(seconds=600)
    assert store.named() == set()
    assert {first.metadata_location} not in store.live[since:]


@pytest.mark.parametrize("after", [Placement.ALONGSIDE, Placement.ROOT])
async def test_another_placement_leads_on_from_the_files_at_the_old_one(after: Placement) -> None:
    line = line_of(IDENTIFIER, Placement.INSIDE)
    table = laid(line, line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.policy = replace(line.policy, placement=after)
    await line.hear(Notification(A), seconds=20)
    assert document(line, FileLayout(AT), table)["state"] == "moved"
    assert document(line, site_of(line, table), table)["state"] == "current"
    assert line.hint() == (None if after is Placement.ROOT else version_hint.content(table))


async def test_where_a_metadata_file_is_seen_from_its_document() -> None:
    expected = {Placement.INSIDE: "../", Placement.ALONGSIDE: "../metadata/", Placement.ROOT: None}
    for placement, start in expected.items():
        line = line_of(IDENTIFIER, placement)
        table = laid(line, line.catalog.create(A))
        await line.hear(Notification(A), seconds=20)
        name = table.metadata_location.rpartition("/")[2]
        relative = document(line, site_of(line, table), table).get("metadata_file_relative")
        assert relative == (None if start is None else start + name)


@pytest.mark.parametrize("naming", [IDENTIFIER, ORDINAL, UUID], ids=lambda naming: naming.setting)
async def test_tables_that_share_a_directory_are_told_apart_and_have_no_hint(naming: Naming) -> None:
    line = line_of(naming, Placement.INSIDE)
    tables = {name: laid(line, line.catalog.create(name, AT)) for name in (A, B)}
    await line.hear(Notification(A), Notification(B), seconds=60)
    for name, table in tables.items():
        key = FileLayout(AT, naming).keys(FileOwner(name.namespace, name.name, table.uuid))[0]
        assert json.loads(line.store.files[key])["metadata_file_path"] == table.metadata_location
    assert line.hint() is None
    await line.drop(B)
    assert line.hint() == version_hint.content(tables[A])


async def test_a_hint_beside_a_file_by_uuid_goes_once_the_table_has_its_file_by_another_naming() -> None:
    """Renamed and changed, and meanwhile the settings too: what the hint says nobody says any more."""
    line = line_of(UUID, Placement.ALONGSIDE)
    table = laid(line, line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    assert line.hint() == version_hint.content(table)
    line.policy = line_of(ORDINAL, Placement.INSIDE).policy
    line.catalog.rename(A, B)
    after = laid(line, line.catalog.commit(B))
    line.store = store = HintsNoted(line.store.files)
    await line.hear(Notification(B))
    key = FileLayout(AT, UUID, Placement.ALONGSIDE).keys(FileOwner((), "", table.uuid))[0]
    assert json.loads(line.store.files[key])["state"] == "renamed"
    assert store.hints[key] is None
    await line.hear(Notification(B), seconds=60)
    assert line.hint() == version_hint.content(after)


async def test_a_refused_table_heals_without_an_event() -> None:
    line = Line()
    await line.publish_new()
    theirs = line.store.files[key_of(A)].replace(b'"c1"', b'"c2"')
    line.store.files[key_of(A)] = theirs
    line.catalog.commit(A)
    await line.hear(Notification(A), seconds=20)
    assert line.store.files[key_of(A)] == theirs
    del line.store.files[key_of(A)]
    await line.work(line.policy.refresh_after.total_seconds())
    assert line.document(A)["state"] == "current"
    assert isinstance(line.outcomes[-1], Done)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("place", [AT, "http://nessie/n/b"])
async def test_a_table_that_was_renamed_while_its_location_is_refused_keeps_its_file(place: str, *, told: bool) -> None:
    line = Line()
    line.policy = replace(line.policy, allowed_locations=("file:///warehouse",))
    await line.publish_new(has_metadata_file=True)
    before, was = dict(line.store.files), line.policy
    line.policy = replace(was, allowed_locations=("file:///elsewhere",))
    line.catalog.rename(A, B)
    line.catalog.commit(B, location=place)
    await line.hear(Notification(A, renamed_to=B), *[Notification(B)] * told, seconds=1500)
    assert line.document(A)["state"] == "current"
    assert line.store.files.keys() == before.keys()
    line.policy = was
    line.catalog.commit(B, location=AT)
    await line.hear(Notification(B), seconds=1500)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("renamed", "current")


@pytest.mark.parametrize("refused", ["location", "metadata"])
async def test_a_refused_location_gives_up_no_table(refused: str) -> None:
    """A wrong setting, or a catalog that answers wrong locations, concerns every table at once."""
    line = Line()
    await line.publish_new()
    before, was = dict(line.store.files), line.policy
    if refused == "location":
        line.catalog.commit(A, location="http://nessie/n/a")
    else:
        line.catalog.commit(A)
        line.policy = replace(was, allowed_locations=("file:///elsewhere",))
    await line.hear(Notification(A), seconds=DAY)
    assert isinstance(line.outcomes[-1], DeadLettered)
    assert line.outcomes[-1].reason is DeadLetterReason.LOCATION_REFUSED
    assert line.store.files.keys() == before.keys()
    assert line.document(A)["state"] == "current"
    assert line.hint() == before[f"{AT}/metadata/version-hint.text"]
    line.policy = was
    line.catalog.commit(A, location=AT)
    await line.hear(Notification(A), seconds=3600)
    assert isinstance(line.outcomes[-1], Done)


class Provable(CountingStore):
    """A store that is refused, or not.

    Attributes:
        proved: the keys beside which a proof was asked for.
        written: the keys that were written.
        unfit: why it is refused; None where it is not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.proved, self.written = list[str](), list[str]()
        self.unfit: Permanent | None = None

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self.written.append(key)
        assert self.proved, "it was written to before it was proven"
        return await super().write(key, body, replacing)

    @override
    async def probe(self, key: str) -> Guarantees:
        self.proved.append(key)
        if self.unfit is not None:
            raise self.unfit
        return await super().probe(key)


def provable(line: Line) -> Provable:
    """Give a line a store that tells of its proofs, with the files of the one before."""
    store = Provable()
    store.files, line.store = line.store.files, store
    return store


@pytest.mark.parametrize("live", [False, True])
async def test_a_refused_store_gets_no_file(*, live: bool) -> None:
    line = Line()
    line.catalog.create(A)
    if live:
        await line.hear(Notification(A), seconds=20)
        line.catalog.commit(A)
    store, before = provable(line), dict(line.store.files)
    store.unfit = Permanent("lake", scope=ErrorScope.STORE, expected="a store that keeps conditions", found="another")
    await line.inbox.put([Notification(A)])
    line.clock.turn(20)
    (claim,) = (await line.inbox.claim(EVERYTHING)).jobs
    with pytest.raises(Permanent):
        await line.publish(claim)
    assert store.written == []
    assert store.files == before


@pytest.mark.parametrize(("placement", "folder"), [(Placement.INSIDE, "metadata/_sfn"), (Placement.ALONGSIDE, "_sfn")])
async def test_a_store_is_proven_where_files_of_ours_may_lie(placement: Placement, folder: str) -> None:
    """Also where the version hint is the first file that a process writes: a policy may grant that name alone."""
    line = Line(Policy("c1", replica_lag=LAG, is_swept=False, placement=placement))
    line.catalog.create(A)
    store = provable(line)
    await line.hear(Notification(A), seconds=20)
    assert version_hint.key_of(AT) in store.written
    del store.files[version_hint.key_of(AT)]
    store.proved.clear()
    store.written.clear()
    await line.work(line.policy.refresh_after.total_seconds() + 3600)
    assert version_hint.key_of(AT) in store.written
    assert {key.rpartition("/")[0] for key in store.proved} == {f"{AT}/{folder}"}
