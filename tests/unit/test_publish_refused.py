"""What becomes of files whose table is refused its place."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from sfn.words import Dead, Done, Hint, Reason
from tests.unit.publishing import AT, A, B, Line, key_of

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1).total_seconds()


async def test_a_refused_table_heals_without_an_event() -> None:
    line = Line()
    line.catalog.create(A)
    await line.hear(Hint(A), seconds=20)
    theirs = line.store.files[key_of(A)].replace(b'"c1"', b'"c2"')
    line.store.files[key_of(A)] = theirs
    line.catalog.commit(A)
    await line.hear(Hint(A), seconds=20)
    assert line.store.files[key_of(A)] == theirs
    del line.store.files[key_of(A)]
    await line.work(line.policy.refresh_after.total_seconds())
    assert line.document(A)["state"] == "current"
    assert isinstance(line.outcomes[-1], Done)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("place", [AT, "http://nessie/n/b"])
async def test_a_table_that_was_renamed_while_its_location_is_refused_keeps_its_file(place: str, *, told: bool) -> None:
    line = Line()
    line.policy = replace(line.policy, allowed=("file:///warehouse",))
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Hint(A), seconds=20)
    before, was = dict(line.store.files), line.policy
    line.policy = replace(was, allowed=("file:///elsewhere",))
    line.catalog.rename(A, B)
    line.catalog.commit(B, location=place)
    await line.hear(Hint(A, renamed_to=B), *[Hint(B)] * told, seconds=1500)
    assert line.document(A)["state"] == "current"
    assert line.store.files.keys() == before.keys()
    line.policy = was
    line.catalog.commit(B, location=AT)
    await line.hear(Hint(B), seconds=1500)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("renamed", "current")


@pytest.mark.parametrize("refused", ["location", "metadata"])
async def test_a_refused_location_gives_up_no_table(refused: str) -> None:
    """A wrong setting, or a catalog that answers wrong locations, concerns every table at once."""
    line = Line()
    line.catalog.create(A)
    await line.hear(Hint(A), seconds=20)
    before, was = dict(line.store.files), line.policy
    if refused == "location":
        line.catalog.commit(A, location="http://nessie/n/a")
    else:
        line.catalog.commit(A)
        line.policy = replace(was, allowed=("file:///elsewhere",))
    await line.hear(Hint(A), seconds=DAY)
    assert isinstance(line.outcomes[-1], Dead)
    assert line.outcomes[-1].reason is Reason.LOCATION_REFUSED
    assert line.store.files.keys() == before.keys()
    assert line.document(A)["state"] == "current"
    assert line.hint() == before[f"{AT}/metadata/version-hint.text"]
    line.policy = was
    line.catalog.commit(A, location=AT)
    await line.hear(Hint(A), seconds=3600)
    assert isinstance(line.outcomes[-1], Done)
