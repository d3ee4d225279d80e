"""Each rule of the design, broken on purpose: the one promise that must notice does notice.

A mutant is a patch. It is applied to a copy of the tree, and its test is run there, against the copy.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests" / "mutants"
DIRECTED = "tests/simulation/test_directed.py"
SLEEPERS = "tests/simulation/test_sleepers.py"
ORDER = "tests/unit/test_publish_order.py"
BESIDE = "tests/unit/test_publish_beside.py"
SWEEP = "tests/unit/test_sweep.py"
CLAIMS = "tests/promises/test_inbox_claims.py"
ELSEWHERE = {"ack-before-commit.patch"}
"""Patches that other tests apply."""
LONGEST = 100
Ended: TypeAlias = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule broken.

    Attributes:
        patch: file name without `.patch`.
        rule: number of the design's rule.
        killer: the test that must fail.
        promise: what its failure must say: the failed assertion, or the kind of promise that was broken first.
    """

    patch: str
    rule: int
    killer: str
    promise: str


def broken(kind: str) -> str:
    """The checker's first complaint."""
    return f"first item: ('{kind}'"


TABLE = (
    Mutant(
        "01-writes-what-the-event-told",
        1,
        f"{DIRECTED}::test_an_events_own_location_is_never_written",
        broken("lie: name"),
    ),
    Mutant(
        "02-hint-resets-the-retry",
        2,
        f"{DIRECTED}::test_hints_do_not_defeat_the_backoff",
        'assert stage.world.counts["retry"] < 20',
    ),
    Mutant(
        "02-freed-slot-wakes-nobody",
        2,
        f"{DIRECTED}::test_a_slot_that_is_freed_after_the_bell_rang_is_taken",
        'assert stage.states(names)["current"] == 12',
    ),
    Mutant(
        "03-claim-counts-no-attempt",
        3,
        f"{DIRECTED}::test_a_claim_that_ends_the_process_runs_out_of_attempts",
        "assert (row.reason, row.attempt) == (Reason.POISON, 5)",
    ),
    Mutant(
        "03-lost-lease-counts-no-crash",
        3,
        f"{DIRECTED}::test_a_claim_that_ends_the_process_runs_out_of_attempts",
        "assert (row.reason, row.attempt) == (Reason.POISON, 5)",
    ),
    Mutant(
        "03-poison-is-left-for-ever",
        3,
        f"{DIRECTED}::test_a_claim_that_ends_the_process_runs_out_of_attempts",
        broken("rest: not one live file"),
    ),
    Mutant(
        "03-token-repeats",
        3,
        f"{CLAIMS}::test_no_claim_of_a_forgotten_row_has_its_successor",
        "assert new.token != old.token",
    ),
    Mutant(
        "03-lost-lease-tells-nobody",
        3,
        f"{SLEEPERS}::test_who_wrote_a_hint_after_its_lease_was_lost_has_the_row_looked_at_again",
        broken("rest: hint stale"),
    ),
    Mutant(
        "04-tag-after-the-answer",
        4,
        f"{SLEEPERS}::test_who_read_the_tag_after_the_answer_asks_again",
        broken("moved back: name"),
    ),
    Mutant(
        "05-memory-may-skip",
        5,
        f"{DIRECTED}::test_memory_does_not_skip",
        "assert HINT in stage.world.files.bodies",
    ),
    Mutant(
        "05-echo-skips-on-memory",
        5,
        f"{ORDER}::test_memory_skips_nothing_for_an_event_that_says_no_more_than_look",
        "assert sorted(line.store.files) == [key_of(A), hintfile.key(AT)]",
    ),
    Mutant(
        "06-location-remembered-afterwards",
        6,
        f"{DIRECTED}::test_a_location_is_known_before_anything_is_written_there",
        broken("rest: current for ever"),
    ),
    Mutant(
        "07-heir-not-waited-for",
        7,
        f"{DIRECTED}::test_a_rename_forwards_only_to_a_file_that_is_there",
        broken("forwards to nothing"),
    ),
    Mutant(
        "07-hint-of-another-catalog-silenced",
        7,
        f"{BESIDE}::test_a_hint_that_a_live_file_of_somebody_elses_says_stays",
        "assert line.hint() == said",
    ),
    Mutant(
        "08-refused-location-gives-up",
        8,
        f"{DIRECTED}::test_locations_that_are_refused_give_up_no_table",
        'assert stage.states(list("abc")) == {"current": 3}',
    ),
    Mutant(
        "08-held-counts-no-more",
        8,
        f"{SWEEP}::test_what_is_held_already_counts_among_the_absences",
        "assert not (await world.swept()).calm",
    ),
    Mutant(
        "08-no-wait",
        8,
        f"{DIRECTED}::test_an_older_answer_soon_after_a_write_is_not_followed",
        broken("moved back: name"),
    ),
    Mutant(
        "08-unknown-order-is-forward",
        8,
        f"{ORDER}::test_an_abandoned_pointer_of_the_same_number_does_not_come_back",
        'assert line.document(A)["metadata_file_path"] == current.metadata_location',
    ),
    Mutant(
        "08-turned-ignored",
        8,
        f"{DIRECTED}::test_an_abandoned_pointer_does_not_come_back",
        broken("moved back: name"),
    ),
    Mutant(
        "08-other-names-do-not-count",
        8,
        f"{ORDER}::test_under_its_old_name_a_table_is_not_followed_back_by_a_replica_that_lags",
        'assert line.document(A)["metadata_file_path"] == first.metadata_location',
    ),
    Mutant(
        "08-brake-lets-everything-pass",
        8,
        f"{DIRECTED}::test_events_of_drops_pass_no_more_than_the_brake_allows",
        'assert stage.states(names) == {"current": 5, "dropped": 3}',
    ),
    Mutant(
        "09-hint-before-document",
        9,
        f"{DIRECTED}::test_an_events_own_location_is_never_written",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-tombstone-before-hint-is-silenced",
        9,
        f"{DIRECTED}::test_the_hint_of_a_dropped_table_goes_first",
        broken("a hint without a document"),
    ),
    Mutant(
        "09-newest-file-makes-room-first",
        9,
        f"{ORDER}::test_the_newest_file_of_a_table_makes_room_only_after_the_older_ones",
        'assert line.document(B)["metadata_file_path"] == second.metadata_location',
    ),
    Mutant(
        "09-document-not-read-after-the-hint",
        9,
        f"{SLEEPERS}::test_a_late_hint_is_found_out_by_the_document",
        "assert stage.world.checker.hint(PLACE) == first.metadata_location",
    ),
    Mutant(
        "10-delete-without-condition",
        10,
        f"{SLEEPERS}::test_a_late_delete_meets_what_came_in_the_tombstones_place",
        broken("a live file was deleted"),
    ),
    Mutant(
        "11-outage-is-the-tables-trouble",
        11,
        f"{DIRECTED}::test_trouble_of_a_catalog_spends_no_tables_budget",
        "assert row.attempt <= 1",
    ),
)


