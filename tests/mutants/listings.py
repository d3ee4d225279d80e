"""The mutants of what a catalog cannot list, and of what counts as gone there."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

WITHHELD: Final = "tests/unit/test_worker_sweep.py"
WALK: Final = "tests/unit/test_catalogs_rest_listing.py"

LISTINGS = (
    Mutant(
        "08-withheld-namespace-loses-its-tables",
        8,
        f"{WITHHELD}::test_what_is_withheld_counts_as_present_and_is_told_of_once[asyncio]",
        'assert world.told == ["closed_too.t", "open.t"]',
    ),
    Mutant(
        "08-held-where-nothing-is-listed-counts-no-more",
        8,
        f"{WITHHELD}::test_what_is_held_in_a_namespace_that_could_not_be_listed_still_counts[asyncio-1-False]",
        "assert (await world.swept()).within_limit is calm",
    ),
    Mutant(
        "08-sweep-counts-for-what-it-could-not-list",
        8,
        "tests/promises/test_inbox_jobs.py::test_sweep_does_not_count_for_unlisted_namespaces[asyncio-memory]",
        "assert swept == dict.fromkeys(unseen)",
    ),
    Mutant(
        "08-unknown-404-needs-no-listing",
        8,
        "tests/unit/test_catalogs_rest_errors.py"
        "::test_a_404_of_another_type_counts_once_no_listing_names_the_table[asyncio-BaseException-404-404]",
        "DID NOT RAISE",
    ),
    Mutant(
        "11-one-namespace-ends-the-walk",
        11,
        f"{WALK}::test_a_namespace_that_fails_is_withheld_and_all_others_are_walked[asyncio-500]",
        "InternalServerError",
    ),
    Mutant(
        "11-outage-is-every-namespaces-trouble",
        11,
        f"{WALK}::test_a_catalog_that_lists_no_namespace_at_all_fails_the_walk_soon[asyncio-100]",
        'assert sum("/tables" in path for path in server.asked)',
    ),
    Mutant(
        "15-commit-under-an-unmapped-prefix-is-silent",
        15,
        "tests/unit/test_gateway_routes.py::test_commits_under_an_unmapped_prefix_are_counted_and_logged_once[asyncio]",
        "assert stage.unmapped == 4",
    ),
)
