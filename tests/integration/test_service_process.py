"""The service as a process: events become files."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from ipaddress import IPv4Address
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from structlog.testing import capture_logs

import sfn
from sfn.app.service import log_start
from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Unreadable
from sfn.http.responses import PROBLEM_MEDIA_TYPE
from sfn.http.server import listening_socket
from sfn.settings import load
from sfn.settings.environment import UNREACHABLE
from tests.support.certificates import Authority, Files
from tests.support.listener import STANDARD, WEBHOOK, fields
from tests.support.metrics_page import Page
from tests.support.processes import until
from tests.support.rest_catalog import reply, running
from tests.support.service import SFN, TOKEN, TOLD, Daemon, Lake, configure, lake, refused, serving
from tests.support.table_directory import replaced

# Events and files.


FIELDS = {"catalog", "table", "attempt", "outcome", "reason", "why", "seconds", "files"}


async def test_an_event_becomes_a_file_and_each_commit_after_it_too(world: Lake) -> None:
    async with serving(configure(world), command=SFN) as daemon:
        for _ in range(3):
            pointer = world.commit("orders")
            answer = await daemon.tell("orders", metadata_location=pointer)
            assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
            await world.until_published("orders")


async def test_it_says_where_it_listens_when_it_is_ready_and_for_which_catalogs(world: Lake) -> None:
    async with serving(configure(world), command=SFN) as daemon:
        (listening,) = daemon.records("started")
        assert (listening["port"] > 0, listening["catalogs"]) == (True, ["prod"])
        assert [(await daemon.client.get(path)).status_code for path in ("/livez", "/readyz")] == [200, 200]
        assert not daemon.records("no token is configured: listening on loopback only")


async def test_what_happened_before_the_start_is_found_without_an_event(world: Lake) -> None:
    world.commit("orders")
    world.commit("customers")
    async with serving(configure(world)) as daemon:
        await world.until_published("orders", "customers")
        await daemon.until_logged("settled", table=None, outcome="swept")


async def test_without_sweeps_only_events_count(world: Lake) -> None:
    world.commit("orders")
    world.commit("customers")
    async with serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        await daemon.tell("orders")
        await world.until_published("orders")
        assert world.loads == ["orders"] * len(world.loads)
        assert not daemon.records("settled", outcome="swept")


async def test_the_log_has_one_record_an_outcome_with_the_same_fields_and_no_token(world: Lake) -> None:
    async with serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        record = await daemon.until_logged("settled")
        assert set(record) >= FIELDS
        assert (record["catalog"], record["table"], record["attempt"]) == ("prod", "prod:sales.orders", 1)
        assert (record["outcome"], record["reason"], record["why"]) == ("done", None, None)
        assert 0 < record["seconds"] < 10
        names = [file.rsplit("/", 1)[-1] for file in record["files"]]
        assert names == ["sales_orders_main.ver", "version-hint.text"]
        assert len(daemon.records("settled")) == 1
        assert TOKEN not in daemon.log.read_text()


async def test_a_dead_letter_is_logged_with_its_reason(world: Lake) -> None:
    world.commit("orders")
    configuration = configure(world, f"[stores.other]\nprefix = '{world.folder}/nothing'")
    configuration.write_text(configuration.read_text().replace(f"{world.folder}/warehouse", f"{world.folder}/else"))
    async with serving(configuration) as daemon:
        record = await daemon.until_logged("settled", outcome="dead")
        assert (record["table"], record["reason"], record["level"]) == (
            "prod:sales.orders",
            "location-refused",
            "error",
        )
        assert "stores.NAME" in record["why"]


async def test_a_catalog_that_is_away_at_the_start_is_waited_for(world: Lake) -> None:
    await world.close()
    pointer = world.commit("orders")
    async with serving(configure(world)) as daemon:
        assert (await daemon.client.get("/readyz")).status_code == 200
        assert (await daemon.tell("orders", metadata_location=pointer)).status_code == 202
        await daemon.until_logged("catalog unreachable", catalog="prod")
        assert world.published("orders") is None
        await world.open()
        await world.until_published("orders")
        done = await daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
        assert done["attempt"] == 1
        assert daemon.records("catalog reached", catalog="prod")
        back = await daemon.until_logged("catalog recovered", catalog="prod")
        assert back["seconds"] > 0


async def test_a_catalog_that_is_away_holds_up_no_other(world: Lake) -> None:
    """It wants to be left alone for longer than anything here is waited for: so would be what shared its breaker."""
    async with running() as away:
        away.config = away.other = reply({}, 503, retry_after="120")
        more = f'[catalogs.away]\nuri = "{away.uri}"\n[senders.away]\nsecrets = {{ main = "other" }}\ncatalog = "away"'
        async with serving(configure(world, f'{more}\n[sweep]\nevery = "off"')) as daemon:
            other = {"Authorization": "Bearer other"}
            event = {"namespace": ["sales"], "name": "orders"}
            assert (await daemon.client.post("/v1/events", json=event, headers=other)).status_code == 202
            await daemon.until_logged("catalog unreachable", catalog="away")
            asked = len(away.requests)
            for name in ("orders", "customers"):
                world.commit(name)
                await daemon.tell(name)
            await world.until_published("orders", "customers")
            assert (await daemon.client.post("/v1/events", json=event, headers=other)).status_code == 202
            await daemon.tell("orders")
            await until(lambda: len(daemon.records("settled", catalog="prod", outcome="done")) == 3)
            assert len(away.requests) == asked


async def test_the_catalog_says_whose_the_files_are(world: Lake) -> None:
    world.commit("orders")
    configuration = configure(world)
    async with serving(configuration):
        await world.until_published("orders")
    body = json.loads((world.directory("orders") / "metadata/_sfn/sales_orders_main.ver").read_text())
    assert body["catalog_id"] == sha256(f"{world.uri}\n\n".encode()).hexdigest()[:32]
    assert body["writer"].startswith("iceberg-sfn ")


async def test_an_event_of_a_table_that_is_left_out_is_ignored(world: Lake) -> None:
    world.commit("tmp_orders")
    async with serving(configure(world), {"SFN_CATALOGS__PROD__EXCLUDE": "sales.tmp_*"}) as daemon:
        assert (await daemon.tell("tmp_orders")).json() == {"accepted": 0, "duplicates": 0, "ignored": 1}
        world.commit("orders")
        assert (await daemon.tell("orders")).json() == {"accepted": 1, "duplicates": 0, "ignored": 0}
        await world.until_published("orders")
        await daemon.until_logged("settled", outcome="swept")
        assert world.published("tmp_orders") is None


async def test_a_wrong_token_is_refused(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        answer = await daemon.client.post("/v1/events", json={}, headers={"Authorization": "Bearer guess"})
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM_MEDIA_TYPE)


@pytest.mark.parametrize("senders", ["", "[senders.local]\nscheme = 'none'\n"])
async def test_without_senders_everybody_on_this_machine_may_send(world: Lake, senders: str) -> None:
    configuration = configure(world)
    configuration.write_text(configuration.read_text().split("[senders.etl]", maxsplit=1)[0] + senders)
    async with serving(configuration) as daemon:
        await daemon.until_logged("no token is configured: listening on loopback only")
        world.commit("orders")
        answer = await daemon.client.post(
            "/v1/events", json={"namespace": ["sales"], "name": "orders"}, headers={"Authorization": ""}
        )
        assert answer.status_code == 202
        await world.until_published("orders")


async def test_without_a_store_it_says_that_nothing_can_be_published(world: Lake) -> None:
    configuration = configure(world)
    configuration.write_text(configuration.read_text().replace("[stores.lake]\nprefix", "#"))
    async with serving(configuration) as daemon:
        await daemon.until_logged("no store is configured: no table can be published")


async def test_operators_release_the_brake_with_their_own_token(world: Lake) -> None:
    async with serving(configure(world, '[admin]\ntoken = "operators"')) as daemon:
        path = "/admin/v1/drop-limits/prod:release"
        assert (await daemon.client.post(path)).status_code == 401
        answer = await daemon.client.post(path, headers={"Authorization": "Bearer operators"})
        assert (answer.status_code, answer.json()) == (200, {"released": 0})


async def test_without_an_operators_token_there_are_no_operators(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        assert (await daemon.client.post("/admin/v1/drop-limits/prod:release")).status_code == 404


# Metrics.


DONE = {"catalog": "prod", "outcome": "done", "error_class": ""}


async def page(daemon: Daemon) -> Page:
    """Asked for as Prometheus does: without a sender's token."""
    async with httpx.AsyncClient(base_url=daemon.client.base_url, trust_env=False) as prometheus:
        return Page((await prometheus.get("/metrics")).raise_for_status().text)


