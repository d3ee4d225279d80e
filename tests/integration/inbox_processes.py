"""Other processes that use an inbox's file."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import anyio
import anyio.lowlevel

from sfn.clock import SystemClock
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import SfnError
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite import SqliteInbox

CLIENTS = 8


def hold(database: Path, answer: Connection) -> None:
    """Open an inbox, say so, and keep it until killed."""

    async def run() -> None:
        async with SqliteInbox.opened(database, InboxConfig(), SystemClock()) as inbox:
            await inbox.put([Notification(TableIdentifier("prod", (), "held"))])
            answer.send("open")
            await anyio.sleep_forever()

    anyio.run(run)


def open_it(database: Path, answer: Connection) -> None:
    """Open an inbox and close it, and tell the trouble."""

    async def run() -> None:
        try:
            async with SqliteInbox.opened(database, InboxConfig(), SystemClock()):
                answer.send(None)
        except SfnError as error:
            answer.send((type(error).__name__, str(error)))

    anyio.run(run)


def put_for_ever(database: Path, answer: Connection) -> None:
    """Put event after event, and tell each that was taken."""

    async def client(inbox: SqliteInbox, number: int) -> None:
        turn = 0
        while True:
            turn += 1
            event = f"{number}-{turn}"
            await inbox.put([Notification(TableIdentifier("prod", (), f"t{turn % 50}"), f"client{number}", event)])
            answer.send((f"client{number}", event))

    async def run() -> None:
        async with (
            SqliteInbox.opened(database, InboxConfig(), SystemClock()) as inbox,
            anyio.create_task_group() as tasks,
        ):
            for number in range(CLIENTS):
                tasks.start_soon(client, inbox, number)

    anyio.run(run)
