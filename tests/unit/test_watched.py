"""Files that are watched: who watches them, and a file system that does not answer."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.concurrency import WatchedFiles
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import Keyring
from tests.integration.waiting import until
from tests.unit.certificates import replace


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(WatchedFiles, "interval", 0.01)
    monkeypatch.setattr(WatchedFiles, "timeout", 0.2)
    (tmp_path / "tokens").write_text("first\n")
    return tmp_path / "tokens"


@asynccontextmanager
async def watched(file: Path) -> AsyncGenerator[Keyring]:
    """A keyring whose one file somebody watches."""
    tokens = WatchedTokenFile(file)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.watch)
        yield Keyring({"etl": PartyTokens({}, tokens)})
        tasks.cancel_scope.cancel()


async def test_a_change_is_found_though_nobody_asks(file: Path) -> None:
    async with watched(file) as keyring:
        replace(file, b"second!\n")
        await until(lambda: keyring.owner_of(b"Bearer second!") is not None)
        assert keyring.owner_of(b"Bearer first") is None


async def test_a_file_system_that_hangs_holds_up_nobody_and_is_told_of(file: Path) -> None:
    pipe, beside = file.with_name("pipe"), file.with_name("beside")
    os.mkfifo(pipe)
    async with watched(file) as keyring:
        with capture_logs() as logs:
            # Nobody writes to the pipe: opening it to read does not return.
            beside.hardlink_to(pipe)
            beside.replace(file)
            await until(lambda: logs)
            assert keyring.owner_of(b"Bearer first") == ("etl", f"{file}:1")
            replace(file, b"second!\n")
            os.close(os.open(pipe, os.O_RDWR))
            await until(lambda: keyring.owner_of(b"Bearer second!") is not None)
    assert (logs[0]["event"], logs[0]["log_level"]) == ("tokens kept", "error")
    assert "no answer of the file system within 0.2 s" in logs[0]["error"]
