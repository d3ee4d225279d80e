"""Files survive cleaners, and short-lived metadata files are published in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.jobs import Capacity, Priority, StoredObject
from sfn.publish.existing_files import pointer_files
from sfn.publish.policy import Policy
from sfn.sfnfile.naming import ORDINAL, UUID, Placement
from sfn.storage import PreconditionFailed
from tests.simulation.incidents import CLEANERS, Cleaner
from tests.support.clock import HandClock
from tests.support.publishing import AT, LAG, A, B, CountingStore, Line, named

C = named("c")
HOUR, DAY = 3600, timedelta(days=1)
AWAY = "file:///warehouse/n/away"
LAYOUTS: dict[str, dict[str, Any]] = {
    "identifier": {},
    "alongside": {"placement": Placement.ALONGSIDE},
    "uuid": {"naming": UUID},
    "commits": {"naming": ORDINAL},
}


class DatedStore(CountingStore):
    """Knows when each file was written."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock
        self._written: dict[str, datetime] = {}

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self._written[key] = self._clock.now()
        return await super().write(key, body, replacing)

    def ages(self) -> dict[str, timedelta]:
        return {key: self._clock.now() - at for key, at in self._written.items() if key in self.files}


class Lake(Line):
    """A line whose tables lie in three places, one of which they left."""

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - any setting
        super().__init__(Policy("c1", replica_lag=LAG, is_swept=False, **more))
        self.store: DatedStore = DatedStore(self.clock)

    async def fill(self) -> None:
        """A table that moved, one that was dropped, and one that has another name."""
        for table in (A, B, C):
            # Of a table without any metadata the files would be deleted, as after a purge.
            self.store.files[self.catalog.create(table).metadata_location] = b"{}"
        self.catalog.commit(A)
        await self.hear(Notification(A), Notification(B), Notification(C), seconds=60)
        self.catalog.commit(A, AWAY)
        self.catalog.drop(B)
        self.catalog.rename(C, named("d"))
        await self.hear(Notification(A), Notification(B, drop=True), Notification(C, renamed_to=named("d")), seconds=60)

    def condemned(self, cleaner: Cleaner) -> list[str]:
        """What a cleaner would delete now, whichever table it is run for."""
        places = (AT, AWAY, "file:///warehouse/n/b", "file:///warehouse/n/c")
        return [key for place in places for key in cleaner.condemned(place, self.store.ages(), ())]

    def ours(self) -> set[str]:
        """The keys that we wrote."""
        return set(self.store.ages())

    def states(self) -> set[str]:
        """What our files say."""
        return {json.loads(body)["state"] for key, body in self.store.files.items() if key.endswith(".ver")}

    def live(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """What readers find: the pointer in each leading file, and the hints."""
        keys = [
            key for key in pointer_files(self.store.files) if json.loads(self.store.files[key])["state"] == "current"
        ]
        said = {key: json.loads(self.store.files[key])["metadata_file_path"] for key in keys}
        return said, {key: body for key, body in self.store.files.items() if key.endswith(".text")}


def settings() -> Iterator[Cleaner]:
    """Each as it comes, and as strict as it can be set."""
    for cleaner in CLEANERS:
        yield from {cleaner, replace(cleaner, age=cleaner.least)}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_nothing_of_ours_grows_old_enough_within_a_week(layout: str) -> None:
    lake = Lake(**LAYOUTS[layout])
    await lake.fill()
    kept = lake.ours()
    assert {"current", "moved", "dropped"} <= lake.states()
    for _ in range(7 * 24 - 1):
        await lake.work(HOUR)
        assert {cleaner.name: found for cleaner in settings() if (found := lake.condemned(cleaner))} == {}
    assert lake.ours() == kept


async def test_what_is_not_written_again_within_a_day_is_deleted() -> None:
    """But for what lies in a folder that begins with an underscore, by Spark, and for hints, by those who know them."""
    lake = Lake(refresh_after=2 * DAY)
    await lake.fill()
    await lake.work(25 * HOUR)
    ours = lake.ours()
    hints = {key for key in ours if key.endswith("/version-hint.text")}
    assert hints
    assert {one.name: set(lake.condemned(replace(one, age=one.least))) for one in CLEANERS} == {
        "Spark": set(),
        "Trino": ours - hints,
        "StarRocks": ours - hints,
        "Lakekeeper": ours,
        "Glue": ours,
        "the strictest": ours,
    }


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_was_deleted_while_nobody_ran_is_made_again_at_the_next_look(layout: str) -> None:
    lake = Lake(**LAYOUTS[layout])
    await lake.fill()
    live = lake.live()
    lake.clock.turn(2 * DAY.total_seconds())
    for key in lake.condemned(CLEANERS[-1]):
        del lake.store.files[key]
    assert lake.ours() == set()
    await lake.work(HOUR)
    assert lake.live() == live


def test_each_rule_spares_what_is_young_known_or_elsewhere() -> None:
    known, at = f"{AT}/metadata/00001-x.metadata.json", AT + "-of-another/data/1.parquet"
    old = {known: 9 * DAY, at: 9 * DAY, f"{AT}/data/1.parquet": 9 * DAY, f"{AT}/data/2.parquet": DAY}
    for cleaner in CLEANERS:
        assert cleaner.condemned(AT, old, {known}) == [f"{AT}/data/1.parquet"]


ONE = Capacity(total=1, live=1, sweeps=0)


def keep(line: Line, versions: int | None) -> None:
    """One more commit of a table that has one every two seconds, which leaves so many metadata files."""
    line.catalog.amend(A, replace(line.catalog.commit(A), previous_versions_max=versions))


@pytest.fixture
async def line() -> Line:
    line = Line()
    line.catalog.create(A)
    for _ in range(30):
        keep(line, 20)
    await line.hear(Notification(A), seconds=600)
    return line


async def test_it_is_served_before_a_backlog(line: Line) -> None:
    await line.inbox.put([Notification(named(f"t{number}")) for number in range(1000)])
    keep(line, 20)
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(ONE)).jobs
    await line.publish(claim)
    current = line.catalog.current(A)
    assert current is not None
    assert line.document(A)["metadata_file_path"] == current.metadata_location


async def test_it_takes_its_turn_once_its_files_stay(line: Line) -> None:
    keep(line, None)
    await line.hear(Notification(A), seconds=600)
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(ONE)).jobs
    assert claim.group.priority is Priority.LIVE


async def test_it_stays_first_while_the_catalog_says_nothing_new(line: Line) -> None:
    await line.hear(Notification(A), seconds=600)
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(ONE)).jobs
    assert claim.group.priority is Priority.SHORT_LIVED