async def test_a_process_tells_what_it_did(tmp_path: Path) -> None:
    async with lake(tmp_path) as world, serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        assert (await page(daemon)).of("sfn_publications_total", "catalog") == {}
        for number in range(3):
            pointer = world.commit("orders")
            assert (await daemon.tell("orders", metadata_location=pointer, event_id=str(number))).status_code == 202
            await daemon.tell("orders", metadata_location=pointer, event_id=str(number))
            await world.until_published("orders")
        await until(lambda: len(daemon.records("settled", outcome="done")) == 3)
        told = await page(daemon)
    events = told.of("sfn_events_received_total", "format", "result")
    assert events == {("own", "accepted"): 3, ("own", "duplicate"): 3}
    assert told.value("sfn_publications_total", **DONE) == 3
    assert told.value("sfn_staleness_seconds_count", catalog="prod") == 2
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "scheduled"): 1}
    assert (told.value("sfn_catalog_reached", catalog="prod"), told.value("sfn_ready")) == (1, 1)
    for name in ("sfn_ingest_commit_seconds_count", "process_resident_memory_bytes"):
        assert told.value(name)
    for file in ("db", "wal"):
        assert told.value("sfn_inbox_bytes", file=file)
    assert "orders" not in told.text


async def test_a_catalog_that_was_never_reached_shows(tmp_path: Path) -> None:
    async with lake(tmp_path) as world:
        await world.close()
        async with serving(configure(world)) as daemon:
            await daemon.until_logged("catalog unreachable", catalog="prod")
            told = await page(daemon)
            assert (told.value("sfn_catalog_reached", catalog="prod"), told.value("sfn_ready")) == (0, 1)
            assert told.value("sfn_breaker_open", scope="catalog", name="prod") == 1
            await world.open()
            await daemon.until_logged("settled", table=None, outcome="swept")
            told = await page(daemon)
            assert told.value("sfn_catalog_reached", catalog="prod") == 1
            assert told.value("sfn_sweeps_total", catalog="prod", outcome="swept") == 1
            assert told.value("sfn_breaker_open", scope="catalog", name="prod") == 0


