"""What Lakekeeper publishes to NATS, taken as it is: structured CloudEvents on one subject."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfn.domain.identifiers import TableIdentifier
from tests.integration.listening import Inbox
from tests.integration.pulling import Place
from tests.integration.waiting import until
from tests.servers.nats import Nats

GOLDEN = Path(__file__).parents[1] / "dialects" / "golden"


def published(name: str) -> bytes:
    """One of its events, of the warehouse that the source knows."""
    event = json.loads((GOLDEN / f"lakekeeper-{name}.json").read_text())
    return json.dumps({**event, "warehouse-id": "theirs"}).encode()


@pytest.mark.parametrize("kept", [False, True], ids=["core", "JetStream"])
async def test_its_events_are_understood_and_a_repeat_is_a_duplicate(nats: Nats, *, kept: bool) -> None:
    inbox, place = Inbox(), Place(nats.url)
    if kept:
        place = place.kept()
        await place.make_stream()
    async with place.fetched(inbox) if kept else place.begun(inbox) as fetching:
        await place.publish(published("updateTable"), published("dropTable"))
        await until(lambda: len(inbox.taken) == 2)
        assert fetching.received("accepted", "lakekeeper") == 2
    commit, drop = inbox.taken
    assert (commit.subject, commit.drop) == (TableIdentifier("prod", ("a", "b"), "orders"), False)
    assert (drop.subject, drop.drop) == (TableIdentifier("prod", ("a", "b"), "orders"), True)
    assert (commit.uuid, drop.uuid) == ("9c12d441-03fe-4693-9a96-a0705ddf69c1",) * 2
    assert commit.event_id is not None
    assert commit.event_id != drop.event_id


async def test_what_another_warehouse_did_is_ignored(nats: Nats) -> None:
    inbox, place = Inbox(), Place(nats.url)
    async with place.begun(inbox) as fetching:
        await place.publish(published("updateTable").replace(b'"theirs"', b'"another"'), published("dropTable"))
        await until(lambda: len(inbox.taken) == 1)
        assert fetching.received("unmapped", "lakekeeper") == 1
    assert inbox.taken[0].drop
