"""What `sfn check` finds, part by part, and that its probes leave nothing behind."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trustme
from typing_extensions import override

from sfn.cli.checks import findings
from sfn.cli.checks.catalogs import is_local
from sfn.cli.checks.findings import Finding, Severity
from sfn.cli.checks.parties import parties
from sfn.cli.checks.place import inbox, listener
from sfn.cli.checks.stores import store
from sfn.cli.checks.tls import certificate
from sfn.clock import SystemClock
from sfn.errors import Permanent, Scope, Transient
from sfn.inbox.sqlite import SqliteInbox
from sfn.settings import Settings
from sfn.store import Gone, Guarantees, Moved
from sfn.store.local import LocalStore
from sfn.store.memory import MemoryStore
from sfn.words import Held
from tests.promises.inboxes import TERMS
from tests.unit.settings_ground import CATALOG, Ground

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR
PREFIX = "file:///warehouse"
TABLE = f"{PREFIX}/sales/orders"


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def with_inbox(ground: Ground, path: Path, more: str = "") -> Settings:
    return ground.load(f"{CATALOG}[inbox]\nurl = 'sqlite:///{path}'\n{more}")


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def severities(found: list[Finding]) -> list[tuple[str, Severity]]:
    return [(one.where, one.severity) for one in found]


def test_parties_whose_tokens_are_their_own_are_fine(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("one\ntwo\n")
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{tmp_path}/tokens'\nsecrets = {{ m = 'x' }}\n[admin]\ntoken = 'y'\n"
    )
    assert severities(list(parties(settings))) == [("tokens", OK)]


def test_parties_without_tokens_are_warned_of(ground: Ground) -> None:
    found = severities(list(parties(ground.load(CATALOG))))
    assert found == [("tokens", OK), ("senders", WARNING), ("admin", WARNING)]


def test_a_token_that_two_parties_have_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("same\n")
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{tmp_path}/tokens'\n[admin]\ntoken_file = '{tmp_path}/tokens'\n"
    )
    assert severities(list(parties(settings))) == [("tokens", ERROR)]


def test_files_of_tokens_that_cannot_be_read_are_errors(ground: Ground, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    settings = ground.load(
        f"{CATALOG}[senders.etl]\nsecrets_file = '{absent}'\n[admin]\ntoken_file = '{absent}'\n"
        f"[telemetry]\nmetrics_token_file = '{absent}'\n"
    )
    found = list(parties(settings))
    assert severities(found) == [
        ("senders.etl.secrets_file", ERROR),
        ("admin.token_file", ERROR),
        ("telemetry.metrics_token_file", ERROR),
    ]
    assert all(str(absent) in one.text for one in found)


async def test_an_inbox_is_tried_beside_the_one_that_will_be(ground: Ground, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "inbox.db"
    holder, found = await inbox(with_inbox(ground, path))
    assert (holder, found.severity) == (None, OK)
    assert f"{path} will be made" in found.text
    assert listed(tmp_path) == ["sfn.toml"]


async def test_an_inbox_that_a_service_has_proves_itself(ground: Ground, tmp_path: Path) -> None:
    settings = with_inbox(ground, tmp_path / "inbox.db")
    async with SqliteInbox.opened(settings.inbox.path, TERMS, SystemClock()):
        holder, found = await inbox(settings)
    assert (holder, found.severity) == (str(os.getpid()), OK)
    assert f"process {os.getpid()} has it" in found.text
    holder, found = await inbox(settings)
    assert holder is None
    assert "is there" in found.text


async def test_a_folder_that_cannot_hold_an_inbox_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", Path("/proc/nobody-may-make-this")):
        _, found = await inbox(with_inbox(ground, folder / "inbox.db"))
        assert found.severity is ERROR
        assert "inbox.url" in found.remedy


async def test_a_lock_that_cannot_be_asked_for_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "inbox.db.lock").symlink_to(tmp_path / "inbox.db.lock")
    _, found = await inbox(with_inbox(ground, tmp_path / "inbox.db"))
    assert (found.severity, "ELOOP" in found.text) == (ERROR, True)


def test_a_free_address_is_fine_and_a_taken_one_is_not(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = ground.load(f"{CATALOG}[listener]\nport = {port}\n")
        assert severities(list(listener(settings, None))) == [("listener", ERROR)]
        assert list(listener(settings, "a process")) == []
    assert severities(list(listener(settings, None))) == [("listener", OK)]


def test_an_address_that_others_reach_is_warned_of(ground: Ground) -> None:
    settings = ground.load(
        f"{CATALOG}[listener]\nhost = '0.0.0.0'\nport = 0\n[senders.etl]\nsecrets = {{ main = 'x' }}\n"
    )
    assert severities(list(listener(settings, None))) == [("listener", OK), ("listener", WARNING)]


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

    def found(self, now: datetime) -> Finding:
        return certificate(self.chain, self.key, now)


def test_a_certificate_that_is_valid_for_long_is_fine(tmp_path: Path, authority: trustme.CA) -> None:
    now = SystemClock().now()
    until = now + timedelta(days=60, minutes=1)
    found = Pair(tmp_path, authority, until).found(now)
    assert (found.severity, "valid for 60 d, and the key is its own" in found.text) == (OK, True)


def test_a_certificate_that_should_have_been_renewed_is_warned_of(tmp_path: Path, authority: trustme.CA) -> None:
    now = SystemClock().now()
    found = Pair(tmp_path, authority, now + timedelta(days=5, minutes=1)).found(now)
    assert (found.severity, "valid for 5 d only" in found.text) == (WARNING, True)


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
    found = severities(list(listener(settings, None)))
    assert found == [("listener", OK), ("listener.tls_certificate_file", ERROR)]


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("catalog", False), ("", False)],
)
def test_this_machine_is_known_by_its_names(host: str, local: bool) -> None:
    assert is_local(host) is local


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
    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
        self.tried.append(key)
        if self.refusal is not None:
            raise self.refusal
        return await super().write(key, body, replacing)

    @override
    async def prove(self, key: str) -> Guarantees:
        if self.unproven is not None:
            raise self.unproven
        return self.guarantees or await super().prove(key)


class Stuck(Odd):
    """A store whose files others change at once."""

    @override
    async def delete(self, key: str, expected: Held) -> Gone | Moved:
        return Moved()


async def test_a_store_is_tried_where_the_service_writes() -> None:
    tried = Odd()
    tried.files[f"{TABLE}/metadata/1.metadata.json"] = b"{}"
    found = await store("lake", PREFIX, tried, ["file:///elsewhere/t", f"{PREFIX}/unwritten", TABLE])
    assert (found.where, found.severity) == ("stores.lake", OK)
    assert all(key.startswith(f"{TABLE}/metadata/sfn-check-") for key in tried.tried)
    assert list(tried.files) == [f"{TABLE}/metadata/1.metadata.json"]


async def test_a_store_without_tables_is_tried_at_its_prefix(tmp_path: Path) -> None:
    found = await store("lake", f"file://{tmp_path}", LocalStore(f"file://{tmp_path}"), [])
    assert found.severity is OK
    assert listed(tmp_path) == []


async def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    prefix = f"file://{tmp_path}/absent"
    found = await store("lake", prefix, LocalStore(prefix), [])
    assert found.severity is ERROR
    assert "mount its file system" in found.remedy
    assert listed(tmp_path) == []


async def test_a_store_that_deletes_without_condition_is_warned_of() -> None:
    tried = Odd(conditional_delete=False)
    assert (await store("lake", PREFIX, tried, [])).severity is WARNING
    assert tried.files == {}


async def test_a_store_that_ignores_conditions_as_it_may_is_warned_of() -> None:
    tried = Odd()
    tried.guarantees = Guarantees(swap=False, conditional_delete=False)
    found = await store("lake", PREFIX, tried, [])
    assert (found.severity, "unsafe_unconditional_writes" in found.text) == (WARNING, True)


@pytest.mark.parametrize("scope", [Scope.TABLE, Scope.STORE])
async def test_a_proof_that_fails_leaves_no_probe(scope: Scope) -> None:
    tried = Odd()
    tried.unproven = Permanent("lake", scope=scope, expected="a refused write", found="another")
    tried.files[f"{TABLE}/metadata/1.metadata.json"] = b"{}"
    assert (await store("lake", PREFIX, tried, [TABLE])).severity is ERROR
    assert list(tried.files) == [f"{TABLE}/metadata/1.metadata.json"]


@pytest.mark.parametrize(
    ("refusal", "places", "severity"),
    [
        (Permanent("p", scope=Scope.TABLE, expected="permission", found="EACCES"), [], WARNING),
        (Permanent("p", scope=Scope.TABLE, expected="permission", found="EACCES"), [TABLE], ERROR),
        (Permanent("p", scope=Scope.STORE, expected="a writable one", found="EROFS"), [], ERROR),
        (Transient("p", scope=Scope.STORE, expected="room", found="ENOSPC"), [], ERROR),
    ],
)
async def test_what_may_not_be_written_is_an_error_where_tables_are(
    refusal: Exception, places: list[str], severity: Severity
) -> None:
    tried = Odd()
    tried.refusal = refusal
    assert (await store("lake", PREFIX, tried, places)).severity is severity


async def test_a_probe_that_somebody_changes_is_told_of() -> None:
    found = await store("lake", PREFIX, Stuck(), [])
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


async def _all(settings: Settings) -> AsyncIterator[Finding]:
    async for one in findings(settings, thorough=False):
        yield one
