"""How a row changes by each event, the end of a claim among them, and what holds for all of them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    Outcome,
    PendingChange,
    Priority,
    PublishCache,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
    Wakeup,
)
from sfn.inbox import transitions
from sfn.inbox.model import Job, JobState, group_of, holds_lease
from sfn.inbox.transitions import (
    is_poison,
    on_claim,
    on_lease_expired,
    on_notification,
    on_release_hold,
    on_settle,
    on_unused_claim,
    on_wakeup,
)
from tests.unit.rows import (
    CAP,
    HINT,
    LEASE,
    LEASED,
    LIVE,
    MOST,
    NOW,
    ORDERS,
    PROD,
    QUEUED,
    TERMS,
    at,
    claim_on,
    dead,
    ended,
    tried,
)

PAUSED = replace(QUEUED, not_before=at(9))
FAILING = replace(QUEUED, attempt=2, failing_since=NOW, due_at=at(60))

FOUND = PublishResult(
    TableState(live=LIVE, has_settled=True), PublishCache(etag="v1"), vacated=frozenset({"s3://lake/b"})
)
PLACES = frozenset({"s3://lake/a", "s3://lake/b"})
WISHING = replace(
    LEASED, pending=PendingChange(min_metadata_location="f"), locations=PLACES, cache=PublishCache(etag="v0"), crashes=2
)


@pytest.mark.parametrize(
    ("row", "state", "due"),
    [
        (None, JobState.QUEUED, NOW),
        (QUEUED, JobState.QUEUED, NOW),
        (replace(QUEUED, due_at=at(-5)), JobState.QUEUED, at(-5)),
        (PAUSED, JobState.QUEUED, at(9)),
        (replace(PAUSED, not_before=at(-9)), JobState.QUEUED, NOW),
        (replace(PAUSED, not_before=at(86400)), JobState.QUEUED, NOW),
        (FAILING, JobState.QUEUED, at(60)),
        (replace(FAILING, due_at=at(86400)), JobState.QUEUED, NOW + CAP),
        (LEASED, JobState.LEASED, LEASED.due_at),
        (dead(DeadLetterReason.HELD_DROP), JobState.QUEUED, NOW),
        (dead(DeadLetterReason.FOREIGN_CATALOG), JobState.QUEUED, NOW),
        (dead(DeadLetterReason.FOREIGN_FILE), JobState.QUEUED, NOW),
        (dead(DeadLetterReason.LOCATION_REFUSED), JobState.QUEUED, NOW),
        (dead(DeadLetterReason.POISON), JobState.QUEUED, NOW + CAP),
        (tried(dead(DeadLetterReason.POISON), at(-60)), JobState.QUEUED, at(-60) + CAP),
        (tried(dead(DeadLetterReason.EXHAUSTED), at(-86400)), JobState.QUEUED, NOW),
        (tried(dead(DeadLetterReason.PERMANENT), at(86400)), JobState.QUEUED, NOW + CAP),
        (replace(dead(DeadLetterReason.HELD_DROP), not_before=at(9)), JobState.QUEUED, at(9)),
        (replace(QUEUED, reason=DeadLetterReason.FOREIGN_FILE), JobState.QUEUED, NOW),
        (replace(QUEUED, reason=DeadLetterReason.PERMANENT), JobState.QUEUED, NOW + CAP),
        (replace(QUEUED, reason=DeadLetterReason.PERMANENT, due_at=at(20)), JobState.QUEUED, at(20)),
        (tried(replace(QUEUED, reason=DeadLetterReason.PERMANENT), at(-60)), JobState.QUEUED, at(-60) + CAP),
    ],
)
def test_a_hint_moves(row: Job | None, state: JobState, due: datetime) -> None:
    after = on_notification(row, HINT, 9, NOW, CAP)
    assert (after.state, after.due_at, after.event_seq, after.pending.is_unspecific) == (state, due, 9, True)
    before = row or Job(ORDERS, NOW)
    assert after.version == before.version + 1
    assert (after.attempt, after.processed_version, after.reason) == (
        before.attempt,
        before.processed_version,
        before.reason,
    )


RETRY = Notification(ORDERS, force=True, retry=True)


@pytest.mark.parametrize("reason", list(DeadLetterReason))
@pytest.mark.parametrize("is_rechecked", [True, False])
def test_retry_of_an_operator_makes_a_dead_table_due_with_all_attempts(
    reason: DeadLetterReason, *, is_rechecked: bool
) -> None:
    row = tried(dead(reason), at(-1))
    if is_rechecked:
        row = replace(row, state=JobState.QUEUED, due_at=at(86400))
    row = replace(row, table_state=TableState(on_hold=reason is DeadLetterReason.HELD_DROP), has_letter=True)
    after = on_notification(row, RETRY, 9, NOW, CAP)
    assert (after.state, after.due_at, after.attempt, after.failing_since) == (JobState.QUEUED, NOW, 0, None)
    assert (after.reason, after.has_letter, after.table_state) == (reason, True, row.table_state)
    assert after.table_state.limit_overridden is False
    assert on_notification(replace(row, not_before=at(9)), RETRY, 9, NOW, CAP).due_at == at(9)


@pytest.mark.parametrize("row", [QUEUED, FAILING, LEASED, replace(LEASED, reason=DeadLetterReason.PERMANENT)])
def test_retry_of_an_operator_is_a_notification_for_a_table_that_is_not_dead(row: Job) -> None:
    expected = on_notification(row, replace(RETRY, retry=False), 9, NOW, CAP)
    assert on_notification(row, RETRY, 9, NOW, CAP) == expected


def test_forced_sweep_is_followed_by_one_that_is_not() -> None:
    asked, event = Notification(PROD, force=True), Notification(PROD)
    swept = SweepCompleted(at(900), NOW, within_limit=True)
    row = on_claim(on_notification(Job(PROD, NOW), asked, 0, NOW, CAP), 7, NOW, LEASE)
    assert claim_on(row).pending.force
    done = on_settle(row, claim_on(row), swept, NOW, CAP)
    noted = on_settle(on_notification(row, event, 0, NOW, CAP), claim_on(row), swept, NOW, CAP)
    again = on_settle(on_notification(row, asked, 0, NOW, CAP), claim_on(row), swept, NOW, CAP)
    assert [one is not None and one.pending.force for one in (done, noted, again)] == [False, False, True]
    assert again is not None
    claimed = on_claim(again, 8, NOW, LEASE)
    last = on_settle(claimed, claim_on(claimed), swept, NOW, CAP)
    assert last is not None
    assert last.pending == PendingChange()
    noted = on_settle(on_notification(claimed, event, 0, NOW, CAP), claim_on(claimed), swept, NOW, CAP)
    assert noted is not None
    assert not noted.pending.force


@pytest.mark.parametrize("outcome", [Returned(at(1), "no answer"), Retry(at(1), "no answer")])
def test_forced_sweep_that_fails_is_still_forced(outcome: Outcome) -> None:
    row = on_claim(on_notification(Job(PROD, NOW), Notification(PROD, force=True), 0, NOW, CAP), 7, NOW, LEASE)
    after = on_settle(row, claim_on(row), outcome, NOW, CAP)
    assert after is not None
    assert on_claim(after, 8, NOW, LEASE).pending.force
    assert on_claim(on_lease_expired(row, at(99), TERMS), 8, at(99), LEASE).pending.force


def test_an_event_during_a_lease_is_newer_whatever_number_its_record_has() -> None:
    """Records are not committed in the order of their numbers: one with a lower number may be folded later."""
    row = on_claim(replace(QUEUED, event_seq=90, version=4), 7, NOW, LEASE)
    after = on_notification(row, Notification(ORDERS, drop=True), 3, NOW, CAP)
    assert (after.version, after.event_seq) == (row.version + 1, 90)
    done = on_settle(after, claim_on(row), Done(at(3600)), NOW, CAP)
    assert done is not None
    assert (done.due_at, done.pending.drop) == (NOW, True)


def test_what_a_row_that_was_given_up_was_told_of_is_what_the_last_hint_says() -> None:
    """Else a table that was rolled back meanwhile would never be known for the one that was given up."""
    older, newer = (f"s3://lake/orders/metadata/0000{number}-{UUID(int=number)}.json" for number in (8, 9))
    given_up = replace(dead(DeadLetterReason.POISON), pending=PendingChange(min_metadata_location=newer))
    assert (
        on_notification(
            given_up, Notification(ORDERS, min_metadata_location=older), 9, NOW, CAP
        ).pending.min_metadata_location
        == older
    )
    assert on_notification(given_up, HINT, 9, NOW, CAP).pending.min_metadata_location == newer
    assert (
        on_notification(
            replace(QUEUED, pending=PendingChange(min_metadata_location=newer)),
            Notification(ORDERS, min_metadata_location=older),
            9,
            NOW,
            CAP,
        ).pending.min_metadata_location
        == newer
    )


@pytest.mark.parametrize(
    ("row", "due"),
    [
        (QUEUED, NOW),
        (replace(QUEUED, due_at=at(-5)), at(-5)),
        (PAUSED, at(9)),
        (FAILING, at(60)),
        (LEASED, LEASED.due_at),
        (dead(DeadLetterReason.HELD_DROP), QUEUED.due_at),
    ],
)
def test_an_ask_moves(row: Job, due: datetime) -> None:
    after = on_wakeup(row, Wakeup(ORDERS), NOW, CAP)
    since = NOW if row is FAILING or row.reason is not None else None
    assert after == replace(row, due_at=due, version=row.version + 1, pending_since=since)


@pytest.mark.parametrize(
    "row", [None, QUEUED, FAILING, LEASED, dead(DeadLetterReason.FOREIGN_FILE), dead(DeadLetterReason.POISON)]
)
def test_an_ask_that_tells_something_does_what_an_event_does(row: Job | None) -> None:
    """It comes from another spelling of the row's name; the last event of the row stays the one that was logged."""
    after = on_wakeup(row, Wakeup(ORDERS, min_metadata_location="s3://lake/2.json", drop=True, purge=True), NOW, CAP)
    told = on_notification(
        row, Notification(ORDERS, min_metadata_location="s3://lake/2.json", drop=True, purge=True), 9, NOW, CAP
    )
    assert after is not None
    assert after == replace(told, pending=after.pending, event_seq=0 if row is None else row.event_seq)
    is_all_relayed = row is None or row.pending == PendingChange()
    assert after.pending == replace(told.pending, is_relayed=is_all_relayed)


