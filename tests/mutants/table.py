"""Each rule of the design, the mutant that breaks it, and the test that must notice."""

from __future__ import annotations

from tests.mutants.facades import FACADES, LISTINGS
from tests.mutants.gateways import GATEWAYS, INTENTS
from tests.mutants.mutant import Mutant, broken
from tests.mutants.namings import NAMINGS
from tests.mutants.shared import SHARED

DIRECTED = "tests/simulation/test_directed.py"
FILES = "tests/simulation/test_files.py"
LEASES = "tests/simulation/test_leases.py"
EVENT_ONLY = "tests/simulation/test_event_only.py"
PUBLISH_TOLD = "tests/unit/test_publish_event_only.py"
ORDER = "tests/unit/test_publish_decide.py"
SWEEP = "tests/unit/test_worker_sweep.py"
REFUSED = "tests/unit/test_publish_locations.py"
QUIRKS = "tests/promises/test_store_quirks.py"
TROUBLE = "tests/unit/test_worker.py"
DENIALS = "tests/unit/test_storage_denials.py"
BRAKE = "tests/promises/test_inbox_drop_limit.py"
DROP_LIMIT = "tests/simulation/test_drop_limit.py"
REPORTED_BY_ALL = "tests/promises/test_inbox_reported_tables.py"
REPORTED = "tests/unit/test_inbox_reported_tables.py"
SPELLED = "tests/unit/test_publish_spellings.py"
CLAIMS = "tests/promises/test_inbox_claims.py"
LOG = "tests/promises/test_inbox_log.py"


