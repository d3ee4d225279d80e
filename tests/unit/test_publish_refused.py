"""What becomes of files whose table is refused its place."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, StoredObject
from sfn.errors import ErrorScope, Permanent
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import Placement
from sfn.storage import Guarantees, PreconditionFailed
from tests.unit.publishing import AT, EVERYTHING, LAG, A, B, CountingStore, Line, key_of

DAY = timedelta(days=1).total_seconds()


async def test_a_refused_table_heals_without_an_event() -> None:
    line = Line()
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
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
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
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
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
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