async def test_with_a_token_configured_it_is_needed(tmp_path: Path) -> None:
    secret = tmp_path / "scraper"
    secret.write_text("one-for-prometheus\n")
    async with lake(tmp_path) as world:
        configuration = configure(world, f'[telemetry]\nmetrics_token_file = "{secret}"')
        async with serving(configuration) as daemon:
            assert (await daemon.client.get("/metrics")).status_code == 401
            shown = {"Authorization": "Bearer one-for-prometheus"}
            assert (await daemon.client.get("/metrics", headers=shown)).status_code == 200


async def test_leases_that_a_killed_process_left_behind_are_counted(tmp_path: Path) -> None:
    async with lake(tmp_path) as world:
        world.commit("orders")
        configuration = configure(world, '[sweep]\nevery = "off"')
        async with serving(configuration) as daemon:
            world.delay = 60
            await daemon.tell("orders")
            await until(lambda: world.loads == ["orders"])
            daemon.process.kill()
            await daemon.ended()
        world.delay = 0
        async with serving(configuration) as daemon:
            await world.until_published("orders")
            assert (await page(daemon)).value("sfn_lease_expirations_total") == 1


# Token files.


SECTIONS = """
[senders.spark]
secrets_file = "{folder}/senders"
catalog = "prod"
[admin]
token_file = "{folder}/operators"
[telemetry]
metrics_token_file = "{folder}/scrapers"
"""
ROUTES = {"senders": ("POST", "/v1/events"), "operators": ("GET", "/admin/v1/status"), "scrapers": ("GET", "/metrics")}