def test_what_only_other_spellings_told_is_known_until_an_event_comes() -> None:
    ask = Wakeup(ORDERS, drop=True)
    once = on_wakeup(None, ask, NOW, CAP)
    twice = on_wakeup(once, ask, NOW, CAP)
    assert twice is not None
    assert twice.pending.is_relayed
    told = on_notification(twice, Notification(ORDERS, drop=True), 11, NOW, CAP)
    assert not told.pending.is_relayed
    again = on_wakeup(told, ask, NOW, CAP)
    assert again is not None
    assert not again.pending.is_relayed


def test_an_ask_makes_a_row_and_teaches_it_a_place() -> None:
    assert on_wakeup(None, Wakeup(ORDERS), NOW, CAP) == Job(ORDERS, NOW, version=1)
    taught = on_wakeup(None, Wakeup(ORDERS, "s3://lake/a"), NOW, CAP)
    assert taught == Job(
        ORDERS, NOW, version=1, locations=frozenset({"s3://lake/a"}), table_state=TableState(has_settled=True)
    )
    assert on_wakeup(taught, Wakeup(ORDERS, "s3://lake/a"), NOW, CAP) is None
    learnt = on_wakeup(taught, Wakeup(ORDERS, "s3://lake/b"), NOW, CAP)
    assert learnt is not None
    assert learnt.locations == {"s3://lake/a", "s3://lake/b"}