TABLE = (
    Mutant(
        "01-writes-what-the-event-told",
        f"{DIRECTED}::test_an_events_own_location_is_never_written",
        broken("lie: name"),
    ),
    Mutant(
        "01-later-told-is-newer",
        f"{REPORTED}::test_greatest_version_counts_in_any_order[numbers1-u]",
        "assert Names(*[commit(number, uuid) for number in numbers]).now()",
    ),
    Mutant(
        "01-commit-of-another-table-is-its-birth",
        f"{REPORTED}::test_another_table_takes_the_name_by_an_origin_alone[create]",
        'assert names.now() == ("u", (pointer(5),))',
    ),
    Mutant(
        "01-end-is-forgotten-by-its-birth",
        f"{EVENT_ONLY}::test_an_end_that_overtakes_its_tables_birth_still_ends_it",
        'assert not stage.said("current")',
    ),
    Mutant(
        "02-bad-record-blocks-all",
        f"{LOG}::test_record_that_cannot_be_applied_is_a_dead_letter_and_blocks_no_other[asyncio-SQLite]",
        "ZeroDivisionError: a defect",
    ),
    Mutant(
        "02-pruned-before-it-is-applied",
        f"{LOG}::test_pruning_keeps_what_is_not_applied_yet[asyncio-SQLite]",
        "assert await ground.inbox.run_maintenance_once(timedelta(days=7)) == 0",
    ),
    Mutant(
        "02-sweep-ends-before-what-came-before",
        f"{LOG}::test_sweep_is_settled_after_everything_that_was_accepted_before[asyncio-SQLite-0]",
        "assert await ground.inbox.fold() == FoldResult()",
    ),
    Mutant(
        "02-group-of-an-undone-command-is-known",
        "tests/unit/test_inbox_sqlite.py"
        "::test_concurrency_group_of_an_undone_command_is_known_to_no_other_transaction[replay]",
        "assert [claim.subject for claim in again.claim().jobs] == [ORDERS]",
    ),
    Mutant(
        "03-jobs-of-an-old-group-hide-others",
        "tests/unit/test_inbox_sqlite.py::test_jobs_of_a_store_with_a_new_prefix_hide_no_others",
        "[-1] == later",
    ),
    Mutant(
        "02-waits-since-its-fold",
        f"{LOG}::test_job_waits_since_the_arrival_of_its_event_and_not_since_its_fold[asyncio-SQLite]",
        'assert (await ground.inbox.stats()).oldest_due == {"prod": arrived}',
    ),
    Mutant(
        "01-late-file-of-another-table-counts",
        f"{EVENT_ONLY}::test_a_commit_of_another_table_takes_no_name",
        'assert (document["state"], document["guid"]) == ("current", second.uuid)',
    ),
    Mutant(
        "01-lost-inbox-leads-back",
        f"{PUBLISH_TOLD}::test_a_lost_inbox_is_no_way_back_behind_what_lies_there",
        'assert after.document(A)["metadata_file_path"] == newest.metadata_location',
    ),
    Mutant(
        "02-hint-resets-the-retry",
        f"{DIRECTED}::test_hints_do_not_defeat_the_backoff",
        'assert stage.world.counts["retry"] < 20',
    ),
    Mutant(
        "02-short-lived-waits-in-line",
        f"{CLAIMS}::test_short_lived_table_does_not_wait_behind_a_backlog[asyncio-SQLite]",
        "assert (claim.subject, claim.group.priority) == (RETURNS, Priority.SHORT_LIVED)",
    ),
    Mutant(
        "02-freed-slot-wakes-nobody",
        f"{DIRECTED}::test_a_slot_that_is_freed_after_the_bell_rang_is_taken",
        'assert stage.states(names)["current"] == 12',
    ),
    Mutant(
        "03-claim-counts-no-attempt",
        f"{DIRECTED}::test_a_claim_that_ends_the_process_runs_out_of_attempts",
        "assert (row.reason, row.attempt) == (DeadLetterReason.POISON, 5)",
    ),
    Mutant(
        "03-lost-lease-counts-no-crash",
        f"{DIRECTED}::test_a_claim_that_ends_the_process_runs_out_of_attempts",
        "assert (row.reason, row.attempt) == (DeadLetterReason.POISON, 5)",
    ),
    Mutant(
        "03-claim-expires-what-its-own-worker-holds",
        f"{LEASES}::test_a_slow_inbox_takes_no_lease_from_who_works[0]",
        "assert (row.attempt, row.crashes) == (1, 0)",
    ),
    Mutant(
        "03-poison-is-left-for-ever",
        f"{DIRECTED}::test_a_claim_that_ends_the_process_runs_out_of_attempts",
        broken("rest: not one live file"),
    ),
    Mutant(
        "03-token-repeats",
        f"{CLAIMS}::test_claim_of_a_forgotten_job_cannot_settle_the_next_one[asyncio-SQLite]",
        "assert new.fencing_token != old.fencing_token",
    ),
    Mutant(
        "03-lost-lease-tells-nobody",
        f"{LEASES}::test_who_wrote_a_hint_after_its_lease_was_lost_has_the_row_looked_at_again",
        broken("rest: hint stale"),
    ),
    Mutant(
        "04-lost-race-is-written-over",
        f"{LEASES}::test_a_head_never_goes_back_whoever_wakes",
        'assert (after["Ordinal"], after["metadata_file_path"]) == (before["Ordinal"], last.metadata_location)',
    ),
    Mutant(
        "04-tag-after-the-answer",
        f"{LEASES}::test_who_read_the_tag_after_the_answer_asks_again",
        broken("moved back: name"),
    ),
    Mutant(
        "04-publish-forgets-what-was-reported",
        f"{REPORTED_BY_ALL}::test_event_during_a_publish_is_not_lost[asyncio-SQLite]",
        'assert await now(ground) == ("u1", (pointer(3),))',
    ),
    Mutant("05-memory-may-skip", f"{DIRECTED}::test_memory_does_not_skip", "assert HINT in stage.world.files.bodies"),
    Mutant(
        "05-echo-skips-on-memory",
        f"{ORDER}::test_memory_skips_nothing_for_an_event_that_says_no_more_than_look",
        "assert sorted(line.store.files) == [key_of(A), version_hint.key_of(AT)]",
    ),
    Mutant(
        "06-location-remembered-afterwards",
        f"{DIRECTED}::test_a_location_is_known_before_anything_is_written_there",
        broken("rest: current for ever"),
    ),
    Mutant(
        "07-heir-not-waited-for",
        f"{DIRECTED}::test_a_rename_forwards_only_to_a_file_that_is_there",
        broken("forwards to nothing"),
    ),
    Mutant(
        "07-late-event-stays-behind",
        f"{EVENT_ONLY}::test_a_rename_takes_along_what_was_told_and_what_is_told_late_follows",
        broken("rest: stale"),
    ),
    Mutant(
        "07-hint-of-another-catalog-silenced",
        f"{ORDER}::test_a_hint_that_a_live_file_of_somebody_elses_says_stays",
        "assert line.hint() == said",
    ),
    Mutant(
        "07-every-spelling-has-a-file",
        f"{SPELLED}::test_a_table_that_is_first_heard_of_under_another_spelling_has_the_listed_names_file",
        "assert line.files() == of(0)",
    ),
    Mutant(
        "07-every-spelling-writes-while-nothing-is-listed",
        f"{SPELLED}::test_while_nothing_is_listed_the_name_that_has_the_files_keeps_them",
        "assert line.files() == of(1)",
    ),
    Mutant(
        "07-file-of-another-spelling-is-a-twins",
        f"{SPELLED}::test_a_file_by_the_uuid_that_another_spelling_has_is_taken_over_whatever_the_inbox_knows",
        "assert {outcome.reason for outcome in line.outcomes if isinstance(outcome, DeadLettered)} == set()",
    ),
    Mutant(
        "07-two-spellings-wake-one-another",
        f"{SPELLED}::test_two_spellings_do_not_wake_one_another_without_end",
        "publishes and no end",
    ),
    Mutant(
        "07-a-rename-under-another-spelling-is-no-rename",
        f"{SPELLED}::test_a_rename_that_only_another_spelling_was_told_of_is_no_drop",
        '== ("renamed", "current")',
    ),
    Mutant(
        "07-new-spelling-waits-for-no-listing",
        f"{SPELLED}::test_a_name_whose_namespace_can_not_be_listed_for_now_waits_once",
        "assert line.files() == {}",
    ),
    Mutant(
        "07-what-a-spelling-told-is-told-back",
        f"{SPELLED}::test_two_spellings_of_a_table_that_is_gone_do_not_pass_its_drop_on_without_end",
        "publishes and no end",
    ),
    Mutant(
        "07-two-spellings-give-way-to-each-other",
        f"{SPELLED}::test_two_spellings_that_are_published_at_once_do_not_give_way_to_each_other",
        'assert ("current", f"{number:05d}") in line.files().values()',
    ),
    Mutant(
        "07-names-that-are-alike-are-one-table",
        f"{SPELLED}::test_two_tables_whose_names_differ_by_case_stay_two_where_one_is_not_listed_yet",
        'assert line.document(OTHER, second.location)["guid"] == second.uuid',
    ),
    Mutant(
        "07-a-drop-under-another-spelling-is-no-drop",
        f"{SPELLED}::test_a_drop_under_another_spelling_is_one_of_the_listed_name",
        "assert line.files() == {}",
    ),
    Mutant(
        "08-told-drop-waits-for-nothing",
        f"{EVENT_ONLY}::test_a_drop_waits_whether_another_event_says_more",
        'assert not stage.said("dropped")',
    ),
    Mutant(
        "08-refused-location-gives-up",
        f"{DIRECTED}::test_locations_that_are_refused_give_up_no_table",
        'assert stage.states(list("abc")) == {"current": 3}',
    ),
    Mutant(
        "08-held-counts-no-more",
        f"{SWEEP}::test_what_is_held_already_counts_among_the_absences",
        "assert not (await world.swept()).within_limit",
    ),
    Mutant(
        "08-no-wait", f"{DIRECTED}::test_an_older_answer_soon_after_a_write_is_not_followed", broken("moved back: name")
    ),
    Mutant(
        "08-unknown-order-is-forward",
        f"{ORDER}::test_an_abandoned_pointer_of_the_same_number_does_not_come_back",
        'assert line.document(A)["metadata_file_path"] == current.metadata_location',
    ),
    Mutant(
        "08-turned-ignored", f"{DIRECTED}::test_an_abandoned_pointer_does_not_come_back", broken("moved back: name")
    ),
    Mutant(
        "08-other-names-do-not-count",
        f"{ORDER}::test_under_its_old_name_a_table_is_not_followed_back_by_a_replica_that_lags",
        'assert line.document(A)["metadata_file_path"] == first.metadata_location',
    ),
    Mutant(
        "08-brake-lets-everything-pass",
        f"{DIRECTED}::test_events_of_drops_pass_no_more_than_the_brake_allows",
        'assert stage.states(names) == {"current": 5, "dropped": 3}',
    ),
    Mutant(
        "08-half-of-the-tables-may-go",
        f"{DROP_LIMIT}::test_a_catalog_that_loses_all_tables_gives_up_less_than_half[by events-6]",
        "assert dropped == (max(1, (count - 1) // 2) if told else 0)",
    ),
    Mutant(
        "08-old-name-is-another-drop",
        f"{BRAKE}::test_renamed_and_dropped_table_counts_once[asyncio-SQLite-True-True]",
        "assert await allowed(ground, claim) == [True]",
    ),
    Mutant(
        "08-one-uuid-is-one-table",
        f"{BRAKE}::test_two_names_of_one_uuid_count_twice_without_a_rename[asyncio-SQLite]",
        "assert await allowed(ground, *(await ground.claims())) == [True, False, False, False]",
    ),
    Mutant(
        "08-swapped-names-are-one-table",
        f"{BRAKE}::test_tables_with_swapped_names_count_twice[asyncio-SQLite]",
        'assert not await permitted(ground, one, drop_of(one, "u1"))',
    ),
    Mutant(
        "08-counted-table-is-held-under-its-other-name",
        f"{BRAKE}::test_other_name_of_a_counted_table_passes_a_reached_limit[asyncio-SQLite]",
        "assert await allowed(ground, new, *other, old) == [True, False, False, True]",
    ),
    Mutant(
        "08-older-event-undoes-a-release",
        f"{LOG}::test_release_of_a_held_table_is_not_undone_by_an_older_event[asyncio-SQLite-0]",
        "assert (claims[ORDERS].on_hold, claims[ORDERS].limit_overridden) == (False, True)",
    ),
    Mutant(
        "08-old-names-make-a-catalog-larger",
        f"{BRAKE}::test_old_names_do_not_enlarge_a_catalog[asyncio-SQLite]",
        'assert await ground.inbox.max_missing("prod") == 2',
    ),
    Mutant(
        "08-sweep-counts-names",
        f"{SWEEP}::test_a_renamed_table_that_is_missing_under_both_names_is_one_absence[asyncio-True-True]",
        "assert (await world.swept()).within_limit is calm",
    ),
    Mutant(
        "08-a-second-spelling-is-an-absence",
        f"{SWEEP}::test_a_table_that_is_listed_under_another_name_as_it_was_published_is_no_absence",
        "assert (await world.swept()).within_limit",
    ),
    Mutant(
        "08-what-came-back-stays-held",
        f"{SWEEP}::test_a_held_table_that_is_there_again_is_told_so_that_it_is_held_no_more",
        "assert world.told == [back.dotted]",
    ),
    Mutant(
        "09-hint-before-document",
        f"{DIRECTED}::test_an_events_own_location_is_never_written",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-tombstone-before-hint-is-silenced",
        f"{DIRECTED}::test_the_hint_of_a_dropped_table_goes_first",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-newest-file-makes-room-first",
        f"{ORDER}::test_the_newest_file_of_a_table_makes_room_only_after_the_older_ones",
        'assert line.document(B)["metadata_file_path"] == second.metadata_location',
    ),
    Mutant(
        "09-what-leads-on-makes-room-first",
        f"{ORDER}::test_what_leads_on_makes_room_only_after_what_would_lead_back",
        'assert line.document(A)["state"] == "renamed"',
    ),
    Mutant(
        "09-what-stays-is-waited-for",
        f"{ORDER}::test_it_does_not_wait_for_a_file_that_stays",
        'assert (line.document(A)["guid"], line.document(B)["state"]) == (second.uuid, "current")',
    ),
    Mutant(
        "09-document-not-read-after-the-hint",
        f"{LEASES}::test_a_late_hint_is_found_out_by_the_document",
        "assert stage.world.checker.hint(PLACE) == first.metadata_location",
    ),
    Mutant(
        "09-hint-made-anew-beside-an-old-document",
        f"{LEASES}::test_a_late_tombstone_meets_the_document_of_who_made_its_hint_anew",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-number-that-is-named-is-ours",
        f"{FILES}::test_their_hint_stays_as_it_is_whatever_becomes_of_the_name[2-setting0]",
        broken("foreign hint touched"),
    ),
    Mutant(
        "10-writes-before-the-store-is-proven",
        f"{REFUSED}::test_a_refused_store_gets_no_file[asyncio-False]",
        "it was written to before it was proven",
    ),
    Mutant(
        "10-proof-passes-over-what-must-hold",
        f"{QUIRKS}::test_refused_store_has_a_reason_and_no_probe_file_left[asyncio-weak tags never match]",
        "DID NOT RAISE",
    ),
    Mutant(
        "10-what-was-deleted-comes-back",
        f"{QUIRKS}::test_accepted_store_has_no_probe_file_left[asyncio-If-Match sees what was deleted]",
        "assert proven == Guarantees",
    ),
    Mutant(
        "10-delete-without-condition",
        f"{LEASES}::test_a_late_delete_meets_what_came_in_the_tombstones_place",
        broken("a live file was deleted"),
    ),
    Mutant(
        "11-outage-is-the-tables-trouble",
        f"{DIRECTED}::test_trouble_of_a_catalog_spends_no_tables_budget",
        "assert row.attempt <= 1",
    ),
    Mutant(
        "11-what-is-denied-is-the-tables-trouble",
        f"{TROUBLE}::test_a_store_that_denies_everything_for_a_while_gives_no_table_up[asyncio]",
        'assert set(await outcomes_for(made, 10 * PROPAGATION_SECONDS)) == {"returned"}',
    ),
    Mutant(
        "11-witness-that-is-denied-too-is-not-heard",
        f"{DENIALS}::test_the_begin_of_an_outage_that_has_not_reached_every_table_makes_no_dead_letter",
        "assert reach(denials, elsewhere=False) is DenialReach.STORE",
    ),
    Mutant(
        "11-denied-alone-holds-up-the-store",
        f"{TROUBLE}::test_a_table_that_alone_is_denied_becomes_a_dead_letter_and_stops_no_other[asyncio]",
        "assert isinstance(the_only(await made.hear(OTHER)), Done)",
    ),
    Mutant(
        "11-shortage-is-a-defect",
        f"{TROUBLE}::test_a_shortage_of_this_process_spends_no_tables_budget[asyncio-EMFILE]",
        "assert isinstance(outcome, Returned)",
    ),
    Mutant(
        "11-one-hungry-table-holds-up-all",
        f"{TROUBLE}::test_a_table_that_alone_meets_a_shortage_holds_up_no_other[asyncio]",
        'assert (kinds.count("retry"), kinds.count("dead")) == (2, 1)',
    ),
    Mutant(
        "11-denied-is-left-for-hours",
        f"{TROUBLE}::test_a_table_that_is_denied_is_looked_at_again_soon[asyncio]",
        "assert (outcome.reason, outcome.recheck_at) == (DeadLetterReason.PERMANENT, ",
    ),
    Mutant(
        "11-given-up-is-not-late",
        f"{CLAIMS}::test_dead_job_is_overdue_until_its_dead_letter_is_closed[asyncio-SQLite-exhausted]",
        'assert (await ground.inbox.stats()).oldest_due == {"prod": given_up}',
    ),
    *FACADES,
    *GATEWAYS,
    *INTENTS,
    *LISTINGS,
    *NAMINGS,
    *SHARED,
)
