"""Iceberg's own Java client does through a gateway what it does without one, by Iceberg's own tests.

What became of each test without a gateway is on record: it hangs on jars that are pinned, and takes as long again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.integration.gateway_catalog import gated
from tests.integration.rck import EXPECTED, FAILED, PASSED, Outcomes, compatibility_kit, pinned, secluded, tried
from tests.support.pages import differences
from tests.support.programs import runtime

ANEW = "if Iceberg's own server does so itself: python -m tests.integration.rck"


def expected() -> Outcomes:
    return Outcomes.parse(EXPECTED.read_text())


def test_every_test_of_the_kit_ends_through_a_gateway_as_without_and_the_service_follows(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kit, found = compatibility_kit(), secluded(tmp_path.resolve(), runtime())
    (tmp_path / "kit").mkdir()
    with gated(tmp_path.resolve(), found) as place:
        run = tried(tmp_path / "kit", found, kit, place.uri)
        counts = f"{run.outcomes.counts()} in {run.seconds:.0f} s"
        print(f"through the gateway: {counts}; without: {expected().counts()}")
        record_property("kit", counts)
        different = differences(expected(), run.outcomes)
        assert not different, "\n".join([*different, *run.why.values(), ANEW])
        followed = place.until_followed()
        commits, others = place.passed("commit"), place.passed("other")
        print(f"commits {commits}, other requests {others}; {len(followed)} tables left")
        retired = [file.name for file in place.warehouse.glob("**/_sfn/*.ver")]
        # The kit clears its namespaces before each test and after the last.
        assert followed == {}
        assert len(retired) > 5
        assert place.intents(left=False) == 0
        assert place.intents(left=True) <= commits["4xx"]
        assert commits.keys() == {"2xx", "4xx"}
        assert commits["2xx"] > 400
        assert others.keys() == {"2xx", "4xx"}


def test_nearly_every_test_of_the_kit_passes_without_a_gateway() -> None:
    outcomes = [*expected().tests.values()]
    assert outcomes.count(PASSED) == 144
    assert [name for name, outcome in expected().named() if outcome == FAILED] == [
        # The kit expects the words of a catalog that is not JDBC's.
        "RESTCompatibilityKitCatalogTests.tableCreationWithoutNamespace()"
    ]


def test_it_was_tried_with_what_is_pinned() -> None:
    assert expected().jars == pinned(), ANEW