def test_a_claim_counts_the_attempt_and_fences_those_before() -> None:
    assert (
        replace(
            QUEUED,
            version=4,
            leased_version=4,
            claimed_at=NOW,
            state=JobState.LEASED,
            fencing_token=7,
            attempt=1,
            lease_until=NOW + LEASE,
            failing_since=NOW,
        )
        == LEASED
    )
    claim = claim_on(LEASED)
    assert holds_lease(LEASED, claim)
    assert not holds_lease(replace(LEASED, fencing_token=8), claim)
    assert not holds_lease(replace(LEASED, state=JobState.QUEUED), claim)
    assert not holds_lease(None, claim)
    later = on_claim(replace(FAILING, failing_since=at(-60)), 8, NOW, LEASE)
    assert (later.attempt, later.failing_since) == (3, at(-60))


def test_a_renewal_moves_the_end_of_the_lease_alone() -> None:
    assert transitions.on_renew(LEASED, at(20), LEASE) == replace(LEASED, lease_until=at(50))


@pytest.mark.parametrize(
    ("subject", "crashes", "due", "poison"),
    [
        (ORDERS, 0, NOW, False),
        (ORDERS, MOST - 2, NOW, False),
        (ORDERS, MOST - 1, NOW + TERMS.poison_pause, True),
        (ORDERS, MOST, NOW + TERMS.poison_pause, True),
        (PROD, MOST - 2, NOW, False),
        (PROD, MOST - 1, NOW + CAP, False),
        (PROD, MOST + 3, NOW + CAP, False),
    ],
)
def test_a_lease_that_runs_out_moves(
    subject: TableIdentifier | CatalogName, crashes: int, due: datetime, poison: bool
) -> None:
    row = replace(LEASED, subject=subject, crashes=crashes, cache=PublishCache(etag="v1"))
    after = on_lease_expired(row, NOW, TERMS)
    assert (after.state, after.due_at, after.crashes) == (JobState.QUEUED, due, crashes + 1)
    assert (after.reason is DeadLetterReason.POISON) == is_poison(after, TERMS) == poison
    assert (after.cache, after.attempt, after.pending) == (PublishCache(), LEASED.attempt, LEASED.pending)
    assert (after.version, after.processed_version) == (LEASED.version, LEASED.processed_version)


