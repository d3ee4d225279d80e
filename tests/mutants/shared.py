"""The mutants of the inbox that several replicas share, each killed on the simulated database."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, broken

REPLICAS = "tests/simulation/test_replicas.py"

SHARED = (
    Mutant(
        "02-version-is-a-number",
        f"{REPLICAS}::test_an_event_with_a_lower_number_that_is_committed_late_is_newer_than_the_claim",
        'assert stage.world.checker.document(FILE)["metadata_file_path"] == last.metadata_location',
    ),
    Mutant(
        "02-shared-no-poll",
        f"{REPLICAS}::test_a_job_without_a_signal_is_found_by_the_poll",
        'assert stage.states(["a"]) == {"current": 1}',
    ),
    Mutant(
        "03-shared-claim-locks-nothing",
        f"{REPLICAS}::test_who_claims_at_the_same_time_gets_no_row_that_another_one_has",
        'assert stage.claims("a") == []',
    ),
    Mutant(
        "03-shared-claim-unknown-is-kept",
        f"{REPLICAS}::test_a_claim_that_was_made_unknown_to_its_worker_is_given_back",
        'assert stage.states(["a"]) == {"current": 1}',
    ),
    Mutant(
        "03-shared-dead-keep-their-leases",
        f"{REPLICAS}::test_what_a_dead_replica_had_another_one_has_within_a_lease_and_a_look",
        'assert [claim.node is working.node for claim in stage.claims("a")] == [True, False]',
    ),
    Mutant(
        "03-shared-expiry-locks-nothing",
        f"{REPLICAS}::test_a_lease_that_was_renewed_in_the_last_moment_is_its_owners",
        broken("a lease of another one was changed"),
    ),
    Mutant(
        "03-shared-put-unknown-is-acknowledged",
        f"{REPLICAS}::test_put_of_which_nobody_knows_whether_it_was_taken_is_not_acknowledged[committed append]",
        "DID NOT RAISE",
    ),
    Mutant(
        "03-shared-renewal-without-token",
        f"{REPLICAS}::test_a_sleeper_that_wakes_learns_that_another_one_has_its_row",
        'assert stage.world.counts["fenced"] == 1',
    ),
    Mutant(
        "03-shared-settle-unknown-is-lost",
        f"{REPLICAS}::test_a_settle_that_was_taken_unknown_to_its_worker_is_known_by_its_next_try",
        'assert stage.world.counts["fenced"] == 0',
    ),
    Mutant(
        "03-shared-settle-without-token",
        f"{REPLICAS}::test_a_settle_that_comes_late_ends_nothing_that_another_one_has",
        "assert not await settling",
    ),
    Mutant(
        "03-shared-sweep-is-nobodys",
        f"{REPLICAS}::test_one_replica_sweeps_at_a_time_and_another_one_when_that_died",
        'assert stage.states(["a"]) == {"current": 1}',
    ),
    Mutant(
        "03-shared-sweep-is-not-noted",
        f"{REPLICAS}::test_one_replica_sweeps_at_a_time_and_another_one_when_that_died",
        broken("no sweep"),
    ),
    Mutant(
        "03-shared-token-repeats",
        f"{REPLICAS}::test_no_claim_of_a_row_that_was_forgotten_has_its_successor",
        broken("a claim that was made before"),
    ),
    Mutant(
        "08-shared-brake-counts-unlocked",
        f"{REPLICAS}::test_a_brake_of_several_replicas_lets_no_more_pass_than_it_may",
        'assert stage.states(names) == {"current": 2, "dropped": 1}',
    ),
    Mutant(
        "08-shared-drops-count-twice-until-they-settle",
        f"{REPLICAS}::test_the_twin_keeps_what_every_inbox_promises[test_unsettled_drops_count_towards_the_half]",
        "assert [await permitted(ground, claim) for claim in claims] == [True] * 3 + [False] * 5",
    ),
)
