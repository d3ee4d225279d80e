"""What becomes of events whose sender is known, however they came: hints, inbox, counts."""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from sfn.dialects import Arrived, Decoded, Sender, unread
from sfn.errors import Rejected
from sfn.inbox import Intake
from sfn.receiver.concern import Concern
from sfn.receiver.covered import covered, identified
from sfn.receiver.letter import kept
from sfn.telemetry.metrics import Events
from sfn.telemetry.refusals import Seldom
from sfn.words import Accepted

_NOTHING: Final = Accepted(0, 0)

_log = structlog.stdlib.get_logger(__name__)


class Taken(NamedTuple):
    """What became of a request.

    Attributes:
        accepted: what became of that which went into the inbox.
        ignored: events that are understood and of no concern.
    """

    accepted: Accepted
    ignored: int


class Taking:
    """Takes what arrived: once it returns, the hints are on disk, or what nobody understood is.

    Args:
        intake: where hints go.
        concern: which events matter.
        counted: told of what was taken; of what was not, whoever answers its sender tells.
    """

    def __init__(self, intake: Intake, *, concern: Concern, counted: Events) -> None:
        self._intake = intake
        self._concern, self._told = concern, frozenset(concern.told)
        self._counted = counted
        self._seldom = Seldom()

    async def take(self, request: Arrived, message: str | None = None, *, is_signed: bool = False) -> Taken:
        """Have all events of a request on disk.

        Args:
            message: the id of what they came in, for those that have none of their own.
            is_signed: its sender is known by a signature: what that does not cover is not believed.

        Raises:
            Rejected: nobody understands it; it is kept as a dead letter.
            Transient: scope inbox: nothing was taken.
            Broken: the inbox can't be trusted any more.
        """
        decoded = await self._decode(request, is_signed=is_signed)
        wanted = self._concern.of(identified(decoded.hints, message))
        accepted = await self._intake.put(wanted) if wanted else _NOTHING
        ignored = decoded.ignored + len(decoded.hints) - len(wanted)
        self._counted.taken(decoded.dialect, accepted, ignored, decoded.unmapped)
        if decoded.unmapped:
            self._tell_unmapped(decoded, request.sender)
        return Taken(accepted, ignored + decoded.unmapped)

    async def make_up(self, path: str, sender: Sender, remedy: str) -> None:
        """Have looked at what something may tell of that nobody read; but for catalogs that are told of alone none can.

        Args:
            path: where it was sent to.
            sender: who sent it.
            remedy: what to do about such a catalog.

        Raises:
            Transient: scope inbox: nothing will be looked at.
            Broken: the inbox can't be trusted any more.
        """
        hints = self._concern.of(unread(path, sender))
        if lost := sorted({hint.subject.catalog for hint in hints} & self._told):
            _log.error("events lost", sender=sender.name, catalogs=lost, remedy=remedy)
        if instead := [hint for hint in hints if hint.subject.catalog not in self._told]:
            await self._intake.put(instead)

    def _tell_unmapped(self, decoded: Decoded, sender: Sender) -> None:
        if (left_out := self._seldom.passing(("unmapped", sender.name))) is not None:
            found = decoded.theirs
            remedy = f'senders.{sender.name}.catalogs = {{ "{found[0]}" = "…" }}, if it is one of ours'
            event = "event of an unmapped catalog"
            _log.info(event, sender=sender.name, found=found, remedy=remedy, left_out=left_out)

    async def _decode(self, request: Arrived, *, is_signed: bool) -> Decoded:
        try:
            if is_signed:
                request = covered(request, self._told)
            return self._concern.decoded(request)
        except Rejected as refusal:
            tell(refusal, request.sender)
            # Who is refused does not send it again. So first it is on disk; if it can't be, the answer is 503.
            await self._intake.put([kept(request, refusal, is_signed=is_signed)])
            raise


def tell(refusal: Rejected, sender: Sender) -> None:
    """Log that something is not taken, by its sender's fault."""
    _log.info("events refused", sender=sender.name, status=refusal.status, error=str(refusal))