def test_poison_is_looked_at_after_a_new_event_but_not_at_once_and_may_heal() -> None:
    poison = on_lease_expired(replace(LEASED, crashes=MOST - 1), NOW, TERMS)
    assert on_wakeup(poison, Wakeup(ORDERS), NOW, CAP) == replace(poison, version=poison.version + 1)
    again = on_notification(poison, HINT, 9, NOW, CAP)
    assert (again.state, again.due_at) == (JobState.QUEUED, NOW + CAP)
    healed = ended(Done(at(60)), on_claim(again, 9, NOW, LEASE))
    assert (healed.reason, healed.crashes, healed.attempt) == (None, 0, 0)
    assert not is_poison(on_lease_expired(replace(on_claim(again, 9, NOW, LEASE), crashes=0), NOW, TERMS), TERMS)


@pytest.mark.parametrize("row", [dead(DeadLetterReason.HELD_DROP), LEASED, FAILING], ids=["dead", "leased", "failing"])
def test_an_operator_lets_a_row_pass_once(row: Job) -> None:
    after = on_release_hold(replace(row, table_state=TableState(on_hold=True)), NOW)
    assert (after.state, after.due_at, after.attempt, after.reason) == (JobState.QUEUED, NOW, 0, None)
    assert after.table_state == TableState(limit_overridden=True)
    assert not holds_lease(after, claim_on(row))


pauses = st.integers(-100, 1000).map(at)
outcomes = st.one_of(
    st.builds(Done, pauses, st.builds(PublishResult, not_before=st.none() | pauses), st.booleans()),
    st.builds(Rescheduled, pauses, st.just(""), result=st.builds(PublishResult, not_before=st.none() | pauses)),
    st.builds(Retry, pauses, st.just("")),
    st.builds(Returned, pauses, st.just("")),
    st.builds(DeadLettered, st.sampled_from(DeadLetterReason), st.just(""), recheck_at=st.none() | pauses),
)
events = st.one_of(outcomes, st.sampled_from(["hint", "ask", "expire", "release"]))


@given(st.lists(events, max_size=30))
def test_no_pause_is_shortened_and_no_hint_lost(history: list[Outcome | str]) -> None:
    row = on_notification(None, HINT, 1, NOW, CAP)
    seq = 1
    for number, event in enumerate(history):
        seq += 1
        if event == "hint":
            after: Job | None = on_notification(row, HINT, seq, NOW, CAP)
        elif event == "ask":
            after = on_wakeup(row, Wakeup(ORDERS), NOW, CAP)
        elif event == "release":
            after = on_release_hold(row, NOW)
        elif event == "expire":
            after = on_lease_expired(on_claim(row, number, NOW, LEASE), NOW, TERMS)
        elif isinstance(event, str):
            raise AssertionError(event)
        else:
            leased = on_claim(row, number, NOW, LEASE)
            claim = claim_on(leased)
            after = on_settle(on_notification(leased, HINT, seq, NOW, CAP), claim, event, NOW, CAP)
            assert after is not None
            assert after.version > after.processed_version
        assert after is not None
        assert after.state is not JobState.LEASED
        if after.state is JobState.QUEUED and after.not_before is not None and after.due_at != row.due_at:
            assert after.due_at >= after.not_before
        row = after