async def test_a_token_counts_once_it_is_in_its_file_and_no_more_once_it_is_not(tmp_path: Path) -> None:
    for name in ROUTES:
        (tmp_path / name).write_text(f"{name}-first\n")
    async with lake(tmp_path) as world, serving(configure(world, SECTIONS.format(folder=tmp_path))) as daemon:

        async def status(name: str, token: str) -> int:
            method, path = ROUTES[name]
            headers = {"Authorization": f"Bearer {name}-{token}"}
            content = b"[]" if method == "POST" else None
            sent: httpx.Response = await daemon.client.request(method, path, headers=headers, content=content)
            return sent.status_code

        before = {name: await status(name, "first") for name in ROUTES}
        assert before == {"senders": 202, "operators": 200, "scrapers": 200}
        for name in ROUTES:
            (tmp_path / name).write_text(f"{name}-second\n")
            await daemon.until_logged("tokens reloaded", files=[str(tmp_path / name)])
        assert {name: await status(name, "second") for name in ROUTES} == before
        assert {await status(name, "first") for name in ROUTES} == {401}
        assert "-second" not in daemon.log.read_text()


# TLS.


NETWORK = str(IPv4Address(0))
CLEAR = "without TLS: tokens travel in clear text unless a proxy with TLS is in front"


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority.sign())


def environ(files: Files) -> dict[str, str]:
    return {"SFN_LISTENER__TLS_CERTIFICATE_FILE": str(files.chain), "SFN_LISTENER__TLS_KEY_FILE": str(files.key)}


async def test_an_event_becomes_a_file_over_tls_before_and_after_a_renewal(
    world: Lake, files: Files, authority: Authority
) -> None:
    async with serving(configure(world), environ(files), trust=authority.trust()) as daemon:
        assert str(daemon.client.base_url).startswith("https://127.0.0.1:")
        assert (await daemon.tell("orders", metadata_location=world.commit("orders"))).status_code == 202
        await world.until_published("orders")
        # Another authority: who trusts the new one alone connects.
        other = Authority()
        files.renew(other.sign())
        await daemon.until_logged("certificate and key reloaded")
        url = f"{daemon.client.base_url}/v1/events"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False, verify=other.trust()) as client:
            event = {"namespace": ["sales"], "name": "orders", "metadata_location": world.commit("orders")}
            assert (await client.post(url, json=event)).status_code == 202
        await world.until_published("orders")


async def test_a_pair_that_does_not_fit_stops_the_start_and_leaves_the_inbox_alone(
    world: Lake, files: Files, authority: Authority
) -> None:
    replaced(files.key, authority.sign().key)
    code, told = await refused(configure(world), environ(files))
    assert (code, "expected a certificate and the key that belongs to it" in told) == (1, True)
    assert not (world.folder / "inbox").exists()


