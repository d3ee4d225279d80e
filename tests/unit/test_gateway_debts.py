"""What a gateway owes to an inbox that took nothing for a while."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.events import InboxMessage, Intent, Notification, PutResult
from sfn.domain.identifiers import CatalogName
from sfn.errors import ErrorScope, FatalError, OutcomeUnknown
from sfn.gateway.commits import OwedSweeps

PROD, LAB = CatalogName("prod"), CatalogName("lab")


class Taking:
    """An inbox that takes what is put, and may be cut off before it can say so."""

    def __init__(self) -> None:
        self.notes: list[InboxMessage] = []
        self.is_cut_off = self.hangs = self.is_broken = False

    async def put(self, notes: Sequence[InboxMessage]) -> PutResult:
        if self.hangs:
            await anyio.sleep_forever()
        if self.is_broken:
            raise FatalError("inbox", expected="a sound one", found="ruins")
        self.notes += notes
        if self.is_cut_off:
            raise OutcomeUnknown("inbox", scope=ErrorScope.INBOX, expected="an answer", found="none")
        return PutResult(0, 0)

    @property
    def opened(self) -> list[str]:
        """Ids of intents."""
        return [note.id for note in self.notes if isinstance(note, Intent)]


def owing() -> tuple[Taking, OwedSweeps]:
    """An inbox, and the sweep of a catalog that is owed to it."""
    inbox = Taking()
    debts = OwedSweeps(inbox)
    debts.add("prod", "1")
    return inbox, debts


async def test_every_catalog_is_swept_now_and_asked_for_later() -> None:
    inbox, debts = owing()
    debts.add("lab", "2")
    assert await debts.put_all()
    assert inbox.notes == [
        *(Intent("2", (LAB,), "gateway"), Notification(LAB, "gateway")),
        *(Intent("1", (PROD,), "gateway"), Notification(PROD, "gateway")),
    ]
    assert await debts.put_all()
    assert inbox.opened == ["2", "1"]


async def test_the_end_of_the_process_pays_what_is_owed_or_says_what_is_not() -> None:
    inbox, debts = owing()
    await debts.put_at_shutdown()
    assert inbox.opened == ["1"]
    debts.add("lab", "2")
    inbox.is_cut_off = True
    with capture_logs() as logs:
        await debts.put_at_shutdown()
    assert [(record["event"], record["catalogs"]) for record in logs] == [("sweeps owed and forgotten", ["lab"])]


@pytest.mark.parametrize("trouble", ["hangs", "is_broken"])
async def test_whatever_befalls_the_last_try_is_said(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.commits.RETRY_INTERVAL", 0.05)
    inbox, debts = owing()
    setattr(inbox, trouble, True)
    with capture_logs() as logs:
        await debts.put_at_shutdown()
    assert [record["event"] for record in logs] == ["sweeps owed and forgotten"]


async def test_what_was_being_paid_as_the_process_ended_is_owed_still() -> None:
    inbox, debts = owing()
    inbox.hangs = True
    with anyio.move_on_after(0.02):
        await debts.run()
    inbox.hangs = False
    await debts.put_at_shutdown()
    assert inbox.opened == ["1"]


async def test_what_is_not_known_to_be_paid_is_paid_again() -> None:
    inbox, debts = owing()
    inbox.is_cut_off = True
    assert not await debts.put_all()
    inbox.is_cut_off = False
    assert await debts.put_all()
    assert inbox.opened == ["1", "1"]


async def test_what_is_owed_after_that_is_asked_for_from_then_on() -> None:
    """An id that is put again is left as it is."""
    inbox, debts = owing()
    inbox.is_cut_off = True
    assert not await debts.put_all()
    inbox.is_cut_off = False
    debts.add("prod", "2")
    assert await debts.put_all()
    assert inbox.opened == ["1", "2"]