def test_two_mounts_are_two_lanes() -> None:
    """One whose server is gone must not hold up the tables of the other."""
    stores = ("file:///mnt/a", "file:///mnt/b")
    rows = [replace(QUEUED, locations=frozenset({f"{store}/n/t"})) for store in stores]
    assert [group_of(row, stores).store for row in rows] == list(stores)
    assert group_of(rows[0]).store == group_of(rows[1]).store


@pytest.mark.parametrize(
    ("outcome", "due", "wish"),
    [
        (Done(at(60), FOUND), at(60), PendingChange()),
        (Rescheduled(at(60), "", PendingChange(drop=True), FOUND), at(60), PendingChange(drop=True)),
    ],
)
def test_a_success_ends_the_failures(outcome: Outcome, due: datetime, wish: PendingChange) -> None:
    after = ended(outcome, replace(WISHING, reason=DeadLetterReason.PERMANENT))
    assert (after.state, after.due_at, after.pending) == (JobState.QUEUED, due, wish)
    assert (after.attempt, after.crashes, after.failing_since, after.reason) == (0, 0, None, None)
    assert (after.table_state, after.cache, after.locations) == (
        FOUND.table_state,
        FOUND.cache,
        frozenset({"s3://lake/a"}),
    )
    assert after.processed_version == LEASED.version
    assert group_of(after).priority is Priority.BACKGROUND


@pytest.mark.parametrize(
    ("seen", "outcome", "kept"),
    [
        (True, Done(at(60)), False),
        (True, Rescheduled(at(60), ""), False),
        (True, Rescheduled(at(60), "", PendingChange(drop=True, purge=True)), True),
        (False, Done(at(60)), True),
        (False, Rescheduled(at(60), ""), True),
    ],
)
def test_a_drop_that_a_claim_saw_through_is_not_told_once_more(seen: bool, outcome: Outcome, kept: bool) -> None:
    """Something newer came; but what was told during the claim is told."""
    before = replace(LEASED, pending=PendingChange(drop=seen, purge=seen))
    told = on_notification(before, Notification(ORDERS, drop=not seen, purge=not seen), 9, NOW, CAP)
    after = ended(outcome, told, claim_on(before))
    assert (after.pending.drop, after.pending.purge, after.due_at) == (kept, kept, NOW)


def test_a_sweep_that_ended_leaves_a_row_for_the_next() -> None:
    after = ended(SweepCompleted(at(900), NOW, within_limit=True), replace(WISHING, subject=PROD))
    assert (after.state, after.due_at, after.pending, after.attempt) == (JobState.QUEUED, at(900), PendingChange(), 0)


@pytest.mark.parametrize(
    ("outcome", "state", "due", "attempt"),
    [
        (Retry(at(60), ""), JobState.QUEUED, at(60), 1),
        (Returned(at(60), ""), JobState.QUEUED, at(60), 0),
        (DeadLettered(DeadLetterReason.PERMANENT, ""), JobState.DEAD, LEASED.due_at, 1),
        (DeadLettered(DeadLetterReason.FOREIGN_FILE, "", recheck_at=at(60)), JobState.QUEUED, at(60), 0),
    ],
)
def test_a_failure_keeps_the_wish(outcome: Outcome, state: JobState, due: datetime, attempt: int) -> None:
    after = ended(outcome, WISHING)
    assert (after.state, after.due_at, after.attempt) == (state, due, attempt)
    assert (after.pending, after.cache, after.locations, after.crashes) == (WISHING.pending, PublishCache(), PLACES, 0)
    spent = isinstance(outcome, Retry) or (isinstance(outcome, DeadLettered) and outcome.recheck_at is None)
    assert (after.failing_since is not None) == spent


