"""What is durably known of one table: its whole story, for whoever asks why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sfn.domain.jobs import DeadLetterReason, PendingChange, TableState
from sfn.inbox.intents import OpenIntentStats


@dataclass(frozen=True, slots=True)
class LastResult:
    """How a row's last claim ended.

    Attributes:
        outcome: its name, such as `done` or `retry`.
        why: what is waited for, or what went wrong; None where all is as it should be.
        at: when.
    """

    outcome: str
    why: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The newest event of a row that is still in the log.

    Attributes:
        sender: whose; empty for the service's own hints.
        event_id: the sender's id of it.
        received_at: when it came.
        body: as it was received, its beginning; empty for the service's own hints.
    """

    sender: str
    event_id: str | None
    received_at: datetime
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's row.

    Attributes:
        state: `queued`, `leased` or `dead`.
        due_at: when it is looked at, if it is queued.
        not_before: no earlier, whatever is told.
        attempt: attempts since the last success.
        failing_since: when the first of a row of failures began.
        reason: why it has an open dead letter.
        has_unprocessed: something was told that no publish has seen through.
        pending: what was told.
        skip_reason: why the table gets no files, as the catalog last had it; None: it may have some.
        table_state: what was published, and what is waited for.
        locations: where files of this name may lie.
        last_result: how the last claim ended.
        last_event: the newest event.
        open_intents: commits of the table through a gateway whose outcome is not known; None for none.
    """

    state: str
    due_at: datetime
    not_before: datetime | None
    attempt: int
    failing_since: datetime | None
    reason: DeadLetterReason | None
    has_unprocessed: bool
    pending: PendingChange
    skip_reason: str | None
    table_state: TableState
    locations: frozenset[str]
    last_result: LastResult | None
    last_event: LastEvent | None
    open_intents: OpenIntentStats | None = None
