"""The mutants of the facade, and of what a catalog cannot list or counts as gone."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

ANSWERS = "tests/unit/test_facade_app.py"
BENEATH = "tests/unit/test_facade_metadata_files.py"
INDEX = "tests/unit/test_facade_discovery.py"
LOADING = "tests/unit/test_facade_tables.py"
ROSTER = "tests/unit/test_facade_tables.py"
ROUTES = "tests/unit/test_facade_routes.py"
SERVED = "tests/unit/test_facade_tables.py"

FACADES = (
    Mutant(
        "16-metadata-lacks-the-guard",
        f"{SERVED}::test_the_table_is_served_as_it_is_but_for_the_guard",
        'assert found["metadata"]["properties"]["gc.enabled"] == "false"',
    ),
    Mutant(
        "16-data-files-have-a-place",
        f"{SERVED}::test_the_table_is_served_as_it_is_but_for_the_guard",
        'assert found["metadata"]["properties"]["write.data.path"].startswith("file:///dev/null/")',
    ),
    Mutant(
        "16-location-is-not-checked",
        f"{SERVED}::test_a_location_elsewhere_is_refused[/wide]",
        'with pytest.raises(Unsafe, match="for the table")',
    ),
    Mutant(
        "16-tag-is-of-every-uuid",
        f"{LOADING}::test_each_choice_of_snapshots_has_a_tag_of_its_own",
        "assert entity_tag(doc, ALL) != entity_tag(ground.place.document(guid=OTHER_UUID), ALL)",
    ),
    Mutant(
        "16-pointer-is-remembered",
        f"{LOADING}::test_a_commit_is_told_of_at_once",
        "assert isinstance(found, TableResponse)",
    ),
    Mutant(
        "16-commits-are-no-method",
        f"{ROUTES}::test_nothing_can_be_changed_and_commits_are_forbidden[POST-/v1/p/namespaces/a/tables/t-403]",
        "assert refused.value.status == status",
    ),
    Mutant(
        "16-commits-are-not-sent",
        f"{ANSWERS}::test_the_configuration_names_the_catalog_and_what_may_be_asked",
        'assert len(answer.json["endpoints"]) == 7',
    ),
    Mutant(
        "16-links-lead-outside",
        f"{BENEATH}::test_a_link_that_leads_outside_is_refused[plain-/etc/passwd]",
        "with pytest.raises(Unsafe)",
    ),
    Mutant(
        "16-what-nobody-looked-for-is-denied",
        f"{INDEX}::test_before_the_first_look_nothing_is_denied",
        "with pytest.raises(Unreachable)",
    ),
    Mutant(
        "16-look-ends-with-who-asked",
        f"{INDEX}::test_who_goes_away_ends_no_look",
        'assert set(await index.tables()) == {("sales",)}',
    ),
    Mutant(
        "16-one-root-holds-up-all",
        f"{LOADING}::test_a_root_that_is_slow_holds_up_no_other_and_is_given_up",
        "assert before == 0",
    ),
    Mutant(
        "16-trouble-of-the-inbox-hides-tables",
        f"{ROSTER}::test_an_inbox_in_trouble_hides_no_table_that_is_known",
        'assert await rows.find(SALES, "orders") is known',
    ),
)

WITHHELD: Final = "tests/unit/test_worker_sweep.py"
WALK: Final = "tests/unit/test_catalogs_rest_listing.py"

LISTINGS = (
    Mutant(
        "08-withheld-namespace-loses-its-tables",
        f"{WITHHELD}::test_what_is_withheld_counts_as_present_and_is_told_of_once[asyncio]",
        'assert world.told == ["closed_too.t", "open.t"]',
    ),
    Mutant(
        "08-held-where-nothing-is-listed-counts-no-more",
        f"{WITHHELD}::test_what_is_held_in_a_namespace_that_could_not_be_listed_still_counts[asyncio-1-False]",
        "assert (await world.swept()).within_limit is calm",
    ),
    Mutant(
        "08-sweep-counts-for-what-it-could-not-list",
        "tests/promises/test_inbox_jobs.py::test_sweep_does_not_count_for_unlisted_namespaces[asyncio-SQLite]",
        "assert swept == dict.fromkeys(unseen)",
    ),
    Mutant(
        "08-unknown-404-needs-no-listing",
        "tests/unit/test_catalogs_rest_errors.py"
        "::test_a_404_of_another_type_counts_once_no_listing_names_the_table[asyncio-BaseException-404-404]",
        "DID NOT RAISE",
    ),
    Mutant(
        "11-one-namespace-ends-the-walk",
        f"{WALK}::test_a_namespace_that_fails_is_withheld_and_all_others_are_walked[asyncio-500]",
        "InternalServerError",
    ),
    Mutant(
        "11-outage-is-every-namespaces-trouble",
        f"{WALK}::test_a_catalog_that_lists_no_namespace_at_all_fails_the_walk_soon[asyncio-100]",
        'assert sum("/tables" in path for path in server.asked)',
    ),
    Mutant(
        "15-commit-under-an-unmapped-prefix-is-silent",
        "tests/unit/test_gateway_routes.py::test_commits_under_an_unmapped_prefix_are_counted_and_logged_once[asyncio]",
        "assert stage.unmapped == 4",
    ),
)