@pytest.mark.parametrize(
    ("outcome", "due"),
    [
        (Done(at(60)), NOW),
        (Done(at(60), forget=True), NOW),
        (Done(at(60), PublishResult(not_before=at(9))), at(9)),
        (SweepCompleted(at(60), NOW, within_limit=True), at(6)),
        (SweepCompleted(at(3600), NOW, within_limit=True), at(30)),
        (Rescheduled(at(60), "", PendingChange(drop=True)), NOW),
        (Retry(at(60), ""), at(60)),
        (Returned(at(60), ""), at(60)),
        (DeadLettered(DeadLetterReason.HELD_DROP, ""), NOW),
        (DeadLettered(DeadLetterReason.PERMANENT, ""), NOW + CAP),
        (DeadLettered(DeadLetterReason.PERMANENT, "", recheck_at=at(60)), at(60)),
        (DeadLettered(DeadLetterReason.FOREIGN_FILE, "", recheck_at=at(60)), NOW),
        (DeadLettered(DeadLetterReason.FOREIGN_CATALOG, "", recheck_at=at(60)), NOW),
    ],
)
def test_what_came_while_it_was_leased_is_seen(outcome: Outcome, due: datetime) -> None:
    newer = on_notification(WISHING, Notification(ORDERS, drop=True), 9, NOW, CAP)
    after = ended(outcome, newer)
    assert (after.state, after.due_at, after.pending) == (
        JobState.QUEUED,
        due,
        PendingChange(min_metadata_location="f", drop=True),
    )
    assert group_of(after).priority is Priority.LIVE


@pytest.mark.parametrize("job", [WISHING, tried(FAILING, NOW)])
def test_a_claim_that_no_worker_got_leaves_the_job_as_it_was(job: Job) -> None:
    attempt, since = job.attempt - 1, NOW if job.attempt > 1 else None
    job = replace(job, state=JobState.QUEUED, due_at=at(60), lease_until=None, attempt=attempt, failing_since=since)
    claimed = on_claim(job, 7, at(70), LEASE)
    assert on_unused_claim(claimed, at(71)) == replace(
        job, fencing_token=7, leased_version=job.version, claimed_at=at(70)
    )


def test_a_row_that_has_nothing_left_to_say_goes() -> None:
    assert on_settle(LEASED, claim_on(LEASED), Done(NOW, forget=True), NOW, CAP) is None


def test_that_it_is_to_be_held_outlives_a_publish_that_did_not_know() -> None:
    held = on_notification(LEASED, Notification(ORDERS, hold_drops=True), 9, NOW, CAP)
    assert ended(Done(NOW, FOUND), held).table_state.on_hold
    knew = claim_on(replace(LEASED, table_state=TableState(on_hold=True)))
    assert not ended(Done(NOW, FOUND), replace(LEASED, table_state=TableState(on_hold=True)), knew).table_state.on_hold


FIRST, *LATER = (bytes([number]) * 24 for number in range(1, 13))


def with_traces(job: Job | None, *traces: bytes) -> Job:
    for trace in traces:
        job = on_notification(job, Notification(ORDERS, trace=trace), 0, NOW, CAP)
    assert job is not None
    return job


def test_a_job_has_the_trace_of_its_first_notification_and_those_of_the_last_ones() -> None:
    assert with_traces(None, b"").traces == ()
    assert with_traces(None, FIRST, FIRST, b"", LATER[0]).traces == (FIRST, LATER[0])
    assert with_traces(None, FIRST, *LATER).traces == (FIRST, *LATER[-transitions.MAX_TRACES + 1 :])


@pytest.mark.parametrize(
    ("outcome", "goes_on"),
    [
        (Done(at(60)), False),
        (Rescheduled(at(60), "a pause"), False),
        (DeadLettered(DeadLetterReason.PERMANENT, "denied"), False),
        (Rescheduled(at(60), "a lag", PendingChange(min_metadata_location="f")), True),
        (Retry(at(60), "no answer"), True),
        (Returned(at(60), "a stop"), True),
    ],
)
def test_traces_go_on_until_their_change_is_published(outcome: Outcome, *, goes_on: bool) -> None:
    leased = on_claim(with_traces(QUEUED, FIRST), 7, NOW, LEASE)
    claim = claim_on(leased)
    assert claim.traces == (FIRST,)
    assert ended(outcome, leased, claim).traces == ((FIRST,) if goes_on else ())
    # A notification during the claim goes on in its own trace.
    newer = with_traces(leased, LATER[0])
    assert ended(outcome, newer, claim).traces == ((FIRST, LATER[0]) if goes_on else (LATER[0],))


def test_traces_of_a_sweep_end_with_it() -> None:
    leased = on_claim(replace(Job(PROD, NOW), traces=(FIRST,)), 7, NOW, LEASE)
    after = on_settle(leased, claim_on(leased), SweepCompleted(at(60), NOW, within_limit=True), NOW, CAP)
    assert after is not None
    assert after.traces == ()