@pytest.fixture(name="endings", scope="module")
def fixture_endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ended]]]:
    """How the test of each chosen mutant ends, by patch: as many at a time as there are processors."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    mutants = [params["mutant"] for params in chosen if "mutant" in params]
    with ThreadPoolExecutor(multiprocessing.cpu_count()) as runs:
        yield {one.patch: runs.submit(ending, one, tmp_path_factory.mktemp(one.patch)) for one in mutants}


def ending(mutant: Mutant, tree: Path) -> Ended:
    """Apply a mutant to a copy of the tree and run its test there."""
    copy(tree)
    patch = PATCHES / f"{mutant.patch}.patch"
    command = ["patch", "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch", "--input", str(patch)]
    applied = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, f"{patch.name} no longer applies, refresh it:\n{applied.stdout}{applied.stderr}"
    return outcome_of(tree, mutant.killer)


def copy(tree: Path) -> None:
    """Copy what the mutants and their tests are made of."""
    for part in ("service", "tests"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)


def run(tree: Path, *arguments: str) -> Ended:
    """Run Python in a copy of the tree, with the copy's packages before the installed ones."""
    inherited = os.environ  # noqa: TID251 - handed on to a process
    environment = {name: value for name, value in inherited.items() if not name.startswith(("PYTEST_", "COV"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(tree / "service"), str(tree)])
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["COLUMNS"] = "400"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


def outcome_of(tree: Path, *nodes: str) -> Ended:
    """Run tests in a copy of the tree, having seen that it is the copy which they import."""
    origin = run(tree, "-c", "import sfn, tests.simulation; print(sfn.__file__, tests.simulation.__file__)")
    assert origin.stdout.split() == [
        str(tree / "service" / "sfn" / "__init__.py"),
        str(tree / "tests" / "simulation" / "__init__.py"),
    ], origin.stderr
    return run(tree, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *nodes)


def complaints(output: str) -> str:
    """Pytest's lines that say which assertion failed, and how."""
    lines = [line for line in output.splitlines() if re.match(r"(>|E) ", line)]
    return "\n".join(lines).replace("first extra item: (", "first item: (").replace("one more item: (", "first item: (")


@pytest.mark.parametrize("mutant", TABLE, ids=lambda mutant: mutant.patch)
def test_a_mutant_is_killed_by_the_promise_that_it_breaks(mutant: Mutant, endings: dict[str, Future[Ended]]) -> None:
    ended = endings[mutant.patch].result()
    assert ended.returncode == 1, f"rule {mutant.rule}: {mutant.patch} lives\n{ended.stdout}{ended.stderr}"
    assert mutant.promise in complaints(ended.stdout), f"{mutant.patch} was killed by something else\n{ended.stdout}"


def test_what_kills_the_mutants_lets_the_code_as_it_is_live(tmp_path: Path) -> None:
    copy(tmp_path)
    ended = outcome_of(tmp_path, *dict.fromkeys(mutant.killer for mutant in TABLE))
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"


def test_every_rule_has_a_mutant_and_every_mutant_a_test() -> None:
    assert {mutant.rule for mutant in TABLE} == set(range(1, 12))
    assert {f"{mutant.patch}.patch" for mutant in TABLE} | ELSEWHERE == {path.name for path in PATCHES.glob("*.patch")}
