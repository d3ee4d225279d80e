"""One table on a page: the verdict first, then its file, what is pending, and what was tried."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sfn.admin.remedies import remedy_for
from sfn.admin.schemas import DeadLetterModel
from sfn.admin.table_schemas import (
    CatalogNowModel,
    LastEventModel,
    LastResultModel,
    OutcomeModel,
    PendingChangeModel,
    TableModel,
)
from sfn.admin.table_verdict import TableVerdict, VerdictSeverity, table_verdict
from sfn.cli.render import Tone, to_plain_text
from sfn.cli.table import TONES, describe_key, table_page
from sfn.domain.jobs import DeadLetterReason
from tests.unit.admin_server import LETTER, NOON, ORDERS, copied

NEWS = PendingChangeModel(
    min_metadata_location="file:///w/m/2.json", drop=False, purge=False, renamed_to=None, has_unprocessed=True
)


def table(**more: object) -> TableModel:
    return copied(ORDERS, **more)


def without(why: str) -> TableModel:
    return table(published=None, unpublished=why)


def letter(reason: str) -> DeadLetterModel:
    return copied(LETTER, reason=reason)


ON_PURPOSE = "if prod lost the table, restore it there; if it was dropped on purpose:"


@pytest.mark.parametrize(
    ("shown", "said", "tone", "command"),
    [
        (table(), "published; the file was written 5 min ago", Tone.GOOD, ""),
        (table(state="leased"), "a worker publishes the table now", Tone.GOOD, ""),
        (table(published=None), "no file yet: the last check found nothing to publish", Tone.WARNING, ""),
        (without("retired"), "no file: the catalog prod is retired", Tone.PLAIN, "sfn retire prod --undo"),
        (without("excluded"), "no file: the catalog's include or exclude leaves the table out", Tone.PLAIN, ""),
        (without("left-alone"), "no file: the table's own properties in the catalog exclude it", Tone.PLAIN, ""),
        (without("dropped"), "dropped or renamed: the catalog has no such table, and its files say so", Tone.PLAIN, ""),
        (
            table(published=None, unpublished="dropped", renamed_to="sales.sold"),
            "renamed to sales.sold: its files lead there",
            Tone.PLAIN,
            "",
        ),
        (
            table(published=None, unpublished="spelling", listed_as="sales.orders"),
            "another spelling of sales.orders: the catalog lists that name, which has the files",
            Tone.PLAIN,
            "sfn status sales.orders",
        ),
        (without("missing"), "not found: the catalog has no such table, and no file exists", Tone.WARNING, ""),
        (table(pending=NEWS, due_at=NOON), "a notification is pending; its check was due 0 s ago", Tone.WARNING, ""),
        (
            table(failing_since=NOON - timedelta(minutes=2), attempt=4, due_at=NOON + timedelta(seconds=9)),
            "failing since 11:58:00 UTC (2 min), attempt 4; next attempt in 9 s",
            Tone.WARNING,
            "",
        ),
        (
            table(on_hold=True),
            "a drop or rollback is held by the drop limit until an operator acts",
            Tone.BAD,
            "sfn release prod",
        ),
        (
            table(state="dead", dead_letters=[letter("held-drop")]),
            f"held by the drop limit since 11:00:00 UTC (1 h); {ON_PURPOSE}",
            Tone.BAD,
            "sfn release prod",
        ),
        (
            table(state="dead", dead_letters=[letter("foreign-catalog")]),
            "blocked since 11:00:00 UTC (1 h) by a file of another catalog_id; if that file is this catalog's:",
            Tone.BAD,
            "sfn adopt prod --from CATALOG_ID sales.orders",
        ),
        (
            table(state="dead", dead_letters=[letter("foreign-catalog")], foreign_catalog_id="b2'96"),
            "blocked since 11:00:00 UTC (1 h) by a file of another catalog_id; if that file is this catalog's:",
            Tone.BAD,
            """sfn adopt prod --from 'b2'"'"'96' sales.orders""",
        ),
        (
            table(state="dead", dead_letters=[LETTER]),
            "given up since 11:00:00 UTC (1 h) (location-refused); after its cause is fixed:",
            Tone.BAD,
            "sfn dead-letters replay 7",
        ),
        (
            table(state="dead", reason="poison"),
            "given up (poison); after its cause is fixed:",
            Tone.BAD,
            "sfn dead-letters replay",
        ),
    ],
)
def test_verdict_says_how_it_stands_and_what_to_type(shown: TableModel, said: str, tone: Tone, command: str) -> None:
    found = table_verdict(shown, NOON)
    assert (found.text, TONES[found.severity], found.command) == (said, tone, command)
    lines = to_plain_text(table_page(shown, NOON)).splitlines()
    assert lines[0] == f"prod:sales.orders: {said}"
    assert lines[1] == (f"  → {command}" if command else "")


@pytest.mark.parametrize(
    ("wanted", "said", "tone"),
    [
        ({}, "published; next check in 9 s (a replica may lag)", Tone.GOOD),
        ({"drop": True}, "a drop is pending; next check in 9 s (a replica may lag)", Tone.WARNING),
    ],
)
def test_a_look_that_comes_again_says_what_it_waits_for(wanted: dict[str, object], said: str, tone: Tone) -> None:
    shown = table(
        pending=copied(ORDERS.pending, **wanted),
        last_result=LastResultModel(outcome="rescheduled", why="a replica may lag", at=NOON - timedelta(seconds=3)),
        due_at=NOON + timedelta(seconds=9),
    )
    found = table_verdict(shown, NOON)
    assert (found.text, TONES[found.severity], found.command) == (said, tone, "")
    told = to_plain_text(table_page(shown, NOON))
    assert "last check  checked 3 s ago: a replica may lag" in told
    assert ("pending     a drop" in told) is bool(wanted)


def test_a_table_of_a_retired_catalog_waits_for_nothing() -> None:
    last = LastResultModel(outcome="rescheduled", why="neither a table nor an SFN file was found", at=NOON)
    left = copied(without("retired"), last_result=last)
    assert table_verdict(left, NOON).text == "no file: the catalog prod is retired"


def test_a_letter_that_is_not_open_any_more_is_history() -> None:
    replayed = copied(LETTER, status="replayed")
    shown = table(dead_letters=[replayed])
    assert table_verdict(shown, NOON).severity is VerdictSeverity.GOOD
    assert "replayed" in to_plain_text(table_page(shown, NOON))


def test_the_story_has_everything() -> None:
    told = to_plain_text(
        table_page(
            table(
                pending=copied(NEWS, drop=True, purge=True, renamed_to="sales.sold"),
                last_result=LastResultModel(outcome="retry", why="the disk is full", at=NOON - timedelta(seconds=3)),
                last_event=LastEventModel(
                    sender="etl", event_id="e1", received_at=NOON - timedelta(seconds=9), body='{"name": "orders"}'
                ),
                failing_since=NOON - timedelta(minutes=2),
                attempt=1,
                due_at=NOON - timedelta(seconds=1),
                not_before=NOON + timedelta(seconds=1),
            ),
            NOON,
        )
    ).splitlines()
    for line in (
        "published   file:///w/m/1.json",
        "            uuid u1, written 5 min ago",
        "pending     at least file:///w/m/2.json; a rename to sales.sold; a drop with purge",
        "last check  failed 3 s ago: the disk is full",
        "failing     for 2 min, 1 attempt",
        "next check  is due now, not before 1 s from now",
        "refresh     in 8 h",
        "last event  9 s ago from etl, event e1",
        '            {"name": "orders"}',
        "location    file:///w",
    ):
        assert line in told


def test_a_version_hint_of_somebody_elses_is_shown_with_what_to_do() -> None:
    told = to_plain_text(table_page(table(foreign_version_hint="7\n"), NOON))
    assert 'version hint  foreign ("7"), never changed; delete it to have the service write one' in told.splitlines()
    assert "version hint" not in to_plain_text(table_page(table(), NOON))


@pytest.mark.parametrize(
    ("number", "seconds", "said"),
    [(1, 25, "1 commit with an unknown outcome: the catalog is asked again in 25 s"), (2, 0, "is asked now")],
)
def test_commits_through_a_gateway_that_nobody_knows_the_outcome_of(number: int, seconds: int, said: str) -> None:
    told = to_plain_text(table_page(table(open_intents=number, next_check_at=NOON + timedelta(seconds=seconds)), NOON))
    (line,) = (line for line in told.splitlines() if line.startswith("gateway "))
    assert line.endswith(said)
    assert "gateway" not in to_plain_text(table_page(table(), NOON))


def test_what_was_received_last_steers_no_terminal_and_fills_no_page() -> None:
    body = "{\n\t\x1b]0;mine\x07\u202e\x9b31m" + "x" * 4_000
    told = to_plain_text(
        table_page(table(last_event=LastEventModel(sender="etl", event_id=None, received_at=NOON, body=body)), NOON)
    )
    assert "{\\n\\t\\x1b]0;mine\\x07\\u202e\\x9b31mxxx" in told
    assert "".join(told.splitlines()).isprintable()
    assert told.count("x" * 300) == 1


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (table(state="leased"), "next check  now"),
        (table(state="dead"), "next check  in 8 h, or with the next event"),
        (table(state="dead", due_at=NOON), "next check  with the next event"),
    ],
)
def test_the_next_look(shown: TableModel, said: str) -> None:
    assert said in to_plain_text(table_page(shown, NOON))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("held-drop", "`sfn release prod`"),
        ("foreign-catalog", "`sfn adopt prod --from CATALOG_ID sales.orders`"),
        ("foreign-file", "move or delete it"),
        ("location-refused", "catalogs.prod.allowed_locations"),
        ("permanent", "fix the problem in the detail"),
        ("exhausted", "fix the last error"),
        ("poison", "why its attempts failed or ended the process"),
        ("undecodable", "fix the sender"),
    ],
)
def test_each_reason_has_a_remedy(reason: str, said: str) -> None:
    found = remedy_for(letter(reason))
    assert said in found
    assert ("`sfn dead-letters replay 7`" in found) is (reason != "foreign-catalog")
    assert "a%2Eb.c" in remedy_for(copied(letter("foreign-catalog"), namespace=["a.b"], name="c"))
    assert f"remedy      {found}" in to_plain_text(table_page(table(dead_letters=[letter(reason)]), NOON))


def test_the_id_of_the_file_in_the_way_is_filled_in_where_it_is_known() -> None:
    kept = letter("foreign-catalog")
    command = "`sfn adopt prod --from b296 sales.orders`"
    assert command in remedy_for(kept, "b296")
    assert command in to_plain_text(table_page(table(dead_letters=[kept], foreign_catalog_id="b296"), NOON))


def test_every_reason_is_one_that_the_remedies_know() -> None:
    unknown = remedy_for(letter("a newer one"))
    assert "service's own version" in unknown
    assert all(remedy_for(letter(reason.value)) != unknown for reason in DeadLetterReason)


def test_what_a_letter_is_about_can_be_typed_again() -> None:
    dotted = copied(LETTER, namespace=["a.b"], name="c")
    assert describe_key(dotted) == "prod:a%2Eb.c"
    assert describe_key(copied(LETTER, namespace=None, name=None, table=None)) == "prod"
    assert describe_key(copied(LETTER, catalog=None, namespace=None, sender="etl")) == "sender etl"


def test_a_late_table_says_since_when_and_why() -> None:
    late = table(pending=NEWS, late=True, waiting_since=NOON - timedelta(seconds=90), cause="the catalog is silent")
    queued = copied(late, due_at=NOON + timedelta(seconds=4))
    said = "late since 11:58:30 UTC (1 min 30 s): the catalog is silent"
    assert table_verdict(queued, NOON) == TableVerdict(f"{said}; next attempt in 4 s", VerdictSeverity.WARNING)
    assert table_verdict(copied(late, state="leased"), NOON).text == f"{said}; a worker has it now"
    early = copied(queued, late=False, due_at=NOON)
    waits = "a notification is pending; its check was due 0 s ago: the catalog is silent"
    assert table_verdict(early, NOON).text == waits


def test_the_last_attempts_are_a_timeline() -> None:
    attempts = [
        OutcomeModel(
            outcome="retry",
            why="the store hangs",
            claimed_at=NOON - timedelta(seconds=40 + number),
            ended_at=NOON - timedelta(seconds=9),
            attempt=2 - number,
            times=1 + 3 * number,
            first_ended_at=NOON - timedelta(minutes=3) if number else None,
        )
        for number in range(2)
    ]
    lines = to_plain_text(table_page(table(outcomes=attempts), NOON)).splitlines()
    assert [" ".join(line.split()) for line in lines[-3:]] == [
        "ENDED OUTCOME ATTEMPT TOOK WHY",
        "9 s ago failed 2 31 s the store hangs",
        "9 s ago failed 4 times, first 2 min 51 s earlier 1 32 s the store hangs",
    ]


def catalog_now(
    state: str, location: str | None = None, error: str | None = None, *, agrees: bool | None
) -> TableModel:
    answered_at = None if agrees is None else NOON
    found = {"state": state, "metadata_location": location, "table_uuid": None, "answered_at": answered_at}
    return table(catalog_now=CatalogNowModel.model_validate({**found, "agrees": agrees, "error": error}))


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (
            catalog_now("found", "file:///w/m/1.json", agrees=True),
            ("file:///w/m/1.json", "agrees with what is published; answered 2026-08-21 12:00:00Z"),
        ),
        (
            catalog_now("found", "file:///w/m/2.json", agrees=False),
            ("file:///w/m/2.json", "differs from what is published; answered 2026-08-21 12:00:00Z"),
        ),
        (
            catalog_now("not-found", agrees=False),
            ("no such table", "differs from what is published; answered 2026-08-21 12:00:00Z"),
        ),
        (
            catalog_now("staged", agrees=True),
            ("a table without a metadata file yet", "agrees with what is published; answered 2026-08-21 12:00:00Z"),
        ),
        (catalog_now("unanswered", error="no answer within 3 s", agrees=None), ("no answer within 3 s",)),
        (catalog_now("event-only", agrees=None), ("an event-only catalog cannot be queried",)),
    ],
)
def test_the_answer_of_the_catalog_follows_what_is_published(shown: TableModel, lines: tuple[str, ...]) -> None:
    page = [line.strip() for line in to_plain_text(table_page(shown, NOON)).splitlines()]
    at = next(number for number, line in enumerate(page) if line.startswith("catalog now"))
    assert page[at - 2].startswith("published")
    assert (page[at].removeprefix("catalog now").strip(), *page[at + 1 : at + len(lines)]) == lines


def test_a_table_that_no_event_reported_is_behind_once_the_catalog_is_asked() -> None:
    answer = CatalogNowModel(
        state="found", metadata_location="s3://b/9.json", table_uuid=None, answered_at=NOON, agrees=False, error=None
    )
    found = table_verdict(copied(table(), catalog_now=answer), NOON)
    assert (found.text.partition(":")[0], found.command) == ("behind the catalog", "sfn notify prod:sales.orders")
    assert table_verdict(copied(table(), catalog_now=copied(answer, agrees=True)), NOON).severity == "good"
