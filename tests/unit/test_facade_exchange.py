"""How a facade deals with clients that send or take slowly."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from sfn.facade import app
from tests.unit.answering import forever, ground, scope
from tests.unit.faced import shown


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "w"
    shown(root / "sales" / "orders")
    return root


async def test_a_body_that_does_not_end_closes_the_connection(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ground(root)
    part = b"x" * 65_536
    for body, closes in (([part] * 5, False), ([part] * 50, True), ([], True)):
        answer = await place.ask("/v1/config", method="POST", body=body)
        assert (answer.status, answer.headers.get("connection") == "close") == (405, closes)
    monkeypatch.setattr(app, "_CLIENT_TIMEOUT", 0.01)
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await place.facade(scope("POST"), forever, send)
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_long_answer_is_sent_in_parts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ground(root)
    whole = (await place.table("orders")).content
    monkeypatch.setattr(app, "_PART", 100)
    answer = await place.table("orders")
    assert answer.content == whole
    assert answer.parts == -(-len(whole) // 100)


async def test_who_takes_nothing_is_not_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_CLIENT_TIMEOUT", 0.01)
    monkeypatch.setattr(app, "_PART", 1)
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 3:
            await anyio.sleep_forever()

    await ground(root).facade(scope("GET"), forever, send)
    # Not whole, so that the server ends the connection.
    assert [message.get("more_body") for message in sent] == [None, True, True]


async def test_who_takes_little_at_a_time_is_waited_for_as_long_as_the_whole_may_take(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len((await ground(root).table("orders")).content)
    monkeypatch.setattr(app, "_CLIENT_TIMEOUT", 0.0)
    monkeypatch.setattr(app, "_PART", 1)
    monkeypatch.setattr(app, "_MIN_RATE", 2 * whole)

    async def taken(pause: float) -> int:
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)
            if len(sent) % 10 == 0:
                await anyio.sleep(pause)

        await ground(root).facade(scope("GET"), forever, send)
        return len(sent) - 1

    assert await taken(0) == whole
    assert await taken(0.02) < whole
