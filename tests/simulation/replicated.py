"""Scripted histories of replicas that share an inbox in a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import Done, LeasedJob, PublishResult, Wakeup
from sfn.inbox.model import group_of, to_leased_job
from sfn.worker.sweep import SweepPhase
from tests.simulation.database.kept import SharedKept
from tests.simulation.database.rules import Granted
from tests.simulation.node import Node
from tests.simulation.script import PLACE, Asleep, Held, Stage, named
from tests.simulation.setting import Setting
from tests.simulation.times import TERMS

Script = Callable[[Node, str], Awaitable[None]]

LEASE: Final = TERMS.lease.total_seconds()
LOOK: Final = 2.0
"""Seconds within which somebody looks whom nobody told."""
DIRECT: Final = 2
"""A seed whose database has no pooler before it."""


class Blocked:
    """Every process waits at a call until it is free."""

    def __init__(self, call: str) -> None:
        self._call, self.free = call, asyncio.Event()

    async def __call__(self, _: Node, call: str) -> None:
        if call == self._call:
            await self.free.wait()


class Cut:
    """The connections of the first process that comes to a call are cut there, or at its next call of another kind.

    Args:
        call: the first one.
        then: where they are cut.
    """

    def __init__(self, stage: Replicated, call: str, then: str) -> None:
        self._stage, self._call, self._then = stage, call, then
        self.node: Node | None = None
        self.done = asyncio.Event()

    async def __call__(self, node: Node, call: str) -> None:
        if self.node is None and call == self._call:
            self.node = node
        if node is self.node and call == self._then and not self.done.is_set():
            self.done.set()
            self._stage.kept.server.cut(node)


class Replicated(Stage):
    """A quiet world with replicas, whose database can be seen into."""

    def __init__(self, setting: Setting | None = None, replicas: int = 2) -> None:
        super().__init__(DIRECT, replace(setting or Setting(), replicas=replicas))

    @property
    def kept(self) -> SharedKept:
        assert isinstance(self.service.kept, SharedKept)
        return self.service.kept

    def claims(self, name: str) -> list[Granted]:
        """The claims of a table's row that were made."""
        return self.kept.rules.claims(named(name))

    async def begin(self, stopped: Held | Asleep) -> None:
        """Have the table `a` made and told of, and its work begun, until it comes to where a process is stopped."""
        self.create("a")
        await self.hint("a")
        await stopped.reached.wait()

    def sweepers(self) -> list[Node]:
        """The processes that sweep just now."""
        catalog = self.service.truth.name
        reports = [(node, node.worker.sweeps().get(catalog)) for node in self.service.nodes]
        return [node for node, report in reports if report is not None and report.phase is SweepPhase.RUNNING]

    def other(self, node: Node | None) -> Node:
        """Another process that lives."""
        return next(one for one in self.service.nodes if one is not node)

    def put(self, node: Node, subject: JobKey, **what: Any) -> asyncio.Task[PutResult]:
        """An event that a certain process gets."""
        number = self.world.next_event()
        return self.note(node, Notification(subject, sender="test", event_id=f"p{number}", **what))

    def note(self, node: Node, *notes: InboxMessage) -> asyncio.Task[PutResult]:
        """What a certain process puts, all at once."""

        async def put() -> PutResult:
            return await node.inbox.put(notes)

        return self.world.loop.create_task(put(), context=node.context)

    def told_by(self, sender: str) -> list[JobKey]:
        """Whom a sender's events are of, in order."""
        events = [one for one in self.kept.server.tables.events.committed.values() if one.notification.sender == sender]
        return [one.notification.subject for one in sorted(events, key=lambda one: one.seq)]

    def pointer(self, name: str) -> str | None:
        """What a table's file of its plain name says."""
        found: str | None = self.world.checker.document(f"{PLACE}/metadata/_sfn/n_{name}_main.ver")[
            "metadata_file_path"
        ]
        return found

    def claim(self, name: str) -> LeasedJob:
        """What who claimed a table's row last was given."""
        row = self.row(name)
        assert row is not None
        return to_leased_job(row, group_of(row), None)

    def settle(self, node: Node, claim: LeasedJob, asked: str | None = None) -> asyncio.Task[bool]:
        """A settle by a certain process, which has another row look."""
        now = self.world.loop.now()
        asks = () if asked is None else (Wakeup(named(asked)),)

        async def settle() -> bool:
            return await node.inbox.settle(claim, Done(now, PublishResult(wakeups=asks)), now)

        return self.world.loop.create_task(settle(), context=node.context)

    def direct(self, *scripts: Script) -> None:
        """Have scripts followed at once."""

        async def followed(node: Node, call: str) -> None:
            for script in scripts:
                await script(node, call)

        self.service.script = followed
