"""The mutants of what files are called, of commits' own files, of branches and of refreshes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, broken

REFRESHED = "tests/simulation/test_refreshes.py::test_nothing_of_ours_grows_old_enough_to_be_cleaned_away"
SIMULATED = "tests/simulation/test_namings.py"

NAMINGS = (
    Mutant(
        "07-plain-name-without-check",
        7,
        f"{SIMULATED}::test_two_identifiers_with_one_plain_name_each_have_a_file",
        broken("rest: not one live file"),
    ),
    Mutant(
        "07-twin-takes-the-file",
        7,
        f"{SIMULATED}::test_a_file_by_uuid_is_taken_over_only_from_who_lost_the_table",
        'assert json.loads(stage.world.files.bodies[file])["name"] == "a"',
    ),
    Mutant(
        "09-commits-before-head",
        9,
        f"{SIMULATED}::test_a_head_is_written_and_before_the_files_of_commits",
        broken("rest: a timeline that lacks a commit"),
    ),
    Mutant(
        "09-commits-without-head",
        9,
        f"{SIMULATED}::test_a_head_is_written_and_before_the_files_of_commits",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-hint-before-head",
        9,
        f"{SIMULATED}::test_a_head_is_written_and_before_the_files_of_commits",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-leading-file-ends-first",
        9,
        f"{SIMULATED}::test_branches_end_before_what_leads_them",
        broken("rest: current for ever"),
    ),
    Mutant(
        "09-older-of-the-name-stays",
        9,
        f"{SIMULATED}::test_of_two_files_by_uuid_the_older_one_loses_the_name_at_once",
        broken("moved back: name"),
    ),
    Mutant(
        "10-purge-leaves-commits",
        10,
        f"{SIMULATED}::test_a_purge_leaves_no_file",
        'assert [key for key in stage.world.files.bodies if key.endswith(".ver")]',
    ),
    Mutant(
        "13-branch-keeps-an-old-pointer",
        13,
        f"{SIMULATED}::test_every_branch_follows_the_pointer",
        broken("rest: branches"),
    ),
    Mutant(
        "13-commits-that-coalesced-are-lost",
        13,
        f"{SIMULATED}::test_commits_that_come_as_one_are_all_in_the_timeline",
        broken("rest: a timeline that lacks a commit"),
    ),
    Mutant(
        "13-dead-writers-commits-are-lost",
        13,
        f"{SIMULATED}::test_a_commit_whose_writer_died_gets_its_file_from_the_next_one",
        broken("rest: a timeline that lacks a commit"),
    ),
    Mutant("14-refresh-leaves-commits", 14, f"{REFRESHED}[commits]", broken("cleaned away")),
    Mutant("14-refresh-leaves-hint", 14, f"{REFRESHED}[alongside]", broken("cleaned away")),
    Mutant("14-refresh-leaves-tombstones", 14, f"{REFRESHED}[uuid]", broken("cleaned away")),
)
