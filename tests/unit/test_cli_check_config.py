"""`sfn check` of stores, senders, gateways, the facade and the machine."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trustme
from typing_extensions import override

from sfn import limits
from sfn.catalogs.memory import MemoryCatalog
from sfn.cli.check_config import (
    CheckFinding,
    Severity,
    advertised_findings,
    certificate_finding,
    container_findings,
    error_finding,
    file_limit_findings,
    gateway_findings,
    inbox_finding,
    listener_findings,
    root_finding,
    secret_findings,
    store_finding,
)
from sfn.cli.run_checks import facade_findings, run_checks
from sfn.clock import SystemClock
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.extras import install_command
from sfn.inbox.postgres_server import PreflightResult
from sfn.inbox.sqlite import SqliteInbox
from sfn.settings.root import ALL_ROLES, Settings
from sfn.storage import Deleted, Guarantees, PreconditionFailed, PrefixRouter
from sfn.storage.local import LocalStore
from sfn.storage.memory import MemoryStore
from tests.promises.inboxes import TERMS
from tests.support.settings_file import CATALOG, Ground
from tests.unit.webhooks import SECRET

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR
PREFIX = "file:///warehouse"
TABLE = f"{PREFIX}/sales/orders"


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def severities(found: list[CheckFinding]) -> list[tuple[str, Severity]]:
    return [(one.where, one.severity) for one in found]


def test_parties_whose_tokens_are_their_own_are_fine(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("the-first-of-two-tokens\n# and\nthe-second-of-two-tokens\n")
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{tmp_path}/tokens'\n"
        "secrets = { m = 'sixteen-of-these' }\n[admin]\ntoken = 'sixteen-of-those'\n"
    )
    assert severities(list(secret_findings(settings))) == [("tokens", OK), ("senders.etl", OK)]


def test_tokens_that_are_soon_guessed_are_warned_of_by_their_settings(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("the-first-of-two-tokens\n# and\nfifteen-of-them\n")
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{tmp_path}/tokens'\nsecrets = {{ m = 'sender' }}\n"
        f"[admin]\ntoken = 'operator'\n[telemetry]\nmetrics_token = 'scraper'\n"
    )
    *fine, _, _, _, _ = found = list(secret_findings(settings))
    warned = found[len(fine) :]
    assert {one.severity for one in fine} == {OK}
    text = "a token of fewer than 16 characters is easy to guess"
    assert [(one.severity, one.where, one.text) for one in warned] == [
        (WARNING, "senders.etl.secrets.m", text),
        (WARNING, "admin.token", text),
        (WARNING, "telemetry.metrics_token", text),
        (WARNING, "senders.etl.secrets_file", f"{tmp_path}/tokens, line 3: {text}"),
    ]


def test_parties_without_tokens_are_warned_of(ground: Ground) -> None:
    found = severities(list(secret_findings(ground.load(CATALOG))))
    assert found == [("tokens", OK), ("senders", WARNING), ("admin", WARNING)]


def test_a_token_that_two_parties_have_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("the-same-token-of-both\n")
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{tmp_path}/tokens'\n[admin]\ntoken_file = '{tmp_path}/tokens'\n"
    )
    assert severities(list(secret_findings(settings))) == [("tokens", ERROR), ("senders.etl", OK)]


def test_files_of_tokens_that_cannot_be_read_are_errors(ground: Ground, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{absent}'\n[admin]\ntoken_file = '{absent}'\n"
        f"[telemetry]\nmetrics_token_file = '{absent}'\n"
    )
    found = list(secret_findings(settings))
    assert severities(found) == [
        ("senders.etl.secrets_file", ERROR),
        ("admin.token_file", ERROR),
        ("telemetry.metrics_token_file", ERROR),
    ]
    assert all(str(absent) in one.text for one in found)
    remedy = "write the tokens there, one per line, readable for the service's user; or correct the path"
    assert {one.remedy for one in found} == {remedy}


async def test_files_that_catalogs_are_shown_must_be_there(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    here, absent = "uri = 'http://127.0.0.1:9'", tmp_path / "absent"
    settings = ground.load(
        f"[catalogs.a]\n{here}\ntoken_file = '{absent}'\nca_file = '{absent}'\n"
        f"[catalogs.b]\n{here}\ncredential_file = '{absent}'\n"
        f"[catalogs.'a.c']\n{here}\ntoken_file = '{tmp_path}/token'\n"
    )
    found = [one for one in secret_findings(settings) if one.severity is ERROR]
    assert [one.where for one in found] == ["catalogs.a.token_file", "catalogs.a.ca_file", "catalogs.b.credential_file"]
    assert "tokens" not in [one.where for one in secret_findings(settings)]
    assert found[0].text == f"{absent}: expected a readable file, found No such file or directory"
    assert found[0].remedy == "put the file there, readable for the service's user; or correct the path"
    asked = [one.where async for one in run_checks(settings, thorough=False)]
    assert [where for where in asked if where in {"catalogs.a", "catalogs.b", "catalogs.a.c"}] == ["catalogs.a.c"]


class Odd(MemoryStore):
    """A store that can be told to be otherwise.

    Attributes:
        refusal: raised by every write.
        unproven: raised by every proof.
        guarantees: what a proof says, where it is not tried.
    """

    def __init__(self, *, conditional_delete: bool = True) -> None:
        super().__init__(conditional_delete=conditional_delete)
        self.refusal: Exception | None = None
        self.unproven: Exception | None = None
        self.guarantees: Guarantees | None = None
        self.tried: list[str] = []

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self.tried.append(key)
        if self.refusal is not None:
            raise self.refusal
        return await super().write(key, body, replacing)

    @override
    async def probe(self, key: str) -> Guarantees:
        if self.unproven is not None:
            raise self.unproven
        return self.guarantees or await super().probe(key)


class Stuck(Odd):
    """A store whose files others change at once."""

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        return PreconditionFailed()


async def test_a_store_is_tried_where_the_service_writes() -> None:
    tried = Odd()
    tried.files[f"{TABLE}/metadata/1.metadata.json"] = b"{}"
    found = await store_finding("lake", PREFIX, tried, ["file:///elsewhere/t", f"{PREFIX}/unwritten", TABLE])
    assert (found.where, found.severity) == ("stores.lake", OK)
    assert all(key.startswith(f"{TABLE}/metadata/sfn-check-") for key in tried.tried)
    assert list(tried.files) == [f"{TABLE}/metadata/1.metadata.json"]


async def test_a_store_without_tables_is_tried_at_its_prefix(tmp_path: Path) -> None:
    found = await store_finding("lake", f"file://{tmp_path}", LocalStore(f"file://{tmp_path}"), [])
    assert found.severity is OK
    assert listed(tmp_path) == []


async def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    prefix = f"file://{tmp_path}/absent"
    found = await store_finding("lake", prefix, LocalStore(prefix), [])
    assert found.severity is ERROR
    assert "mount its file system" in found.remedy
    assert listed(tmp_path) == []


async def test_a_store_that_deletes_without_condition_is_warned_of() -> None:
    tried = Odd(conditional_delete=False)
    assert (await store_finding("lake", PREFIX, tried, [])).severity is WARNING
    assert tried.files == {}


async def test_a_store_that_ignores_conditions_as_it_may_is_warned_of() -> None:
    tried = Odd()
    tried.guarantees = Guarantees(swap=False, conditional_delete=False)
    found = await store_finding("lake", PREFIX, tried, [])
    assert (found.severity, "unsafe_unconditional_writes" in found.text) == (WARNING, True)


@pytest.mark.parametrize("scope", [ErrorScope.TABLE, ErrorScope.STORE])
async def test_a_proof_that_fails_leaves_no_probe(scope: ErrorScope) -> None:
    tried = Odd()
    tried.unproven = Permanent("lake", scope=scope, expected="a refused write", found="another")
    tried.files[f"{TABLE}/metadata/1.metadata.json"] = b"{}"
    assert (await store_finding("lake", PREFIX, tried, [TABLE])).severity is ERROR
    assert list(tried.files) == [f"{TABLE}/metadata/1.metadata.json"]


@pytest.mark.parametrize(
    ("refusal", "places", "severity"),
    [
        (Permanent("p", scope=ErrorScope.TABLE, expected="permission", found="EACCES"), [], WARNING),
        (Permanent("p", scope=ErrorScope.TABLE, expected="permission", found="EACCES"), [TABLE], ERROR),
        (Permanent("p", scope=ErrorScope.STORE, expected="a writable one", found="EROFS"), [], ERROR),
        (Transient("p", scope=ErrorScope.STORE, expected="room", found="ENOSPC"), [], ERROR),
    ],
)
async def test_what_may_not_be_written_is_an_error_where_tables_are(
    refusal: Exception, places: list[str], severity: Severity
) -> None:
    tried = Odd()
    tried.refusal = refusal
    assert (await store_finding("lake", PREFIX, tried, places)).severity is severity


async def test_a_probe_that_somebody_changes_is_told_of() -> None:
    found = await store_finding("lake", PREFIX, Stuck(), [])
    assert (found.severity, found.remedy) == (ERROR, "delete it")


async def test_all_of_it_is_looked_at(ground: Ground, tmp_path: Path) -> None:
    closed = "[catalogs.prod]\nuri = 'http://127.0.0.1:1'\n"
    (tmp_path / "lake").mkdir()
    settings = ground.load(
        f"{closed}[listener]\nport = 0\n[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n"
        f"[stores.lake]\nprefix = '{tmp_path}/lake'\n"
    )
    found = [one async for one in _all(settings)]
    assert severities(found) == [
        ("tokens", OK),
        ("senders", WARNING),
        ("admin", WARNING),
        ("inbox", OK),
        ("listener", OK),
        ("catalogs.prod", ERROR),
        ("stores.lake", OK),
    ]


@pytest.mark.parametrize(
    ("where", "subject", "text"),
    [
        ("listener", "listener 127.0.0.1:80", "127.0.0.1:80: "),
        ("catalogs.prod", "catalog prod: GET http://prod/v1", "GET http://prod/v1: "),
        ("catalogs.prod: a.b", "catalog prod: load a.b", "load a.b: "),
        ("catalogs.prod", "catalog production: load a.b", "catalog production: load a.b: "),
        ("stores.lake", "stores.lake", ""),
        ("inbox", "/var/inbox.db", "/var/inbox.db: "),
    ],
)
def test_what_a_finding_is_about_is_said_once(where: str, subject: str, text: str) -> None:
    assert error_finding(where, SfnError(subject, expected="it", found="none")).text == f"{text}expected it, found none"


async def test_a_configuration_without_a_store_can_publish_nothing(ground: Ground, tmp_path: Path) -> None:
    closed = "[catalogs.prod]\nuri = 'http://127.0.0.1:1'\n"
    settings = ground.load(f"{closed}[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n[listener]\nport = 0\n")
    (found,) = [one async for one in _all(settings) if one.where == "stores"]
    assert found == CheckFinding(
        "stores", ERROR, "expected at least one, found none", 'set one: [stores.NAME] prefix = "/…"'
    )


async def _all(settings: Settings) -> AsyncIterator[CheckFinding]:
    async for one in run_checks(settings, thorough=False):
        yield one


async def rooted(folder: Path) -> CheckFinding:
    prefix = f"file://{folder}"
    return await root_finding("prod", f"{prefix}/root", PrefixRouter({prefix: LocalStore(prefix)}))


async def test_a_root_is_there_and_written_into(tmp_path: Path) -> None:
    found = await rooted(tmp_path)
    assert (found.where, found.severity) == ("catalogs.prod.root", ERROR)
    assert found.text == f"file://{tmp_path}/root: expected a folder, found none"
    assert listed(tmp_path) == []
    (tmp_path / "root").mkdir()
    done = "written, swapped and deleted with conditional requests"
    assert await rooted(tmp_path) == CheckFinding(
        "catalogs.prod.root", OK, f"file://{tmp_path}/root: {done}, as the user {os.geteuid()}"
    )
    assert listed(tmp_path / "root") == []


async def test_a_root_that_no_store_holds_is_an_error() -> None:
    found = await root_finding("prod", "file:///elsewhere", PrefixRouter({}))
    assert (found.where, found.severity) == ("catalogs.prod.root", ERROR)


async def test_a_root_and_how_often_files_are_written_are_looked_at(ground: Ground, tmp_path: Path) -> None:
    closed = "[catalogs.prod]\nuri = 'http://127.0.0.1:1'\nrefresh_after = '1d'\nplacement = 'root'\n"
    settings = ground.load(
        f"{closed}root = '{tmp_path}/absent'\n[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n[listener]\nport = 0\n"
        f"[stores.lake]\nprefix = '{tmp_path}'\n"
    )
    found = [one async for one in _all(settings) if one.where.startswith("catalogs.prod.")]
    assert severities(found) == [("catalogs.prod.root", ERROR), ("catalogs.prod.refresh_after", WARNING)]


STORE = '[stores.lake]\nprefix = "/warehouse"\n'
ELSEWHERE = '[listener]\nhost = "0.0.0.0"\n[senders.ci]\nsecrets = { first = "another-long-text" }\n'
SHUT = '[facade]\ntoken = "a-long-random-text"\n'


def found(ground: Ground, text: str) -> list[tuple[Severity, str]]:
    return [(one.severity, one.text) for one in facade_findings(ground.load(CATALOG + STORE + text))]


def test_nothing_is_said_of_none(ground: Ground) -> None:
    assert found(ground, "") == []


def test_it_is_told_what_it_shows(ground: Ground) -> None:
    assert found(ground, SHUT) == [(Severity.OK, "at /iceberg of the listener: tables below file:///warehouse")]
    narrow = f'{SHUT}roots = ["/warehouse/sales"]\n'
    assert found(ground, narrow)[0][1].endswith("tables below file:///warehouse/sales")


@pytest.mark.parametrize(
    ("text", "said"), [(SHUT, "travel in clear text"), ("[facade]\nopen = true\n", "anyone who can reach 0.0.0.0")]
)
def test_who_else_could_read_is_told(ground: Ground, text: str, said: str) -> None:
    _, (severity, warning) = found(ground, ELSEWHERE + text)
    assert severity is Severity.WARNING
    assert said in warning


OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR
GATEWAY = '[gateway.prod]\nupstream = "https://catalog.example/api"\n'
AWAY = Transient("catalog prod", scope=ErrorScope.CATALOG, expected="an answer", found="none")


class Telling(MemoryCatalog):
    """A catalog that tells its clients something."""

    def __init__(self, told: Mapping[str, str] | Transient, coding: str = "") -> None:
        super().__init__("prod")
        self._advertised, self._coding = told, coding

    async def identity(self) -> str:
        return "an-id"

    async def close(self) -> None:
        pass

    async def advertised_config(self) -> Mapping[str, str]:
        if isinstance(self._advertised, Transient):
            raise self._advertised
        return self._advertised

    async def advertised_encoding(self) -> str:
        return self._coding


async def gateway_found(
    settings: Settings, told: Mapping[str, str] | Transient, catalog: str = "prod", coding: str = ""
) -> list[CheckFinding]:
    return [finding async for finding in advertised_findings(catalog, Telling(told, coding), settings)]


def test_a_gateway_below_the_listener_has_its_address(ground: Ground) -> None:
    (one,) = gateway_findings(ground.load(CATALOG + GATEWAY), is_running=False)
    assert (one.where, one.severity, one.text) == ("gateway.prod", OK, "at /catalog/prod of the listener")


def test_a_gateway_with_a_listener_of_its_own_needs_a_free_address(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ground.load(f'{CATALOG}{GATEWAY}host = "127.0.0.1"\nport = {taken.getsockname()[1]}\n')
        (one,) = gateway_findings(settings, is_running=False)
        assert (one.where, one.severity) == ("gateway.prod", ERROR)
        assert one.remedy.startswith("set gateway.prod.host and gateway.prod.port, or stop")
        assert list(gateway_findings(settings, is_running=True)) == []
    (one,) = gateway_findings(settings, is_running=False)
    assert one.severity is OK


def test_credentials_in_clear_text_are_warned_of(ground: Ground) -> None:
    (one,) = gateway_findings(ground.load(f'{CATALOG}{GATEWAY}host = "0.0.0.0"\n'), is_running=True)
    assert (one.severity, one.where) == (WARNING, "gateway.prod")
    assert "clients' credentials travel in clear text" in one.text


@pytest.mark.parametrize("told", [{}, {"uri": "https://catalog.example:443/api/"}])
async def test_a_catalog_that_leads_to_itself_is_fine(ground: Ground, told: Mapping[str, str]) -> None:
    (one,) = await gateway_found(ground.load(CATALOG + GATEWAY), told)
    assert (one.where, one.severity, one.text) == ("gateway.prod", OK, "clients of prod stay with the gateway")


async def test_a_catalog_that_leads_past_it_is_warned_of(ground: Ground) -> None:
    (one,) = await gateway_found(
        ground.load(CATALOG + GATEWAY), {"uri": "https://me:s3cret@elsewhere.example:8443/x?t=s3cret"}
    )
    assert one.severity is WARNING
    assert one.text.startswith("prod sends its clients to https://elsewhere.example:8443/x, past the gateway, unless ")
    assert "gateway.prod.upstream" in one.remedy


@pytest.mark.parametrize("coding", ["br", "gzip, zstd"])
async def test_a_catalog_that_names_itself_in_what_can_not_be_read_is_warned_of(ground: Ground, coding: str) -> None:
    (one,) = await gateway_found(ground.load(CATALOG + GATEWAY), {"uri": "https://catalog.example/api"}, coding=coding)
    assert one.severity is WARNING
    assert one.text.endswith(f"encoded with {coding}, which the gateway cannot read: clients bypass the gateway")
    (one,) = await gateway_found(ground.load(CATALOG + GATEWAY), {}, coding=coding)
    assert one.severity is OK


async def test_one_that_compresses_what_can_be_read_is_fine(ground: Ground) -> None:
    (one,) = await gateway_found(
        ground.load(CATALOG + GATEWAY), {"uri": "https://catalog.example/api"}, coding="GZIP, deflate"
    )
    assert one.severity is OK


async def test_signers_are_listed(ground: Ground) -> None:
    signing, _ = await gateway_found(
        ground.load(CATALOG + GATEWAY), {"s3.signer.uri": "https://signer.example/v1", "prefix": "p"}
    )
    assert (signing.severity, signing.text) == (
        OK,
        "s3.signer.uri is https://signer.example/v1: clients have storage requests signed there, not by the gateway",
    )


async def test_a_catalog_that_does_not_answer_is_an_error(ground: Ground) -> None:
    (one,) = await gateway_found(ground.load(CATALOG + GATEWAY), AWAY)
    assert (one.where, one.severity) == ("gateway.prod", ERROR)


async def test_nothing_is_asked_of_a_catalog_without_a_gateway(ground: Ground) -> None:
    settings = ground.load(f'{CATALOG}[catalogs.dev]\nuri = "https://dev.example"\n{GATEWAY}')
    assert await gateway_found(settings, AWAY, "dev") == []


MAPPED = '[gateway.g]\nupstream = "https://catalog.example/api"\ncatalogs = { %s }\n'


@pytest.mark.parametrize(
    ("keys", "prefix", "found_prefix", "remedy"),
    [
        ('analytics = "prod"', "5f0c2a9e", 'the prefix "5f0c2a9e"', 'catalogs = { "5f0c2a9e" = "prod" }'),
        ('main = "prod"', "main%7Clake", 'the prefix "main|lake"', 'catalogs = { "main|lake" = "prod" }'),
        ('main = "dev", b = "prod"', "main", 'the prefix "main"', 'catalogs = { "main" = "prod" }'),
        ('main = "prod"', "", "no prefix", 'set gateway.g.catalog = "prod" in place of catalogs'),
    ],
)
async def test_a_prefix_that_maps_to_no_catalog_or_another_is_named(
    ground: Ground, keys: str, prefix: str, found_prefix: str, remedy: str
) -> None:
    dev = '[catalogs.dev]\nuri = "https://dev.example"\n' if "dev" in keys else ""
    settings = ground.load(CATALOG + dev + MAPPED % keys)
    (one,) = await gateway_found(settings, {"prefix": prefix} if prefix else {})
    assert (one.where, one.severity) == ("gateway.g", WARNING)
    assert one.text.startswith(f"prod gives {found_prefix}, but gateway.g.catalogs has ")
    assert remedy in one.remedy


@pytest.mark.parametrize(
    ("keys", "prefix"),
    [('"main|lake" = "prod"', "main%7Clake"), ('"main|lake" = "prod"', "main|lake"), ('"a/b" = "prod"', "a/b/")],
)
async def test_a_prefix_that_maps_to_its_catalog_is_fine(ground: Ground, keys: str, prefix: str) -> None:
    (one,) = await gateway_found(ground.load(CATALOG + MAPPED % keys), {"prefix": prefix})
    assert one.severity is OK


TEXT = """
[catalogs.prod]
uri = "http://127.0.0.1:1"
refresh_after = "1d"
[catalogs.outside]
type = "events"
catalog_id = "x"
allowed_locations = ["s3://lake"]
[senders.etl]
secrets = { main = "sixteen-of-these" }
catalog = "outside"
[stores.a]
prefix = "s3://lake"
[stores.b]
prefix = "gs://lake"
[stores.c]
prefix = "abfss://c@a.dfs.core.windows.net"
[listener]
port = 0
"""


async def test_each_store_without_its_package_is_named_and_what_is_not_looked_at_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s3", "gcs"):
        monkeypatch.delitem(sys.modules, f"sfn.app.storage_{name}", raising=False)
        monkeypatch.setitem(sys.modules, f"sfn.storage.{name}", None)
    settings = Ground(tmp_path).load(f"{TEXT}[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n")
    found = [one async for one in run_checks(settings, thorough=False)]
    assert [(one.where, one.severity) for one in found[-5:]] == [
        ("stores.a.prefix", ERROR),
        ("stores.b.prefix", ERROR),
        ("catalogs.prod", WARNING),
        ("stores.c", WARNING),
        ("catalogs.prod.refresh_after", WARNING),
    ]
    assert [one.remedy for one in found[-5:-3]] == [install_command("s3"), install_command("gcs")]
    assert {(one.text, one.remedy) for one in found[-3:-1]} == {
        ("not checked: not all stores can be opened", "fix stores.a, stores.b first, and check again")
    }


OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


def with_inbox(ground: Ground, path: Path) -> Settings:
    return ground.load(f"{CATALOG}[inbox]\nurl = 'sqlite:///{path}'\n")


async def test_an_inbox_is_tried_beside_the_one_that_will_be(ground: Ground, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "inbox.db"
    holder, found = await inbox_finding(with_inbox(ground, path))
    assert (holder, found.severity) == (None, OK)
    assert f"{path} will be created" in found.text
    assert listed(tmp_path) == ["sfn.toml"]


async def test_an_inbox_that_a_service_has_proves_itself(ground: Ground, tmp_path: Path) -> None:
    settings = with_inbox(ground, tmp_path / "inbox.db")
    async with SqliteInbox.opened(tmp_path / "inbox.db", TERMS, SystemClock()):
        holder, found = await inbox_finding(settings)
    assert (holder, found.severity) == (str(os.getpid()), OK)
    assert f"in use by process {os.getpid()}" in found.text
    holder, found = await inbox_finding(settings)
    assert holder is None
    assert "exists" in found.text


async def test_a_folder_that_cannot_hold_an_inbox_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", Path("/proc/nobody-may-make-this")):
        _, found = await inbox_finding(with_inbox(ground, folder / "inbox.db"))
        assert found.severity is ERROR
        assert "inbox.url" in found.remedy


async def test_a_lock_that_cannot_be_asked_for_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "inbox.db.lock").symlink_to(tmp_path / "inbox.db.lock")
    _, found = await inbox_finding(with_inbox(ground, tmp_path / "inbox.db"))
    assert (found.severity, "ELOOP" in found.text) == (ERROR, True)


@pytest.mark.parametrize(
    ("url", "severity"),
    [
        ("postgresql://sfn@db:5432/sfn", WARNING),
        ("postgresql://sfn@127.0.0.1:5432,db/sfn?sslmode=prefer", WARNING),
        ("postgresql://sfn@localhost:5432,[::1]/sfn", OK),
        ("postgresql://sfn@db/sfn?sslmode=require", OK),
    ],
)
async def test_a_database_that_may_be_reached_in_clear_text_is_warned_of(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, url: str, severity: Severity
) -> None:
    async def suitable(_: Settings) -> PreflightResult:
        return PreflightResult(url, "17.1", 0, is_pooled=False, is_durable=True, ahead=timedelta(), others=0)

    monkeypatch.setattr("sfn.app.wiring.check_database", suitable)
    _, found = await inbox_finding(ground.load(f"{CATALOG}[inbox]\nurl = '{url}'\n"))
    assert (found.severity, "sslmode=verify-full" in found.remedy) == (severity, severity is WARNING)
    assert ("connection to db may be" in found.text) == (severity is WARNING)


def test_a_free_address_is_fine_and_a_taken_one_is_not(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = ground.load(f"{CATALOG}[listener]\nport = {port}\n")
        (found,) = listener_findings(settings, is_running=False)
        assert (found.where, found.severity) == ("listener", ERROR)
        assert found.text.startswith(f"127.0.0.1:{port}: expected a free address")
        assert list(listener_findings(settings, is_running=True)) == []
    assert severities(list(listener_findings(settings, is_running=False))) == [("listener", OK)]


def test_an_address_that_others_reach_is_warned_of(ground: Ground) -> None:
    settings = ground.load(
        f"{CATALOG}[listener]\nhost = '0.0.0.0'\nport = 0\n[senders.etl]\nsecrets = {{ main = 'x' }}\n"
    )
    assert severities(list(listener_findings(settings, is_running=False))) == [("listener", OK), ("listener", WARNING)]


@pytest.fixture(name="authority", scope="module")
def fixture_authority() -> trustme.CA:
    return trustme.CA()


class Pair:
    """A certificate and its key in files."""

    def __init__(self, folder: Path, authority: trustme.CA, not_after: datetime | None = None) -> None:
        self.chain, self.key = folder / "chain.pem", folder / "key.pem"
        issued = authority.issue_cert("sfn.example", not_after=not_after)
        self.chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())

    def found(self, now: datetime) -> CheckFinding:
        return certificate_finding(self.chain, self.key, now)


def test_a_certificate_that_is_valid_for_long_is_fine(tmp_path: Path, authority: trustme.CA) -> None:
    now = SystemClock().now()
    until = now + timedelta(days=60, minutes=1)
    found = Pair(tmp_path, authority, until).found(now)
    assert (found.severity, "valid for 60 d, and the key fits" in found.text) == (OK, True)


def test_a_certificate_that_should_have_been_renewed_is_warned_of(tmp_path: Path, authority: trustme.CA) -> None:
    now = SystemClock().now()
    found = Pair(tmp_path, authority, now + timedelta(days=5, minutes=1)).found(now)
    assert (found.severity, "valid for only 5 d" in found.text) == (WARNING, True)


def test_a_certificate_that_has_expired_is_an_error(tmp_path: Path, authority: trustme.CA) -> None:
    now = SystemClock().now()
    found = Pair(tmp_path, authority, now - timedelta(days=1)).found(now)
    assert (found.severity, "expired" in found.text) == (ERROR, True)


def test_a_key_of_another_certificate_is_an_error(ground: Ground, tmp_path: Path, authority: trustme.CA) -> None:
    pair = Pair(tmp_path, authority)
    pair.key.write_bytes(authority.issue_cert("other.example").private_key_pem.bytes())
    tls = f"tls_certificate_file = '{pair.chain}'\ntls_key_file = '{pair.key}'\n"
    settings = ground.load(
        f"{CATALOG}[listener]\nhost = '0.0.0.0'\nport = 0\n{tls}[senders.etl]\nsecrets = {{ main = 'x' }}\n"
    )
    found = severities(list(listener_findings(settings, is_running=False)))
    assert found == [("listener", OK), ("listener.tls_certificate_file", ERROR)]


async def test_an_inbox_in_memory_is_a_warning(ground: Ground) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        _, found = await inbox_finding(with_inbox(ground, Path(folder) / "inbox.db"))
    assert found.severity is WARNING
    assert "empty after a restart" in found.text


@pytest.mark.parametrize(
    ("host", "container", "expected"),
    [
        ("127.0.0.1", "/.dockerenv", [("listener.host", WARNING)]),
        ("0.0.0.0", "/.dockerenv", []),  # noqa: S104 - what is asked for
        ("127.0.0.1", None, []),
    ],
)
def test_loopback_in_a_container_is_a_warning(
    ground: Ground, host: str, container: str | None, expected: list[tuple[str, Severity]]
) -> None:
    settings = ground.load(
        f"{CATALOG}[listener]\nhost = '{host}'\n[senders.a]\nsecrets = {{ m = 'sixteen-of-these' }}\n"
    )
    found = list(container_findings(settings, ALL_ROLES, container))
    assert severities(found) == expected
    assert all("/.dockerenv" in one.text and "0.0.0.0" in one.remedy for one in found)  # noqa: S104 - as above


def test_few_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(file_limit_findings()) == []
    monkeypatch.setattr(limits, "MAX_RAISED_LIMIT", 1000)
    assert severities(list(file_limit_findings())) == [("open files", WARNING)]


SENDERS = "a text of sixteen"
REST = f"{CATALOG}[admin]\ntoken = 'sixteen-of-those'\n"


def said(ground: Ground, text: str) -> list[CheckFinding]:
    return [one for one in secret_findings(ground.load(REST + text)) if one.where != "tokens"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("secrets = { m = 'sixteen-of-these' }", "bearer, 1 token"),
        ("secrets_file = '{folder}/tokens'\nsecrets = { m = 'sixteen-of-these' }", "bearer, 3 tokens"),
        (f"scheme = 'standard-webhooks'\nsecrets = {{ m = '{SECRET}' }}", "standard-webhooks, 1 secret"),
        (
            "scheme = 'hmac-sha256'\nsecrets_file = '{folder}/secrets'\nrate_limit = 60",
            "hmac-sha256 in X-Hub-Signature-256, 2 secrets, at most 60 requests a minute",
        ),
        (
            f"scheme = 'hmac-sha256'\nsignature_header = 'X-Polaris-Signature-256'\nsecrets = {{ m = '{SENDERS}' }}",
            "hmac-sha256 in X-Polaris-Signature-256, 1 secret",
        ),
    ],
)
def test_each_sender_is_named_with_its_scheme_and_how_many_secrets_it_has(
    ground: Ground, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "tokens").write_text("the-first-of-two-tokens\n# and\nthe-second-of-two-tokens\n")
    (tmp_path / "secrets").write_text("the first of two\nthe second of two\n")
    (found,) = said(ground, f"[senders.etl]\n{text.replace('{folder}', str(tmp_path))}")
    assert found == CheckFinding("senders.etl", Severity.OK, expected)


def test_a_sender_that_shows_nothing_is_warned_of(ground: Ground) -> None:
    (found,) = said(ground, "[senders.local]\nscheme = 'none'")
    assert (found.where, found.severity) == ("senders.local", Severity.WARNING)
    assert found.text == "none: any request without a token counts as this sender's"
    assert "set senders.local.scheme" in found.remedy


@pytest.mark.parametrize(
    ("scheme", "secret", "why", "remedy"),
    [
        (
            "bearer",
            "abababababababab",
            "a token of fewer than 5 different characters",
            "the output of `openssl rand -hex 32`",
        ),
        ("bearer", "abc", "a token of fewer than 16 characters", "the output of `openssl rand -hex 32`"),
        (
            "hmac-sha256",
            "1111111111111111",
            "a secret of fewer than 5 different characters",
            "the output of `openssl rand -hex",
        ),
        (
            "standard-webhooks",
            f"whsec_{b64encode(bytes(25)).decode()}",
            "a secret of fewer than 5 different characters",
            "whsec_ before the output of `openssl rand -base64 32`",
        ),
    ],
)
@pytest.mark.parametrize("on_file", [False, True])
def test_a_secret_that_is_soon_guessed_is_warned_of(
    ground: Ground, tmp_path: Path, scheme: str, secret: str, why: str, remedy: str, on_file: bool
) -> None:
    (tmp_path / "tokens").write_text(f"#\n{secret}\n")
    origin = f"secrets_file = '{tmp_path}/tokens'" if on_file else f"secrets = {{ m = '{secret}' }}"
    _, found = said(ground, f"[senders.etl]\nscheme = '{scheme}'\n{origin}")
    place = f"{tmp_path}/tokens, line 2: " if on_file else ""
    assert found.severity is Severity.WARNING
    assert found.where == ("senders.etl.secrets_file" if on_file else "senders.etl.secrets.m")
    assert found.text == f"{place}{why} is easy to guess"
    assert remedy in found.remedy
    assert secret not in found.text + found.remedy


@pytest.mark.parametrize("content", [None, "", "too short", f"{SECRET[:-1]}"])
def test_a_file_of_secrets_that_cannot_be_used_is_an_error(ground: Ground, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "secrets").write_text(content)
    text = f"[senders.etl]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/secrets'"
    (found,) = said(ground, text)
    assert (found.where, found.severity) == ("senders.etl.secrets_file", Severity.ERROR)
    if content is None:
        assert found.remedy.startswith("write the secrets there, one per line")
    else:
        assert "a file of secrets, one per line: whsec_ and the base64 of 24 to 64 random bytes" in found.text
    assert SECRET[:-1] not in found.text


def test_a_secret_that_two_senders_have_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(SECRET)
    one = f"scheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/secrets'\n"
    settings = ground.load(f"{REST}[senders.a]\n{one}[senders.b]\n{one}")
    (found,) = [one for one in secret_findings(settings) if one.where == "tokens"]
    assert found.severity is Severity.ERROR
    assert SECRET not in found.text


TOLD = "[catalogs.hive]\ntype = 'events'\ncatalog_id = 'h'\nallowed_locations = ['/w']\n"
BOTH = "catalogs = { p = 'prod', h = 'hive' }"


def test_a_signature_that_may_come_again_of_what_is_believed_is_warned_of(ground: Ground) -> None:
    text = f"{TOLD}[senders.etl]\nscheme = 'hmac-sha256'\nsecrets = {{ m = '{SENDERS}' }}\n"
    _, found = said(ground, f"{text}{BOTH}")
    assert (found.where, found.severity) == ("senders.etl", Severity.WARNING)
    assert found.text == (
        "events of hive are published without a query, and a copy of a signed request can be sent again: "
        "only its event_id shows a duplicate, for 3 d"
    )
    assert "senders.etl.scheme = standard-webhooks" in found.remedy
    assert len(said(ground, f"{text}catalog = 'prod'")) == 1
    signed = f"{TOLD}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets = {{ m = '{SECRET}' }}\n{BOTH}"
    assert len(said(ground, signed)) == 1


def test_notifications_of_one_that_signs_are_none_where_it_is_believed(ground: Ground) -> None:
    text = f"{TOLD}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets = {{ m = '{SECRET}' }}\ndialect = 'polaris'\n"
    _, found = said(ground, f"{text}{BOTH}")
    assert (found.where, found.severity) == ("senders.etl", Severity.WARNING)
    assert found.text == (
        "all its notifications are rejected: no signature covers their path, "
        "and events of hive are published without a query"
    )
    assert len(said(ground, f"{text}catalog = 'prod'")) == 1
    plain = f"{TOLD}[senders.etl]\nsecrets = {{ m = 'sixteen-of-these' }}\ndialect = 'polaris'\n{BOTH}"
    assert len(said(ground, plain)) == 1
