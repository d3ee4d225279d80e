"""A row of the inbox and what it is seen as: pure, and the same for every adapter. How it changes is `transitions`'."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from sfn.inbox.intents import Opened
from sfn.inbox.standing import LastEvent, Said, Standing
from sfn.pointer.location import store_prefix
from sfn.pointer.site import layout_location
from sfn.words import Claim, Lane, Memo, Reason, Story, Subject, Swept, TableName, Urgency, Wish, lies_below

MOST_WITHHELD: Final = 1_000
"""Namespaces of one sweep that are noted: each claim compares its table with them."""


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last complete sweep of a catalog.

    Attributes:
        began: when it began.
        withheld: namespaces that it could not list, dotted.
    """

    began: datetime
    withheld: frozenset[str] = frozenset()

    @classmethod
    def ended(cls, swept: Swept) -> LastSweep:
        """Return what is noted of a sweep; of one that could list too few namespaces, that it listed none."""
        is_much = len(swept.withheld) > MOST_WITHHELD
        return cls(swept.began, frozenset({""}) if is_much else swept.withheld)

    def of(self, subject: Subject) -> datetime | None:
        """Return when a subject was swept, None where its namespace could not be listed."""
        is_withheld = isinstance(subject, TableName) and lies_below(subject, self.withheld)
        return None if is_withheld else self.began


class State(StrEnum):
    """Where a row is."""

    QUEUED = "queued"
    LEASED = "leased"
    DEAD = "dead"


class Row(msgspec.Struct, frozen=True):
    """One subject's row. No dataclass: each event makes one anew, which takes a frozen dataclass twenty times as long.

    Attributes:
        subject: whose.
        state: where it is.
        due_at: when it may be claimed, if it is queued.
        not_before: no claim earlier, whatever comes.
        seq: number of its newest hint.
        done_seq: number of the newest hint that a publish has seen through.
        told_seq: number of the newest hint that was an event, where another row's publish asked for a look since; None:
            it is `seq`.
        token: of the last claim; no claim of any row ever had it before.
        lease_until: of the last claim.
        attempt: claims since the last success; a released one does not count.
        crashes: leases that ran out since the last settled claim.
        failing_since: the first of a row of failures.
        waits_since: of a row that failed, or was leased when it was told of: since when what was told is not seen
            through; else None, and it is since `due_at`.
        reason: why it is dead.
        said: how its last claim ended.
        wish, locations, story, memo: see `sfn.words.Claim`.
    """

    subject: Subject
    due_at: datetime
    state: State = State.QUEUED
    not_before: datetime | None = None
    seq: int = 0
    done_seq: int = 0
    told_seq: int | None = None
    token: int = 0
    lease_until: datetime | None = None
    attempt: int = 0
    crashes: int = 0
    failing_since: datetime | None = None
    waits_since: datetime | None = None
    reason: Reason | None = None
    said: Said | None = None
    wish: Wish = Wish()
    locations: frozenset[str] = frozenset()
    story: Story = Story()
    memo: Memo = Memo()


def counted_as(row: Row) -> str:
    """Which of `sfn.inbox.figures.STATES` a table's row counts as."""
    if row.state is State.LEASED:
        return "leased"
    if row.reason is not None:
        return "held" if row.reason is Reason.HELD_DROP else "dead"
    if row.attempt > 0:
        return "retrying"
    return "due" if row.seq > row.done_seq else "scheduled"


def missing_since(story: Story) -> datetime | None:
    """Return since when the catalog does not show the table of the row's live file; None where it does."""
    return story.absent.get(story.live.uuid or "") if story.live is not None else None


def is_renamed(row: Row) -> bool:
    """Return whether an event or a sweep reported another name for the row's table that no look has settled yet."""
    return row.wish.renamed_to not in {None, row.subject}


def has_news(row: Row | None) -> bool:
    """Whether something told of the row still waits for its look; a running claim took up what came before it."""
    if row is None or row.state is State.DEAD:
        return False
    # Hints and claims are numbered from one source.
    return row.seq > (row.token if row.state is State.LEASED else row.done_seq)


def lane_of(row: Row, stores: Collection[str] = ()) -> Lane:
    """The lane that a row would be claimed from; `stores` are those of the terms."""
    if not isinstance(row.subject, TableName):
        return Lane(row.subject.catalog, "", Urgency.SWEEP)
    live = row.story.live.location if row.story.live is not None else layout_location(min(row.locations, default=""))
    told = Urgency.SHORT_LIVED if row.story.short_lived else Urgency.LIVE
    urgency = told if row.seq > row.done_seq else Urgency.CHORE
    return Lane(row.subject.catalog, store_prefix(live, stores) if live else "", urgency)


def claim_of(row: Row, lane: Lane, sweep: LastSweep | None) -> Claim:
    """What the worker gets to see of a leased row."""
    return Claim(
        subject=row.subject,
        lane=lane,
        token=row.token,
        seq=row.seq,
        attempt=row.attempt,
        since=row.failing_since or row.due_at,
        wish=row.wish,
        locations=row.locations,
        story=row.story,
        memo=row.memo,
        swept_at=sweep.of(row.subject) if sweep is not None else None,
    )


def told_by(row: Row) -> int:
    """The number that the newest event of a row has in the log."""
    return row.seq if row.told_seq is None else row.told_seq


def is_held_by(row: Row | None, claim: Claim) -> bool:
    """Whether a claim still has its row: the fence of every write of a worker."""
    return row is not None and row.state is State.LEASED and row.token == claim.token


def standing_of(row: Row, event: LastEvent | None, intents: Opened | None) -> Standing:
    """What an operator gets to see of it."""
    return Standing(
        state=row.state.value,
        due_at=row.due_at,
        not_before=row.not_before,
        attempt=row.attempt,
        failing_since=row.failing_since,
        reason=row.reason,
        news=row.seq > row.done_seq,
        wish=row.wish,
        left_alone=row.memo.table.left_alone if row.memo.table is not None else None,
        story=row.story,
        locations=row.locations,
        said=row.said,
        event=event,
        intents=intents,
    )
