"""What the services of a simulated world tell of themselves."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLettered, DeadLetterReason, LeasedJob, Outcome
from sfn.inbox.model import NewDeadLetter


@dataclass(frozen=True, slots=True)
class Witness:
    """Who is told what services do.

    Attributes:
        count: of something that is counted.
        say: of what a reader of the history wants to know.
        looked: of a row whose claim ended.
        blame: of what must not be: its kind, and what.
    """

    count: Callable[[str], None]
    say: Callable[[str], None]
    looked: Callable[[JobKey], None]
    blame: Callable[[str, str], None]


class Tally:
    """The worker's journal: counts outcomes, tells of surprises."""

    def __init__(self, witness: Witness) -> None:
        self._witness, self._count, self._say = witness, witness.count, witness.say

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        self._witness.looked(claim.subject)
        self._count(outcome.label)
        told = getattr(outcome, "why", "") or getattr(outcome, "reason", "") or getattr(outcome, "error", "")
        self._say(f"  {claim.subject}: {type(outcome).__name__} {told}")
        if isinstance(outcome, DeadLettered) and outcome.reason is DeadLetterReason.PERMANENT:
            # Nothing in these worlds is denied to one table: what is denied is denied everywhere, and only for a while.
            self._witness.blame("given up for the store", f"{claim.subject}: {outcome.detail}")

    def on_lease_lost(self, claim: LeasedJob) -> None:
        self._count("fenced")

    def on_leases_expired(self, leases: int) -> None:
        self._say(f"  {leases} leases ran out")

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        self._count("poisoned")
        self._say(f"  {letter.subject}: poison")

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        said = "".join(traceback.format_exception(error))[-600:]
        self._witness.blame("surprise", f"{claim.subject}: {said}")


def brief(body: bytes | None) -> str:
    """A file's content in one line, for the trace."""
    if body is None:
        return "deleted"
    if not body.startswith(b"{"):
        return body.decode()
    doc = json.loads(body)
    forward = (doc.get("moved_to") or {}).get("sfn_file_path", "")
    turned = " turned" if doc.get("turned") else ""
    return f"{doc['state']}{turned} {doc['guid'][:8]} {doc['metadata_file_path']} {forward} at {doc['written_at'][11:]}"
