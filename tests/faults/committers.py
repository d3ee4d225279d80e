"""Writers that commit to a real catalog through the gateway, and what the catalog says of their commits in the end."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anyio

from sfn.clock import SystemClock
from tests.faults.inspection import Pointed, pointed
from tests.faults.lake import NAMESPACE
from tests.faults.service import CATALOG, Service, eventually

WRITERS = 8
ON_ONE_TABLE = 2
OBSERVED = 40
"""The newest tables, which are looked at over and over."""
PAUSE = 0.06
"""Most seconds from one commit of a writer to its next."""
_LOST = (aiohttp.ClientError, OSError, TimeoutError)
_SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
_TABLES = f"/v1/namespaces/{NAMESPACE}/tables"


class CutOff(NamedTuple):
    """A commit whose writer was not told what became of it.

    Attributes:
        writer: who made it.
        table: its table; nobody commits to it any more.
        snapshot: what it adds, 0 where it creates the table.
        sent_at: not earlier than that.
    """

    writer: int
    table: str
    snapshot: int
    sent_at: datetime


class Reply(NamedTuple):
    """An answer; status 0 where the request was not sent, or not passed on: it may be sent again."""

    status: int
    content: Any

    @property
    def is_done(self) -> bool:
        return self.status == 200


@dataclass
class Shop:
    """The tables, as somebody without the catalog sees them.

    Attributes:
        folder: of the namespace.
        names: of all that were ever asked for, oldest first.
    """

    folder: Path
    names: list[str] = field(default_factory=list)

    @property
    def tables(self) -> Sequence[str]:
        """See `observer.Tables`."""
        return self.names[-OBSERVED:]

    def named(self) -> str:
        """A name that no table has."""
        self.names.append(f"t{len(self.names)}")
        return self.names[-1]

    def pointed(self, name: str) -> Pointed:
        """What the directory of a table says."""
        return pointed(self.folder / name, NAMESPACE, name)


@dataclass
class Desk:
    """Where writers have the table that they commit to.

    Attributes:
        table: its name, None until they have one.
        spare: a name for one, which the catalog was not asked for yet.
    """

    table: str | None = None
    spare: str | None = None
    making: anyio.Lock = field(default_factory=anyio.Lock)


@dataclass
class Committers:
    """Eight writers, two of them on one table. A table of which a commit was cut off they leave for good: what is found
    of that commit is found because it was noted.

    Attributes:
        service: whose gateway they commit through now.
        answered: commits that were made, and told of.
        conflicts: commits that were refused, since another one came first.
        refused: requests that did not reach the catalog.
        cut_off: commits of which nobody was told.
        in_flight: commits that are under way.
    """

    shop: Shop
    session: aiohttp.ClientSession
    chance: random.Random
    service: Service | None = None
    answered: int = 0
    conflicts: int = 0
    refused: int = 0
    cut_off: list[CutOff] = field(default_factory=list)
    in_flight: int = 0

    async def run(self, stop: anyio.Event) -> None:
        """Commit until stopped."""
        shared = Desk()
        async with anyio.create_task_group() as tasks:
            for number in range(WRITERS):
                tasks.start_soon(self._write, number, shared if number < ON_ONE_TABLE else Desk(), stop)

    async def _write(self, number: int, desk: Desk, stop: anyio.Event) -> None:
        metadata: Mapping[str, Any] | None = None
        table: str | None = None
        while not stop.is_set():
            if table is None or table != desk.table:
                metadata, table = None, await self._table(number, desk)
            if table is not None:
                metadata = await self._committed(number, desk, table, metadata or await self._loaded(table))
            await anyio.sleep(self.chance.uniform(0, PAUSE))

    async def _table(self, number: int, desk: Desk) -> str | None:
        """The table of a desk, made if there is none; None where that failed."""
        async with desk.making:
            if desk.table is None:
                name = desk.spare = desk.spare or self.shop.named()
                made = await self._told(CutOff(number, name, 0, SystemClock().now()), {"name": name, "schema": _SCHEMA})
                if made is None or made.is_done:
                    desk.spare = None
                if made is not None and made.is_done:
                    desk.table = name
            return desk.table

    async def _committed(
        self, number: int, desk: Desk, table: str, metadata: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The table's metadata after one more commit; None where it is to be loaded."""
        if metadata is None:
            return None
        commit = CutOff(number, table, self.chance.getrandbits(62), SystemClock().now())
        reply = await self._told(commit, _one_more(commit, metadata))
        if reply is None and desk.table == table:
            desk.table = None
        return reply.content["metadata"] if reply is not None and reply.is_done else None

    async def _told(self, commit: CutOff, body: Mapping[str, Any]) -> Reply | None:
        """What a commit is answered; None where nobody knows what came of it."""
        self.in_flight += 1
        try:
            reply = await self._ask("POST", f"{_TABLES}/{commit.table}" if commit.snapshot else _TABLES, body)
        finally:
            self.in_flight -= 1
        if reply is None:
            self.cut_off.append(commit)
            return None
        self.answered += reply.is_done
        self.conflicts += reply.status == 409
        assert reply.status in {0, 200, 409}, reply
        return reply

    async def _loaded(self, table: str) -> Mapping[str, Any] | None:
        reply = await self._ask("GET", f"{_TABLES}/{table}")
        return reply.content["metadata"] if reply is not None and reply.is_done else None

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply | None:
        """An answer; None where nobody knows what the request came to."""
        service: Service = await eventually(lambda: self.service, within=120)
        try:
            async with self.session.request(method, f"{service.url}/catalog/{CATALOG}{path}", json=body) as answer:
                content = await answer.json(content_type=None)
        except aiohttp.ClientConnectorError:
            self.refused += 1
            await anyio.sleep(0.02)
            return Reply(0, None)
        except _LOST:
            return None
        if answer.status == 503:
            self.refused += 1
            await anyio.sleep(0.1)
            return Reply(0, content)
        return None if answer.status >= 500 else Reply(answer.status, content)


def _one_more(commit: CutOff, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """A commit that adds a snapshot, if nobody else did meanwhile."""
    before = metadata.get("current-snapshot-id")
    snapshot = {
        "snapshot-id": commit.snapshot,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": max(metadata["last-updated-ms"], int(commit.sent_at.timestamp() * 1_000)),
        "manifest-list": f"{metadata['location']}/metadata/snap-{commit.snapshot}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    if before is not None and before >= 0:
        snapshot["parent-snapshot-id"] = before
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot.get("parent-snapshot-id")},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": commit.snapshot},
            {"action": "set-properties", "updates": {f"writer-{commit.writer}": str(commit.snapshot)}},
        ],
    }


@dataclass
class Truth:
    """The tables that there are.

    Attributes:
        pointers: by name.
        snapshots: ids of all that a table ever had, by its name.
    """

    pointers: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, set[int]] = field(default_factory=dict)

    def has(self, commit: CutOff) -> bool:
        """Whether the catalog made it."""
        made = self.snapshots.get(commit.table)
        return made is not None and (not commit.snapshot or commit.snapshot in made)


async def truth(session: aiohttp.ClientSession, uri: str, names: Iterable[str]) -> Truth:
    """Ask a catalog for tables, of which some may not be there."""
    found = Truth()
    for name in names:
        async with session.get(f"{uri}/v1/namespaces/{NAMESPACE}/tables/{name}") as answer:
            assert answer.status in {200, 404}, await answer.text()
            content = await answer.json()
        if answer.status == 200:
            found.pointers[name] = content["metadata-location"]
            found.snapshots[name] = {one["snapshot-id"] for one in content["metadata"].get("snapshots", ())}
    return found