@pytest.mark.parametrize(
    ("host", "tls", "told"), [(NETWORK, False, [CLEAR]), (NETWORK, True, []), ("127.0.0.1", False, [])]
)
def test_tokens_in_clear_text_are_warned_of_once(tmp_path: Path, host: str, tls: bool, told: list[str]) -> None:
    files = "\ntls_certificate_file = 'x'\ntls_key_file = 'y'" if tls else ""
    configuration = tmp_path / "sfn.toml"
    rest = "[senders.a]\nsecrets = { m = 't' }\n[catalogs.prod]\nuri = 'http://catalog'\n[stores.a]\nprefix = '/w'"
    configuration.write_text(f"[listener]\nhost = '{host}'{files}\n{rest}")
    with listening_socket("127.0.0.1", 0) as listener, capture_logs() as logs:
        log_start(load(configuration, {}), listener)
    assert [entry["event"] for entry in logs] == [*told, "started"]
    assert logs[-1]["url"].startswith("https://" if tls else "http://")


@pytest.mark.parametrize(
    ("host", "container", "settings"),
    [("127.0.0.1", "/.dockerenv", ["listener.host"]), (NETWORK, "/.dockerenv", []), ("127.0.0.1", None, [])],
)
def test_loopback_in_a_container_is_warned_of(
    tmp_path: Path, host: str, container: str | None, settings: list[str]
) -> None:
    configuration = tmp_path / "sfn.toml"
    rest = "[senders.a]\nsecrets = { m = 't' }\n[catalogs.prod]\nuri = 'http://catalog'\n[stores.a]\nprefix = '/w'"
    configuration.write_text(f"[listener]\nhost = '{host}'\n{rest}")
    with listening_socket("127.0.0.1", 0) as listener, capture_logs() as logs:
        log_start(load(configuration, {}), listener, container=container)
    warned = [entry for entry in logs if entry["event"] == UNREACHABLE]
    assert [(entry["setting"], entry["container"]) for entry in warned] == [(one, container) for one in settings]
    assert all('set listener.host to "0.0.0.0"' in entry["remedy"] for entry in warned)


# Event-only catalogs.


@dataclass
class Writer:
    """Writes tables' metadata files, as an engine does.

    Attributes:
        folder: where everything lies.
        versions: pointers by table uuid, oldest first.
    """

    folder: Path
    versions: dict[str, list[str]] = field(default_factory=dict)

    def configure(self) -> Path:
        """Write the configuration."""
        (self.folder / "warehouse").mkdir()
        file = self.folder / "sfn.toml"
        file.write_text(TOLD.format(folder=self.folder, scheme="bearer", secret=TOKEN))
        return file

    def directory(self, name: str) -> Path:
        return self.folder / "warehouse" / name

    def commit(self, name: str, uuid: str) -> str:
        """One more version of a table; its pointer."""
        versions = self.versions.setdefault(uuid, [])
        metadata = self.directory(name) / "metadata"
        metadata.mkdir(parents=True, exist_ok=True)
        file = metadata / f"{len(versions):05d}-{uuid4()}.metadata.json"
        content = {
            "format-version": 2,
            "table-uuid": uuid,
            "location": str(self.directory(name)),
            "last-updated-ms": 1_700_000_000_000 + len(versions),
            "metadata-log": [{"timestamp-ms": 1, "metadata-file": entry} for entry in versions],
        }
        file.write_text(json.dumps(content))
        versions.append(str(file))
        return str(file)

    def published(self, directory: str, name: str) -> str | None:
        """What a reader is told of a table in a directory; None for a refusal."""
        try:
            return sfn.resolve(self.directory(directory), ("sales", name)).metadata_location
        except Unreadable:
            return None


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


