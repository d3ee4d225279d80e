"""How a row of the inbox changes: pure, and the same for every adapter.

    from            event                        to
    (none), queued  a hint                       queued, due now or when its pause ends; a retry keeps its time
    leased          a hint                       leased; noticed when the claim settles
    dead            a hint                       queued: at once where it waits for others, else one try a cap
    queued and due  claim                        leased: token and attempt counted
    leased          done, nothing newer came     queued, for a look of our own accord; or forgotten
    leased          done, something newer came   queued, due now or when its pause ends
    leased          later                        queued then; the wish stays
    leased          retry                        queued then; the memo is dropped
    leased          dead                         dead; queued, with its letter open, while it has files to look after
    leased          released                     queued then, the attempt given back
    leased          lease ran out                queued now, the crash counted; much later, as poison, after too many
    any held        released by an operator      queued now, waived once
    any given up    replayed by an operator      queued now, behind what was told since; waived once if it was held

No row is due before its pause ends (`Row.not_before`), whatever is said of its due time. A moment that is further away
than any pause can be was set by a clock that was ahead, and does not count.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from sfn.inbox.row import Row, State, told_by
from sfn.inbox.standing import Said
from sfn.inbox.terms import Terms
from sfn.pointer.hearsay import mark_doubtful
from sfn.pointer.lineage import newer_floor
from sfn.words import (
    Ask,
    Claim,
    Dead,
    Done,
    Findings,
    Hint,
    Later,
    Memo,
    Outcome,
    Reason,
    Released,
    Retry,
    Story,
    Swept,
    TableName,
    Wish,
)
from sfn.words.outcome import told

_LOOKS_AT_ONCE = frozenset(
    {None, Reason.HELD_DROP, Reason.FOREIGN_CATALOG, Reason.FOREIGN_FILE, Reason.LOCATION_REFUSED}
)
"""Why a row may be dead that a hint brings back without a pause, as its cause lies beside the table; None for one that
is not."""

LONGEST_PAUSE = timedelta(hours=1)
"""Between two publishes of a row."""
SWEEP_PAUSE = timedelta(seconds=30)
"""Between two sweeps of a catalog, at most."""


def hinted(row: Row | None, hint: Hint, seq: int, now: datetime, cap: timedelta) -> Row:
    """The row after a hint.

    Args:
        row: as it was, None for a subject that has none.
        seq: the hint's number.
        cap: the longest pause of a retry.
    """
    row = row or Row(hint.subject, now)
    wish = Wish(
        # What a row was told of before it was given up may have been rolled back since.
        floor=(hint.floor or row.wish.floor) if row.reason is not None else newer_floor(row.wish.floor, hint.floor),
        renamed_to=hint.renamed_to or row.wish.renamed_to,
        drop=hint.drop or row.wish.drop,
        purge=hint.purge or row.wish.purge,
        vague=hint.vague or row.wish.vague,
        anew=hint.anew or row.wish.anew,
        adopts=hint.adopts or row.wish.adopts,
        guessed=hint.guessed and (row.wish.guessed or row.wish == Wish()),
        tellings=row.wish.tellings,
    )
    story = dataclasses.replace(row.story, held=True) if hint.held else row.story
    state, due_at = _woken(row, now, cap)
    return replace(_noted(row, now), seq=seq, told_seq=None, wish=wish, story=story, state=state, due_at=due_at)


def asked(row: Row | None, ask: Ask, seq: int, now: datetime, cap: timedelta) -> Row | None:
    """The row after another row's publish asked it to look; None where nothing changes.

    An ask with a location only teaches: a row that knows the location is left alone. One with news of the table does
    what an event does.

    Args:
        cap: as for `hinted`.
    """
    if ask.has_news:
        hint = Hint(ask.table, floor=ask.floor, drop=ask.drop, purge=ask.purge, renamed_to=ask.renamed_to)
        relayed = row is None or row.wish.relayed or row.wish == Wish()
        after = hinted(row, hint, seq, now, cap)
        wish = dataclasses.replace(after.wish, relayed=relayed)
        return replace(after, wish=wish, told_seq=told_by(row) if row is not None else 0)
    if ask.location is not None:
        if row is not None and ask.location in row.locations:
            return None
        fresh = row or Row(ask.table, now, story=Story(visited=True))
        row = replace(fresh, locations=fresh.locations | {ask.location})
    row = _noted(row, now) if row is not None else Row(ask.table, now)
    row = replace(row, seq=seq, told_seq=told_by(row))
    waits = row.state is State.QUEUED and row.attempt == 0
    return replace(row, due_at=min(row.due_at, _not_paused(row, now, now))) if waits else row


def claimed(row: Row, token: int, now: datetime, lease: timedelta) -> Row:
    """The row leased once more; the attempt is counted before it starts.

    Args:
        token: greater than that of any claim before, of whatever row: one that is forgotten may come again.
    """
    return replace(
        row,
        state=State.LEASED,
        token=token,
        attempt=row.attempt + 1,
        lease_until=now + lease,
        failing_since=row.failing_since or now,
    )


def renewed(row: Row, now: datetime, lease: timedelta) -> Row:
    """The row with its lease prolonged."""
    return replace(row, lease_until=now + lease)


def expired(row: Row, now: datetime, terms: Terms) -> Row:
    """The row when its lease ran out: whoever had it died or hangs.

    A table may then count as poison, and may only have been beside it: it is looked at again by and by. A catalog only
    pauses; nobody would look at its tables any more.
    """
    row = replace(_kept_waiting(row), crashes=row.crashes + 1, lease_until=None, memo=Memo())
    if row.crashes < terms.crashes:
        return _queued(row, now, now)
    if isinstance(row.subject, TableName):
        row = replace(row, reason=Reason.POISON, failing_since=None)
        return _queued(row, now + terms.poison_pause, now)
    return _queued(row, now + terms.cap, now)


def is_poison(row: Row, terms: Terms) -> bool:
    """Whether a row that expired just now counts as poison."""
    return row.reason is Reason.POISON and row.crashes >= terms.crashes


def settled(row: Row, claim: Claim, outcome: Outcome, now: datetime, cap: timedelta) -> Row | None:
    """The row after its claim ended; None: it may go.

    Args:
        cap: as for `hinted`.
    """
    newer = row.seq > claim.seq
    row = replace(row, lease_until=None, crashes=0, said=Said(*told(outcome), now))
    match outcome:
        case Done(due_at, findings, forget):
            if forget and not newer:
                return None
            row = _seen_through(_with(row, claim, findings), claim)
            return _told_anew(row, claim, Wish(), now) if newer else _queued(replace(row, wish=Wish()), due_at, now)
        case Swept(due_at):
            # Whoever sends what can't be taken, time and again, must not have the catalog swept without end.
            row = _seen_through(replace(row, not_before=now + min((due_at - now) / 10, SWEEP_PAUSE)), claim)
            return _queued(row, now, now) if newer else _queued(replace(row, wish=Wish()), due_at, now)
        case Later(at, _, wish, findings):
            row = _seen_through(_with(row, claim, findings), claim)
            return _told_anew(row, claim, wish, now) if newer else _queued(replace(row, wish=wish), at, now)
        case Retry(at, _):
            return _queued(replace(_kept_waiting(row), memo=Memo()), at, now)
        case Dead(reason, _, findings, look_at):
            row = _with(row, claim, findings) if findings is not None else replace(row, memo=Memo())
            wish = dataclasses.replace(row.wish, tellings=mark_doubtful(row.wish.tellings))
            row = replace(row, state=State.DEAD, reason=reason, wish=wish, waits_since=None)
            if look_at is not None:
                row = _queued(replace(row, attempt=0, failing_since=None, done_seq=claim.seq), look_at, now)
            if newer:
                state, due_at = _woken(row, now, cap)
                row = replace(row, state=state, due_at=due_at)
            return row
        case Released(at, _):
            # Whose trouble it was spends nobody's budget: neither an attempt nor the time that it took.
            row = replace(_kept_waiting(row), attempt=max(0, row.attempt - 1), failing_since=None, memo=Memo())
            return _queued(row, at, now)
    assert_never(outcome)


def released(row: Row, now: datetime) -> Row:
    """A held row that an operator lets pass once; whoever has it leased is fenced."""
    story = dataclasses.replace(row.story, held=False, waived=True)
    row = replace(row, story=story, attempt=0, failing_since=None, waits_since=None, reason=None, lease_until=None)
    return _queued(row, now, now)


def replayed(row: Row, now: datetime) -> Row:
    """A row that was given up and that an operator wants to have looked at; whoever has it leased is fenced.

    It takes its turn with what only time asks for: many replays at once must not hold up what was told since.
    """
    if row.reason is Reason.HELD_DROP:
        return released(row, now)
    row = replace(row, done_seq=row.seq, attempt=0, crashes=0, failing_since=None, waits_since=None, reason=None)
    return _queued(replace(row, lease_until=None, memo=Memo()), now, now)


def _with(row: Row, claim: Claim, findings: Findings) -> Row:
    """The row with what its publish found; that it is to be held may have been said since."""
    held = row.story.held and not claim.story.held
    return replace(
        row,
        story=dataclasses.replace(findings.story, held=True) if held else findings.story,
        memo=findings.memo,
        locations=row.locations - findings.left,
        not_before=findings.not_before or row.not_before,
    )


def _told_anew(row: Row, claim: Claim, rest: Wish, now: datetime) -> Row:
    """The row due for what was told during its claim; a drop that the claim saw through is not told once more.

    One that was told before and again meanwhile counts as the same: without it an absence takes longer, no more.
    """
    drop = row.wish.drop and (rest.drop or not claim.wish.drop)
    purge = row.wish.purge and (rest.purge or not claim.wish.purge)
    return _queued(replace(row, wish=dataclasses.replace(row.wish, drop=drop, purge=purge)), now, now)


def _seen_through(row: Row, claim: Claim) -> Row:
    return replace(row, attempt=0, failing_since=None, waits_since=None, reason=None, done_seq=claim.seq)


def _noted(row: Row, now: datetime) -> Row:
    """The row before a hint: where that does not make it due, since when it waits is to be remembered."""
    busy = row.state is State.LEASED or (row.state is State.QUEUED and row.attempt > 0)
    return replace(row, waits_since=now) if busy and row.seq <= row.done_seq else row


def _kept_waiting(row: Row) -> Row:
    """The row before its due time is put off, though what was told of it is not seen through."""
    first = row.waits_since is None and row.seq > row.done_seq
    return replace(row, waits_since=row.due_at) if first else row


def _queued(row: Row, at: datetime, now: datetime) -> Row:
    return replace(row, state=State.QUEUED, due_at=_not_paused(row, at, now))


def _not_paused(row: Row, at: datetime, now: datetime) -> datetime:
    pause_ends = row.not_before
    return at if pause_ends is None or pause_ends > now + LONGEST_PAUSE else max(at, pause_ends)


def _woken(row: Row, now: datetime, cap: timedelta) -> tuple[State, datetime]:
    """State and due time after a hint: it makes a row due, but not one that is leased or waits for its next attempt."""
    if row.state is State.LEASED or (row.state is State.QUEUED and row.due_at <= now):
        return row.state, row.due_at
    if row.state is State.QUEUED and row.attempt > 0:
        return row.state, min(row.due_at, _not_paused(row, now + cap, now))
    due = _not_paused(row, _again_at(row, now, cap), now)
    return State.QUEUED, due if row.state is State.DEAD else min(row.due_at, due)


def _again_at(row: Row, now: datetime, cap: timedelta) -> datetime:
    """When a hint has a row looked at: one that was given up once a cap at most, however much is told of it."""
    if row.reason in _LOOKS_AT_ONCE:
        return now
    tried_at = row.said.at if row.said is not None else now
    # A last try later than now was noted by a clock that was ahead.
    return max(now, min(tried_at, now) + cap)
