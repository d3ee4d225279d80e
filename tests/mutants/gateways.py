"""The mutants of commits that pass through a gateway: what it notes of each, and how it finds out what became of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

GATEWAY = "tests/simulation/test_gateway.py"

LATE = f"{GATEWAY}::test_a_commit_that_is_made_half_an_hour_after_an_answer_that_told_nothing_is_published"
DIED = f"{GATEWAY}::test_a_commit_is_published_though_the_gateway_died_before_the_answer[0]"
HIDDEN = f"{GATEWAY}::test_of_a_rename_to_what_is_not_published_the_old_name_is_looked_at"
AGAIN = f"{GATEWAY}::test_a_name_that_had_a_table_is_looked_at_again_where_a_replica_does_not_know_its_new_one"

NAMES = "tests/unit/test_gateway_routes.py"
ANSWERS = "tests/integration/test_gateway_answers.py"
CONNECTIONS = "tests/integration/test_gateway_connections.py"
BODIES = "tests/unit/test_limits.py"
WORKER = "tests/unit/test_worker.py"

PUBLISHED = 'assert stage.is_published("a")'

GATEWAYS = (
    Mutant("01-end-that-was-told-of-is-the-last", f"{AGAIN}[True]", PUBLISHED),
    Mutant("01-missed-table-is-not-looked-at-again", f"{AGAIN}[False]", PUBLISHED),
    Mutant("15-no-intents", DIED, PUBLISHED),
    Mutant("15-intent-after-the-forward", DIED, PUBLISHED),
    Mutant("15-every-4xx-closes", f"{LATE}[409]", PUBLISHED),
    Mutant("15-every-answer-closes", f"{LATE}[503]", PUBLISHED),
    Mutant(
        "15-cut-off-without-a-note-is-forgotten",
        f"{GATEWAY}::test_so_is_one_whose_answer_does_not_tell_what_became_of_it[0]",
        PUBLISHED,
    ),
    Mutant("15-no-answer-is-nothing-done", f"{LATE}[0]", PUBLISHED),
    Mutant(
        "15-asks-are-counted-from-the-start",
        f"{GATEWAY}::test_the_asks_are_counted_from_an_answer_that_told_nothing",
        PUBLISHED,
    ),
    Mutant(
        "15-hint-comes-after-its-intent-ended",
        f"{GATEWAY}::test_nothing_comes_between_the_end_of_an_intent_and_the_hint",
        PUBLISHED,
    ),
    Mutant(
        "15-intent-is-the-tables",
        f"{GATEWAY}::test_the_success_of_one_writer_closes_no_intent_of_a_gateway_that_died",
        PUBLISHED,
    ),
    Mutant(
        "15-not-found-is-no-news",
        f"{GATEWAY}::test_a_drop_that_a_balancer_sent_twice_is_published_at_once",
        'assert stage.states(["a"]) == {"dropped": 1}',
    ),
    Mutant(
        "15-refusal-closes-nothing",
        f"{GATEWAY}::test_a_refused_commit_is_not_asked_for[400]",
        "assert stage.open_intents() == []",
    ),
    Mutant("15-rename-hints-the-new-name", f"{HIDDEN}[answered]", 'assert stage.states(["a"]) == {"dropped": 1}'),
    Mutant("15-rename-is-of-the-new-name", f"{HIDDEN}[cut off]", 'assert stage.states(["a"]) == {"dropped": 1}'),
    Mutant(
        "15-rename-is-of-the-old-name",
        f"{GATEWAY}::test_of_a_rename_the_new_name_gets_its_file_and_the_old_one_leads_there[cut off]",
        'assert stage.is_published("b")',
    ),
    Mutant(
        "15-staged-create-is-noted",
        f"{GATEWAY}::test_a_staged_create_is_nothing_to_ask_for_until_its_first_commit",
        "assert stage.open_intents() == []",
    ),
    Mutant(
        "15-transaction-is-of-its-first-table",
        f"{GATEWAY}::test_every_table_of_a_transaction_is_published",
        'assert stage.is_published("b")',
    ),
    Mutant(
        "15-debt-is-forgotten",
        f"{GATEWAY}::test_a_commit_that_passed_without_a_note_is_found_once_the_inbox_answers",
        PUBLISHED,
    ),
    Mutant(
        "15-debt-is-a-single-sweep",
        f"{GATEWAY}::test_a_commit_that_passed_without_a_note_and_is_made_much_later_is_asked_for[60.0]",
        PUBLISHED,
    ),
    Mutant(
        "15-unnoted-stays-unnoted",
        f"{GATEWAY}::test_a_commit_that_passed_without_a_note_and_is_made_much_later_is_asked_for[8.0]",
        PUBLISHED,
    ),
    Mutant(
        "15-what-is-to-be-refused-passes",
        f"{GATEWAY}::test_a_commit_that_can_not_be_noted_is_refused_where_it_is_not_to_pass",
        "assert await stage.ask(committed(",
    ),
    Mutant(
        "15-last-configuration-is-every-catalogs",
        f"{NAMES}::test_separators_of_every_configuration_of_a_prefix_are_remembered",
        'assert separators.get("main|a")',
    ),
    Mutant(
        "15-separators-are-of-any-prefix",
        f"{NAMES}::test_separators_of_every_configuration_of_a_prefix_are_remembered",
        'assert separators.get("main|a")',
    ),
    Mutant(
        "15-notification-is-no-change",
        f"{ANSWERS}::test_a_change_by_another_route_is_looked_at",
        "assert [hint.subject for hint in made.inbox.taken] == [subject]",
    ),
    Mutant(
        "15-restored-tables-are-no-change",
        f"{ANSWERS}::test_a_change_by_another_route_is_looked_at",
        "assert [hint.subject for hint in made.inbox.taken] == [subject]",
    ),
    Mutant(
        "15-guess-is-a-dead-letter",
        f"{WORKER}::test_a_name_that_the_catalogs_paths_can_not_say_has_the_other_name_looked_at_and_no_dead_letter",
        "assert isinstance(outcome, Done)",
    ),
    Mutant(
        "15-event-of-a-guessed-name-is-silent",
        f"{WORKER}::test_a_name_without_exactly_one_other_reading_or_from_an_event_is_a_dead_letter"
        "[asyncio-hints3-instead3-False]",
        "assert isinstance(outcome, DeadLettered)",
    ),
    Mutant("15-commit-is-sent-twice", f"{ANSWERS}::test_what_may_change_something_is_sent_once", "count(COMMIT) == 1"),
    Mutant(
        "15-commit-takes-a-connection-that-was-idle",
        f"{CONNECTIONS}::test_a_commit_goes_over_no_connection_that_the_catalog_may_be_closing",
        "assert seen.used == used",
    ),
    Mutant(
        "15-target-is-any-text",
        "tests/integration/test_gateway_requests.py::test_a_target_that_is_no_path_goes_nowhere",
        "assert answer.status in",
    ),
    Mutant("15-newest-body-makes-room", f"{BODIES}::test_the_oldest_incomplete_body_makes_room", "fast.add(8)"),
    Mutant("15-empty-body-makes-room", f"{BODIES}::test_a_body_that_holds_nothing_has_no_room_to_make", "False"),
    Mutant("15-bodies-are-given-up-in-vain", f"{BODIES}::test_nobody_is_given_up_in_vain", "slow.is_evicted"),
    Mutant(
        "15-place-goes-to-who-gave-up",
        "tests/unit/test_gateway_upstream.py::test_place_is_not_given_to_a_cancelled_waiter",
        "if not task.cancelled() and task.exception()] == []",
    ),
    Mutant(
        "15-silence-counts-while-a-body-is-sent",
        f"{CONNECTIONS}::test_the_catalog_has_all_of_its_time_from_the_end_of_a_body_that_came_slowly",
        "assert statuses == [200]",
    ),
    Mutant(
        "15-idle-counts-from-the-client",
        f"{CONNECTIONS}::test_a_connection_is_idle_from_the_end_of_its_answer_and_not_from_when_the_client_took_it",
        "assert seen.used == [0, 1]",
    ),
    Mutant(
        "15-large-body-is-held-until-answered",
        f"{CONNECTIONS}::test_a_large_body_takes_no_memory_once_the_catalog_has_it",
        "assert used == [0] * 4",
    ),
)

NOTES = "tests/promises/test_inbox_intents.py"
ASKED = "tests/simulation/test_replicas.py"

INTENTS = (
    Mutant(
        "15-a-single-ask",
        f"{ASKED}::test_a_commit_is_published_though_its_gateway_died_before_it_heard_the_end",
        'assert stage.pointer("a") == last.metadata_location',
    ),
    Mutant(
        "15-one-intent-per-table",
        f"{NOTES}::test_success_of_another_commit_leaves_an_intent_open[asyncio-SQLite-True]",
        "assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]",
    ),
    Mutant(
        "15-late-claim-forgets-the-ask",
        f"{NOTES}::test_claim_after_the_last_check_time_checks_once[asyncio-SQLite]",
        'assert await asks(ground) == [(0, ["prod:sales.orders"])]',
    ),
)
