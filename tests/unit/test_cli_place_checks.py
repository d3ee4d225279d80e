"""What `sfn check` finds where the service would run: the inbox's folder, the address, the certificate."""

from __future__ import annotations

import os
import socket
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trustme

from sfn import limits
from sfn.cli.check_config import (
    CheckFinding,
    Severity,
    certificate_finding,
    file_limit_findings,
    inbox_finding,
    listener_findings,
)
from sfn.clock import SystemClock
from sfn.inbox.sqlite import SqliteInbox
from sfn.settings.model import Settings
from tests.promises.inboxes import TERMS
from tests.unit.settings_ground import CATALOG, Ground

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def with_inbox(ground: Ground, path: Path) -> Settings:
    return ground.load(f"{CATALOG}[inbox]\nurl = 'sqlite:///{path}'\n")


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def severities(found: list[CheckFinding]) -> list[tuple[str, Severity]]:
    return [(one.where, one.severity) for one in found]


async def test_an_inbox_is_tried_beside_the_one_that_will_be(ground: Ground, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "inbox.db"
    holder, found = await inbox_finding(with_inbox(ground, path))
    assert (holder, found.severity) == (None, OK)
    assert f"{path} will be made" in found.text
    assert listed(tmp_path) == ["sfn.toml"]


async def test_an_inbox_that_a_service_has_proves_itself(ground: Ground, tmp_path: Path) -> None:
    settings = with_inbox(ground, tmp_path / "inbox.db")
    async with SqliteInbox.opened(tmp_path / "inbox.db", TERMS, SystemClock()):
        holder, found = await inbox_finding(settings)
    assert (holder, found.severity) == (str(os.getpid()), OK)
    assert f"process {os.getpid()} has it" in found.text
    holder, found = await inbox_finding(settings)
    assert holder is None
    assert "is there" in found.text


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
    found = severities(list(listener_findings(settings, is_running=False)))
    assert found == [("listener", OK), ("listener.tls_certificate_file", ERROR)]


async def test_an_inbox_in_memory_is_a_warning(ground: Ground) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        _, found = await inbox_finding(with_inbox(ground, Path(folder) / "inbox.db"))
    assert found.severity is WARNING
    assert "empty after a restart" in found.text


def test_few_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(file_limit_findings()) == []
    monkeypatch.setattr(limits, "MAX_RAISED_LIMIT", 1000)
    assert severities(list(file_limit_findings())) == [("open files", WARNING)]
