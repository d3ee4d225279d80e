"""The mutants of what files are called and where they lead, of commits' own files, of branches and of refreshes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, broken

FORWARDED = "tests/simulation/test_forwarding.py"
FILES = "tests/simulation/test_files.py"
REFRESHED = f"{FILES}::test_nothing_of_ours_grows_old_enough_to_be_cleaned_away"

FOUND_AGAIN = "tests/unit/test_publish_drops.py"
RENAMED = "tests/unit/test_publish_drops.py"
ALIASED = "tests/unit/test_publish_aliases.py"

RIVALS = "tests/unit/test_publish_version_hint.py"

NAMINGS = (
    Mutant(
        "09-number-is-a-hint",
        f"{RIVALS}::test_a_name_that_readers_take_for_another_has_no_hint[asyncio-3]",
        "assert line.hint() is None",
    ),
    Mutant(
        "01-head-that-nobody-shows-is-named",
        "tests/unit/test_reader_metadata.py::test_what_the_service_names_as_snapshot_is_none_where_no_reader_shows_one",
        "assert published is None",
    ),
    Mutant(
        "01-uuid-has-two-spellings",
        "tests/unit/test_publish_event_only.py::test_a_uuid_may_be_spelled_otherwise[asyncio-without hyphens]",
        '== ("dropped", uuid)',
    ),
    Mutant(
        "09-hint-has-a-rival",
        f"{RIVALS}::test_there_is_no_hint_where_duckdb_would_open_another_file[asyncio]",
        "assert line.hint() is None",
    ),
    Mutant(
        "09-refresh-looks-for-no-rival",
        f"{RIVALS}::test_a_rival_that_comes_later_is_found_by_the_refresh[asyncio]",
        "assert line.hint() is None",
    ),
    Mutant(
        "07-heir-beside-is-overlooked",
        f"{FORWARDED}::test_a_table_is_not_given_up_while_a_file_beside_says_its_new_name",
        'n_a_main.ver")["state"] == "current"',
    ),
    Mutant(
        "07-sweep-tells-of-no-rename",
        f"{FORWARDED}::test_a_table_is_not_given_up_while_a_sweep_knows_its_new_name",
        'n_a_main.ver")["state"] == "current"',
    ),
    Mutant(
        "05-stopped-look-is-memory",
        "tests/unit/test_publish_commit_files.py::test_also_after_a_look_that_ended_before_it_saw_them[asyncio]",
        "assert line.pointers[-1] == after.metadata_location",
    ),
    Mutant(
        "07-sweep-forgets-what-is-missed",
        f"{FORWARDED}::test_a_table_that_another_one_has_the_name_of_is_not_given_up_while_a_sweep_knows_its_new_name",
        'n_a_main.ver")["state"] == "current"',
    ),
    Mutant(
        "07-tombstone-is-the-end",
        f"{FORWARDED}::test_a_table_that_was_given_up_too_early_is_found_again",
        broken("rest: a table that is not found where it was"),
    ),
    Mutant(
        "07-tombstone-stays-where-it-is",
        f"{FOUND_AGAIN}::test_a_tombstone_leads_on_once_its_table_is_there_at_another_place[asyncio]",
        'assert restored.document(A)["moved_to"]["sfn_file_path"].startswith(ELSEWHERE)',
    ),
    Mutant(
        "07-old-name-again-leads-by-the-other",
        f"{RENAMED}::test_a_table_that_has_its_old_name_again_elsewhere_is_not_said_to_be_another[asyncio]",
        'assert (left["state"], left["moved_to"]["name"], left.get("name_now")) == ("moved", "a", None)',
    ),
    Mutant(
        "08-drop-is-of-every-table",
        f"{FOUND_AGAIN}::test_a_drop_is_not_told_of_what_the_row_missed_before_it_had_that_table[asyncio]",
        'assert restored.document(A)["state"] == "current"',
    ),
    Mutant(
        "08-drop-is-told-once-more",
        "tests/unit/test_inbox_transitions.py::test_a_drop_that_a_claim_saw_through_is_not_told_once_more[True-outcome0-False]",
        "assert (after.pending.drop, after.pending.purge, after.due_at) == (kept, kept, NOW)",
    ),
    Mutant(
        "08-drop-outlives-its-table",
        f"{FORWARDED}::test_a_drop_told_of_one_table_gives_up_no_other",
        'n_a_main.ver")["state"] == "current"',
    ),
    Mutant(
        "09-two-names-are-two-places",
        f"{ALIASED}::test_a_table_that_gets_another_name_of_its_directory_stays_live"
        "[asyncio-inside-identifier-file:///lake/link]",
        "assert self.guarded.harm == []",
    ),
    Mutant(
        "09-copy-is-another-name",
        f"{ALIASED}::test_a_copy_of_the_directory_is_no_other_name_of_it[asyncio]",
        "assert left is None or version_hint.is_cleared(left.body)",
    ),
    Mutant(
        "09-refreshed-hint-is-another-name",
        f"{ALIASED}::test_a_copied_table_keeps_its_file_names_when_its_refresh_is_due"
        "[asyncio-file:///lake/elsewhere-identifier-True]",
        "assert left is None or version_hint.is_cleared(left.body)",
    ),
    Mutant(
        "09-hint-goes-by-what-is-remembered",
        f"{ALIASED}::test_a_directory_that_says_it_moved_to_itself_is_repaired_without_a_commit[asyncio-identifier-True]",
        "assert said == wanted",
    ),
    Mutant(
        "09-heir-by-another-name-is-forwarded-to",
        f"{ALIASED}::test_a_table_may_be_renamed_and_get_another_name_of_its_directory_at_once[asyncio-uuid]",
        'assert (await line.document_at(key))["state"] == "current"',
    ),
    Mutant(
        "09-hint-made-meanwhile-stays",
        f"{ALIASED}::test_a_hint_that_is_made_while_a_second_table_comes_does_not_stay[asyncio]",
        "assert said == wanted",
    ),
    Mutant(
        "09-links-below-a-location-are-followed",
        "tests/unit/test_storage_links.py::test_a_folder_below_the_location_that_is_a_link_is_refused"
        "[metadata-metadata/version-hint.text-b/orders-replace]",
        "with pytest.raises(Permanent)",
    ),
    Mutant(
        "09-branch-stays-behind",
        f"{FILES}::test_a_branch_that_ended_before_a_rename_has_no_live_file_for_ever",
        broken("rest: current for ever"),
    ),
    Mutant(
        "09-newest-of-a-name-ends-first",
        "tests/unit/test_publish_existing_files.py::test_the_newest_file_of_a_name_ends_only_after_the_older_ones[asyncio]",
        'assert [line.of(table)["state"] for table in (first, second)] == ["current", "current"]',
    ),
    Mutant(
        "09-jobs-that-wait-wake-one-another",
        "tests/unit/test_publish_drops.py::test_names_that_wait_for_one_another_at_one_place_wake_nobody[asyncio]",
        "publishes and no end",
    ),
    Mutant(
        "09-deleted-hint-wakes-no-table",
        "tests/unit/test_publish_decide.py::test_who_came_while_a_tombstone_took_the_hint_along_writes_it_again[asyncio]",
        "assert line.hint() == said is not None",
    ),
    Mutant(
        "09-newer-file-is-forwarded-before-older",
        f"{RENAMED}::test_a_newer_file_leads_on_to_another_place_only_after_an_older_one[asyncio-last1]",
        """["current"] * 3""",
    ),
    Mutant(
        "09-newer-file-moves-before-older",
        f"{RENAMED}::test_a_newer_file_leads_on_to_another_place_only_after_an_older_one[asyncio-last0]",
        """["current"] * 3""",
    ),
    Mutant(
        "09-tombstone-leads-to-older",
        "tests/unit/test_publish_drops.py"
        "::test_what_only_a_lost_inbox_knew_goes_before_what_leads_to_it[asyncio-not purged]",
        'if state[0] != "current" and state[1] == "current"] == []',
    ),
    Mutant(
        "09-inbox-orders-files-by-another-time",
        "tests/unit/test_publish_drops.py::test_two_names_of_a_dropped_table_agree_which_file_is_older[asyncio]",
        "older SFN files of the same table must go first",
    ),
    Mutant(
        "09-own-older-file-goes-last",
        "tests/unit/test_publish_decide.py"
        "::test_an_older_file_of_ones_own_goes_before_another_table_takes_the_place_of_the_newest[asyncio]",
        'assert ("current", second.uuid) not in store.states',
    ),
    Mutant(
        "09-same-pointer-is-older",
        "tests/unit/test_publish_decide.py::test_a_file_that_says_the_same_is_not_waited_for[asyncio]",
        'assert (line.document(A)["guid"], line.document(B)["guid"]) == (table.uuid, new.uuid)',
    ),
    Mutant(
        "09-older-of-a-row-that-went-on-is-forgotten",
        "tests/unit/test_publish_decide.py"
        "::test_an_older_one_is_waited_for_also_once_its_row_has_published_another_table[asyncio]",
        'assert (line.document(A)["state"], line.document(B, there)["guid"]) == ("current", gone.uuid)',
    ),
    Mutant(
        "09-name-of-another-catalog-is-waited-for",
        "tests/unit/test_publish_existing_files.py"
        "::test_a_rename_waits_for_no_file_of_another_catalog_that_has_the_name_too[asyncio]",
        'assert (body["state"], body["table_identifier"]) == ("current", name.dotted)',
    ),
    Mutant(
        "09-tombstone-elsewhere-is-not-woken",
        f"{FOUND_AGAIN}::test_tombstone_leads_on_at_once_where_only_the_new_name_at_another_place_was_told_of[asyncio]",
        'assert restored.document(A)["state"] == "renamed"',
    ),
    Mutant(
        "07-broken-lead-stays",
        f"{FOUND_AGAIN}::test_what_leads_to_a_file_that_is_gone_leads_on_once_the_table_has_another_name[asyncio]",
        'assert (restored.document(A)["state"], restored.document(A)["moved_to"]["name"]) == ("renamed", "c")',
    ),
    Mutant(
        "09-older-elsewhere-is-overlooked",
        "tests/unit/test_publish_decide.py"
        "::test_that_is_so_too_where_an_older_one_lies_at_a_place_that_the_table_left[asyncio]",
        'assert line.document(B, there)["state"] == "current"',
    ),
    Mutant(
        "09-hint-of-the-old-name-stays",
        f"{RENAMED}::test_no_hint_says_what_only_the_old_names_file_said[asyncio]",
        "assert store.hints[key_of(B)] in {None, version_hint.content(first)}",
    ),
    Mutant(
        "13-old-place-is-the-newest",
        "tests/unit/test_publish_commit_files.py::test_a_table_that_moved_has_no_commit_twice_once_its_log_is_cut",
        "assert pointers == [*last.metadata_log, last.metadata_location][-len(pointers) :]",
    ),
    Mutant(
        "09-newest-file-of-a-gone-table-goes-first",
        "tests/unit/test_publish_locations.py::test_of_two_files_of_a_table_that_is_gone_the_older_one_goes_first"
        "[asyncio-ordinal-identifier-tombstone]",
        "assert {first.metadata_location} not in store.live[since:]",
    ),
    Mutant(
        "09-first-place-is-where-it-lives",
        "tests/unit/test_publish_decide.py::test_two_names_of_a_table_that_is_gone_do_not_wait_for_one_another",
        "publishes and no end",
    ),
    Mutant(
        "09-hint-that-was-found-is-kept",
        "tests/unit/test_publish_decide.py::test_two_tables_of_one_directory_that_end_at_once_leave_no_hint",
        "assert line.hint() is None",
    ),
    Mutant(
        "09-hint-that-is-to-be-replaced-goes",
        "tests/unit/test_publish_decide.py::test_a_hint_that_the_same_table_under_another_name_will_replace_stays",
        "assert line.hint() == said is not None",
    ),
    Mutant(
        "09-name-is-taken-under-one-spelling",
        "tests/unit/test_publish_spellings.py::test_the_file_of_another_spelling_says_whose_the_name_is_now",
        'assert left["name_now"]["sfn_file_path"] == key_of(LISTED, "file:///warehouse/second")',
    ),
    Mutant(
        "09-hint-speaks-for-who-has-no-file",
        "tests/unit/test_publish_locations.py"
        "::test_a_hint_beside_a_file_by_uuid_goes_once_the_table_has_its_file_by_another_naming[asyncio]",
        "assert store.hints[key] is None",
    ),
    Mutant(
        "07-plain-name-without-check",
        f"{FILES}::test_two_identifiers_with_one_plain_name_each_have_a_file",
        broken("refused: name"),
    ),
    Mutant(
        "07-twin-takes-the-file",
        f"{FILES}::test_a_file_by_uuid_is_taken_over_only_from_who_lost_the_table",
        'assert json.loads(stage.world.files.bodies[file])["name"] == "a"',
    ),
    Mutant(
        "09-branch-before-its-table",
        f"{FILES}::test_every_branch_follows_the_pointer",
        broken("a branch ahead of its table"),
    ),
    Mutant(
        "09-commits-before-head",
        f"{FILES}::test_a_head_is_written_and_before_the_files_of_commits",
        broken("rest: a timeline that lacks a commit"),
    ),
    Mutant(
        "09-commits-without-head",
        "tests/unit/test_publish_commit_files.py::test_whoever_writes_the_file_of_a_commit_has_written_the_head",
        'assert line.head["metadata_file_path"] == last.metadata_location',
    ),
    Mutant(
        "09-hint-before-head",
        f"{FILES}::test_a_head_is_written_and_before_the_files_of_commits",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-leading-file-ends-first",
        f"{FILES}::test_branches_end_before_what_leads_them",
        broken("rest: current for ever"),
    ),
    Mutant(
        "09-older-of-the-name-ends-first",
        f"{FILES}::test_a_table_that_was_made_anew_is_there_before_the_older_one_ends",
        broken("refused: name"),
    ),
    Mutant(
        "09-older-of-the-name-stays",
        f"{FILES}::test_of_two_files_by_uuid_the_older_one_loses_the_name_at_once",
        broken("moved back: name"),
    ),
    Mutant(
        "09-moved-is-dropped",
        f"{FORWARDED}::test_whoever_comes_to_where_a_table_was_is_led_to_where_it_is[identifier]",
        broken("rest: a table that is not found where it was"),
    ),
    Mutant(
        "09-name-now-is-not-said",
        f"{FORWARDED}::test_whoever_calls_a_table_by_a_name_that_another_one_has_now_is_told_both",
        broken("rest: a name that is not said to be taken"),
    ),
    Mutant(
        "09-renamed-is-dropped",
        f"{FORWARDED}::test_whoever_calls_a_table_as_it_was_called_is_led_to_it[identifier]",
        broken("rest: a table that is not found where it was"),
    ),
    Mutant(
        "10-purge-leaves-commits",
        f"{FILES}::test_a_purge_leaves_no_file",
        'assert [key for key in stage.world.files.bodies if key.endswith(".ver")]',
    ),
    Mutant(
        "13-between-is-turned-around",
        f"{FILES}::test_commits_that_come_as_one_are_all_in_the_timeline",
        broken("rest: a timeline out of order"),
    ),
    Mutant(
        "13-branch-keeps-an-old-pointer", f"{FILES}::test_every_branch_follows_the_pointer", broken("rest: branches")
    ),
    Mutant(
        "13-commits-that-coalesced-are-lost",
        f"{FILES}::test_commits_that_come_as_one_are_all_in_the_timeline",
        broken("rest: a timeline that lacks a commit"),
    ),
    Mutant(
        "13-dead-writers-commits-are-lost",
        f"{FILES}::test_a_commit_whose_writer_died_gets_its_file_from_the_next_one",
        broken("rest: a timeline that lacks a commit"),
    ),
    Mutant(
        "13-older-commits-name-what-never-was",
        f"{FILES}::test_commits_that_come_as_one_are_all_in_the_timeline",
        broken("lie: commit"),
    ),
    Mutant("14-refresh-leaves-commits", f"{REFRESHED}[commits]", broken("cleaned away")),
    Mutant("14-refresh-leaves-hint", f"{REFRESHED}[alongside]", broken("cleaned away")),
    Mutant("14-refresh-leaves-tombstones", f"{REFRESHED}[uuid]", broken("cleaned away")),
)
