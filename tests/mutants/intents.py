"""The mutants of commits that pass through a gateway: each is asked for until its outcome is known."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, broken

PROMISES = "tests/promises/test_inbox_intents.py"
REPLICAS = "tests/simulation/test_replicas.py"

INTENTS = (
    Mutant(
        "15-a-single-ask",
        15,
        f"{REPLICAS}::test_a_commit_is_published_though_its_gateway_died_before_it_heard_the_end",
        'assert stage.pointer("a") == last.metadata_location',
    ),
    Mutant(
        "15-one-intent-per-table",
        15,
        f"{PROMISES}::test_success_of_another_commit_leaves_an_intent_open[asyncio-SQLite]",
        "assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]",
    ),
    Mutant(
        "15-late-claim-forgets-the-ask",
        15,
        f"{PROMISES}::test_claim_after_the_last_check_time_checks_once[asyncio-memory]",
        'assert await asks(ground) == [(0, ["prod:sales.orders"])]',
    ),
    Mutant(
        "15-shared-answers-after-rows",
        15,
        f"{REPLICAS}::test_who_answers_a_commit_and_who_asks_for_it_wait_for_nobody_in_a_circle",
        broken("deadlock"),
    ),
    Mutant(
        "15-shared-left-to-another-is-forgotten",
        15,
        f"{REPLICAS}::test_what_is_not_asked_for_because_another_one_has_its_row_is_asked_for_soon",
        'assert stage.told_by(GATEWAY) == [named("a")]',
    ),
)
