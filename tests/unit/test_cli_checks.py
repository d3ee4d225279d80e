"""What `sfn check` finds, part by part, and that its probes leave nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typing_extensions import override

from sfn.cli.check_config import CheckFinding, Severity, error_finding, root_finding, secret_findings, store_finding
from sfn.cli.check_findings import run_checks
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.settings.model import Settings
from sfn.storage import Deleted, Guarantees, PreconditionFailed, PrefixRouter
from sfn.storage.local import LocalStore
from sfn.storage.memory import MemoryStore
from tests.unit.settings_ground import CATALOG, Ground

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR
PREFIX = "file:///warehouse"
TABLE = f"{PREFIX}/sales/orders"


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


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
    text = "a token of fewer than 16 characters is soon guessed"
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
    assert all(
        one.remedy == f"write the tokens there, one a line, for the service's user to read; or set {one.where}"
        for one in found
    )


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
    assert found[0].text == f"{absent}: expected a file that can be read, found No such file or directory"
    assert found[0].remedy == "put it there for the service's user to read, or set catalogs.a.token_file"
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
        "stores", ERROR, "expected one at least, found none", 'set one: [stores.NAME] prefix = "/…"'
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
    assert await rooted(tmp_path) == CheckFinding(
        "catalogs.prod.root", OK, f"file://{tmp_path}/root: written, swapped on a condition, deleted on a condition"
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