async def test_events_alone_make_files_and_keep_them_right(writer: Writer) -> None:
    configuration = writer.configure()
    async with serving(configuration) as daemon:
        first = writer.commit("orders", "u1")
        await daemon.tell("orders", operation="create", metadata_location=first)
        await until(lambda: writer.published("orders", "orders") == first)
        assert not daemon.records("sweep finished")
    second, third = (writer.commit("orders", "u1") for _ in range(2))
    async with serving(configuration) as daemon:
        for told in (third, second, first):
            await daemon.tell("orders", metadata_location=told)
        await until(lambda: writer.published("orders", "orders") == third)
        await daemon.tell(
            "orders", operation="rename", destination={"namespace": ["sales"], "name": "old_orders"}, table_uuid="u1"
        )
        await until(lambda: writer.published("orders", "old_orders") == third)
        await daemon.tell("old_orders", operation="drop", table_uuid="u1")
        await until(lambda: writer.published("orders", "old_orders") is None)
        assert not (writer.directory("orders") / "metadata" / "version-hint.text").exists()
        assert not daemon.records("settled", outcome="dead")


async def test_a_location_that_is_not_allowed_is_a_dead_letter_that_says_what_to_do(writer: Writer) -> None:
    async with serving(writer.configure()) as daemon:
        await daemon.tell("orders", metadata_location="/etc/passwd.metadata.json")
        record = await daemon.until_logged("settled", table="hive:sales.orders", outcome="dead")
        assert record["reason"] == "location-refused"
        assert "allowed_locations" in record["why"]


async def test_events_too_many_to_be_read_are_an_error_in_the_log(writer: Writer) -> None:
    async with serving(writer.configure()) as daemon:
        answer = await daemon.client.post("/v1/events", content=b" " * (2 << 20))
        assert answer.status_code == 413
        record = await daemon.until_logged("events lost")
        assert (record["level"], record["catalogs"]) == ("error", ["hive"])


# Malicious names and locations.


NAMES = (
    *(
        "..",
        ".",
        "../../../../escaped",
        "/etc/escaped",
        "a/../../b",
        "a\\..\\b",
        "%2e%2e%2f",
        "..%2fescaped",
        "~",
        "-rf",
    ),
    *("con", "nul.txt", "a.metadata.json", "a b", "a'b\"c", "$(touch escaped)", "`id`", "a;b|c&d", "*?[x]", "{}"),
    *("\u202egnp.exe", "\u200bzero", "\uff41\uff42", "\uff21", "é", "e\u0301", "\ufb01", "\u2044etc\u2044x", "İ", "ß"),
    *("\uff0e\uff0e\uff0fx", "\ufeffbom", "🧊", "a\u00a0b", "\ue000", "x" * 512, "ü" * 512, "\u0430dmin"),
)
"""Such as are taken: each is some table's right."""
REFUSED = ("", "a\x00b", "a\nb", "\r\n", "\x1b[2J", "\x7f", "\u2028", "\x85", "x" * 513)
OUTSIDE = (
    "/etc/t/metadata/1.metadata.json",
    "../outside/1.metadata.json",
    "{lake}/../outside/metadata/1.metadata.json",
    "{lake}/t/../../outside/1.metadata.json",
    "{lake}/t\\..\\..\\outside/metadata/1.metadata.json",
    "{lake}/%2e%2e/outside/metadata/1.metadata.json",
    "{lake}/t%2F..%2F..%2Foutside/1.metadata.json",
    "{lake}/\uff0e\uff0e/\u2025/../1.metadata.json",
    "{lake}/./t/metadata/1.metadata.json",
    "{lake}//t/metadata/1.metadata.json",
    "{lake}x/t/metadata/1.metadata.json",
    "file:{lake}/../outside/metadata/1.metadata.json",
    "file://elsewhere{lake}/t/metadata/1.metadata.json",
    "file://user@{lake}/t/metadata/1.metadata.json",
    "s3://bucket/t/metadata/1.metadata.json",
    "http://127.0.0.1/t/metadata/1.metadata.json",
)


