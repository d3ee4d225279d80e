"""What `sfn check` says of sources, on real servers."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from sfn.cli.check_config import Severity
from sfn.cli.check_findings import pull_findings
from sfn.settings.model import Settings
from tests.integration.listening import Inbox
from tests.integration.pulling import Place, event
from tests.integration.waiting import until
from tests.servers.nats import Nats
from tests.servers.process import free_port
from tests.unit.settings_ground import CATALOG, Ground

TOLD = '[catalogs.hive]\ntype = "events"\ncatalog_id = "x"\nallowed_locations = ["/w"]\n'
SENDER = '[senders.etl]\nsecrets = { m = "sixteen-of-these" }\ncatalog = "hive"\n'


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def place(nats: Nats) -> Place:
    return Place(nats.url).kept()


def configured(ground: Ground, place: Place, *more: str, durable: bool = True, catalogs: str = CATALOG) -> Settings:
    lines = [f"servers = ['{place.url}']", f"subject = '{place.subject}'", *more]
    if durable:
        assert place.durable is not None
        lines += [f"stream = '{place.durable.stream}'", f"durable = '{place.durable.name}'"]
    return ground.load("\n".join([catalogs, "[pull.events]", *lines]))


async def told(settings: Settings) -> list[tuple[str, str, str, str]]:
    return [(one.where, one.severity.value, one.text, one.remedy) async for one in pull_findings(settings)]


async def test_core_nats_is_tried_without_taking_what_is_the_services(ground: Ground, nats: Nats) -> None:
    place, inbox = Place(nats.url), Inbox()
    settings, looks = configured(ground, place, durable=False), 0

    async def look_on() -> None:
        nonlocal looks
        while True:
            assert await told(settings) == [
                ("pull.events", "ok", f"{place.url} answers; we may subscribe to {place.subject}", "")
            ]
            looks += 1

    async with place.begun(inbox), anyio.create_task_group() as tasks:
        tasks.start_soon(look_on)
        for turn in range(20):
            await place.publish(*map(event, range(50 * turn, 50 * (turn + 1))))
        await until(lambda: looks and len(inbox.taken) == 1_000)
        tasks.cancel_scope.cancel()


async def test_a_stream_is_looked_at_and_its_consumer_not_made(ground: Ground, place: Place) -> None:
    await place.make_stream()
    settings = configured(ground, place)
    assert place.durable is not None
    begins = f"{place.url} answers; the stream {place.durable.stream} has {place.subject}, "
    for _ in range(2):
        assert await told(settings) == [("pull.events", "ok", f"{begins}the service will make its consumer sfn", "")]
    async with place.client() as client:
        assert await client.jetstream().consumers_info(place.durable.stream) == []
    await place.publish(event(1))
    async with place.client() as client:
        await client.jetstream().pull_subscribe(place.subject, "sfn", place.durable.stream)
    assert await told(settings) == [("pull.events", "ok", f"{begins}its consumer sfn is there", "")]
    assert (await place.consumer()).num_pending == 1


async def test_a_stream_that_is_not_there_is_told_with_the_command_that_makes_it(ground: Ground, place: Place) -> None:
    assert place.durable is not None
    name = place.durable.stream
    remedy = f"make it: nats stream add {name} --subjects '{place.subject}' --defaults; or correct the name"
    assert await told(configured(ground, place)) == [
        ("pull.events.stream", "error", f"expected a stream {name}, found none", remedy)
    ]


async def test_a_subject_that_the_stream_does_not_keep_is_told(ground: Ground, place: Place) -> None:
    await place.make_stream()
    settings = configured(ground, Place(place.url, "another.one", place.durable))
    ((where, severity, text, remedy),) = await told(settings)
    assert (where, severity) == ("pull.events.subject", "error")
    assert text.endswith(f"{place.subject}, found another.one")
    assert remedy == "correct it, or pull.events.stream"


async def test_a_consumer_of_another_subject_is_told(ground: Ground, place: Place) -> None:
    assert place.durable is not None
    other = f"{place.subject}.other"
    async with place.client() as client:
        await client.jetstream().add_stream(name=place.durable.stream, subjects=[place.subject, other])
        await client.jetstream().pull_subscribe(other, "sfn", place.durable.stream)
    ((where, _, text, remedy),) = await told(configured(ground, place))
    assert where == "pull.events.durable"
    assert text == f"expected a consumer sfn of the subject {place.subject}, found {other}"
    assert remedy == "name another one, which is made, or delete that one"


async def test_a_server_without_jetstream_is_told(ground: Ground) -> None:
    with Nats(jetstream=False) as server:
        ((where, _, text, remedy),) = await told(configured(ground, Place(server.url).kept()))
    assert (where, text) == ("pull.events", "expected a server with JetStream, found one without")
    assert remedy == "set up JetStream there; for core NATS remove pull.events.stream and durable"


async def test_a_server_that_is_away_is_told(ground: Ground) -> None:
    place = Place(f"nats://127.0.0.1:{free_port()}")
    ((where, severity, text, remedy),) = await told(configured(ground, place, durable=False))
    assert (where, severity) == ("pull.events", "error")
    assert text == f"expected an answer from {place.url}, found Connection refused"
    assert remedy == "see whether it runs there, or correct pull.events.servers"


async def test_credentials_that_are_not_taken_are_told(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another")
    with Nats("authorization { token: s3cret }") as server:
        settings = configured(ground, Place(server.url), f"token_file = '{tmp_path}/token'", durable=False)
        ((where, severity, text, _),) = await told(settings)
    assert (where, severity) == ("pull.events", "error")
    assert text == f"expected to be let in by {server.url}, found Authorization Violation"


async def test_a_package_that_is_missing_is_told(ground: Ground, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("sfn.pull.nats")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("sfn.pull.nats", raising=False)
    monkeypatch.setitem(sys.modules, "nats.errors", None)
    assert await told(configured(ground, place)) == [
        (
            "pull.events",
            "error",
            "expected the packages that NATS needs, found no module nats.errors",
            "pip install '.[nats]'",
        )
    ]


async def test_a_secret_that_somebody_on_the_way_may_read_is_warned_of(ground: Ground) -> None:
    for more, warned in (
        ("token_file = '/none'", True),
        ("user = 'u'\npassword_file = '/none'", True),
        ("credentials_file = '/none'", False),
        ("token_file = '/none'\nca_file = '/none'", False),
    ):
        settings = configured(ground, Place("nats://nats.example"), more, durable=False)
        found = [one async for one in pull_findings(settings)]
        assert ("pull.events.servers" in [one.where for one in found]) == warned
        assert found[-1].severity is Severity.ERROR


async def test_of_catalogs_that_nobody_can_ask_core_nats_is_warned_of(ground: Ground, place: Place) -> None:
    catalogs = CATALOG + TOLD + SENDER
    found = await told(configured(ground, place, "catalog = 'hive'", durable=False, catalogs=catalogs))
    assert [(where, severity) for where, severity, *_ in found] == [
        ("pull.events.stream", "warning"),
        ("pull.events", "ok"),
    ]
    assert "nobody can be asked of hive" in found[0][2]
    others = await told(configured(ground, place, "catalog = 'prod'", durable=False, catalogs=catalogs))
    assert [severity for _, severity, *_ in others] == ["ok"]