@dataclass
class Site:
    """The process, and the folder that holds all that it may write to and much that it may not."""

    folder: Path
    daemon: Daemon

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def table(self, directory: str, file_name: str = f"00000-{uuid4()}.metadata.json") -> str:
        """Write a table's metadata file; its location."""
        metadata = self.warehouse / directory / "metadata"
        metadata.mkdir(parents=True)
        content = {
            "format-version": 2,
            "table-uuid": str(uuid4()),
            "location": str(metadata.parent),
            "last-updated-ms": 1_700_000_000_000,
        }
        file = metadata / file_name
        file.write_text(json.dumps(content))
        return str(file)

    async def tell(self, **event: object) -> httpx.Response:
        body = json.dumps(event).encode()
        now: datetime = SystemClock().now()
        headers = fields(body, WEBHOOK, message=f"msg_{uuid4()}", now=now)
        return await self.daemon.client.post("/v1/events", content=body, headers=headers)

    def files(self) -> Iterator[Path]:
        """All files but those of the inbox and of this test."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.parent != self.folder and "inbox" not in path.parts:
                yield path.relative_to(self.folder)


@pytest.fixture(name="site")
async def fixture_site(tmp_path: Path) -> AsyncGenerator[Site]:
    for name in ("warehouse", "outside", "warehousex"):
        (tmp_path / name).mkdir()
    configuration = tmp_path / "sfn.toml"
    configuration.write_text(TOLD.format(folder=tmp_path, scheme=STANDARD, secret=WEBHOOK))
    async with serving(configuration) as daemon:
        # Of no sender's: what is asked here is signed.
        daemon.client.headers.pop("Authorization")
        yield Site(tmp_path, daemon)


async def test_whatever_a_table_is_called_its_file_lies_beside_its_metadata_under_a_harmless_name(site: Site) -> None:
    for number, name in enumerate(NAMES):
        location = site.table(f"t{number}")
        reply = await site.tell(namespace=["..", name], name=name, metadata_location=location)
        assert reply.status_code == 202, (name, reply.text)
    for number, name in enumerate(NAMES):
        written = site.warehouse / f"t{number}" / "metadata" / "_sfn"
        await site.daemon.until_logged(
            "settled", table=str(TableIdentifier("hive", ("..", name), name)), outcome="done"
        )
        assert len([*written.iterdir()]) == 1, name
    for path in site.files():
        assert path.parts[0] == "warehouse"
        assert path.parts[2] == "metadata"
        assert path.name.isascii()
        assert not {"/", "\\", "\0", " ", "*", "?", "$", ";", "|", "`", "'", '"'} & set(path.name)
        assert (len(path.parts), path.parts[3]) == (5, "_sfn") or path.name.startswith(("00000-", "version-hint"))
    assert site.daemon.process.poll() is None


async def test_a_name_with_what_turns_what_is_read_around_is_422(site: Site) -> None:
    location = site.table("t")
    for name in REFUSED:
        for event in ({"namespace": [name], "name": "x"}, {"namespace": ["x"], "name": name}):
            assert (await site.tell(**event, metadata_location=location)).status_code == 422, name
    body = b'{"namespace":["x"],"name":"\\ud800"}'
    headers = fields(body, message="surrogate", now=SystemClock().now())
    reply = await site.daemon.client.post("/v1/events", content=body, headers=headers)
    assert reply.status_code in {400, 422}
    assert [path.name for path in site.files()] == [Path(location).name]


async def test_a_location_outside_is_never_followed_and_nothing_is_written_there(site: Site) -> None:
    for place in ("outside", "warehouse/t", "warehousex/t"):
        site.table(f"../{place}", "1.metadata.json")
    before = sorted(site.files())
    for number, location in enumerate(OUTSIDE):
        told = location.format(lake=site.warehouse)
        reply = await site.tell(namespace=["sales"], name=f"t{number}", metadata_location=told)
        assert reply.status_code in {202, 422}, (location, reply.text)
        if reply.status_code == 202:
            record = await site.daemon.until_logged("settled", table=f"hive:sales.t{number}")
            assert (record["outcome"], record["reason"]) == ("dead", "location-refused"), location
    assert sorted(site.files()) == before
