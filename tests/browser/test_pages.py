"""Every page in a browser, with no tables, with a few, and with many: whether all can use it, and what it weighs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.browser import faults
from tests.browser.stage import Stage, staged
from tests.servers.chromium import Chromium
from tests.support.processes import wait_for
from tests.support.programs import SURROUNDINGS

PAGES: Final = (
    "/ui",
    "/ui/tables",
    "/ui/tables?late=true",
    "/ui/tables?namespace=ns5",
    "/ui/dead-letters",
    "/ui/held-drops",
    "/ui/events",
    "/ui/log",
    "/ui/no-such-page",
)
MOST_BYTES: Final = 60_000
"""Of a page with everything that it loads."""
MANY: Final = 100_000
STRANGE: Final = '<img src=x onerror="document[`title`]=7">'
"""The name of a table that a browser would run, if a page forgot to escape it."""
PICTURES: Final = Path(SURROUNDINGS["SFN_PICTURES"]) if "SFN_PICTURES" in SURROUNDINGS else None
"""Where pictures for the documentation go; without it they are only made."""


@pytest.fixture(name="stages", scope="module")
def fixture_stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Stage]]:
    """A service for each number of tables."""
    with ExitStack() as stack:
        stages = {
            count: stack.enter_context(staged(tmp_path_factory.mktemp(f"{count}"), filled=count if count > 5 else 0))
            for count in (0, 5, MANY)
        }
        few = stages[5]
        for name in ("customers", "orders", "returns", "stock", STRANGE):
            few.lake.commit(name)
            few.tell(name)
        few.until_published("customers", "orders", "returns", "stock")
        yield stages


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 5, MANY])
def test_all_can_use_every_page(stages: dict[int, Stage], chromium: Chromium, count: int) -> None:
    stage = stages[count]
    stage.sign_in(chromium)
    first = "prod/sales/orders" if count == 5 else "prod/ns0/table_0"
    pages = PAGES if count == 0 else (*PAGES, f"/ui/tables/{first}", f"/ui/tables/{first}?catalog=now&files=now")
    for path in pages:
        for scheme in ("light", "dark"):
            chromium.show(scheme)
            chromium.open(stage.url + path)
            assert (path, scheme, chromium.barriers()) == (path, scheme, [])
        wrong = [one for one in chromium.complaints() if "no-such-page" not in one]
        assert (path, wrong) == (path, [])


@pytest.mark.slow
def test_no_page_weighs_more_than_it_may(stages: dict[int, Stage], chromium: Chromium) -> None:
    stage, weights = stages[MANY], dict[str, int]()
    stage.sign_in(chromium)
    for path in PAGES:
        chromium.forget_files()
        chromium.transferred()
        chromium.open(stage.url + path)
        weights[path] = sum(chromium.transferred().values())
    print("bytes of pages with everything:", weights)
    assert max(weights.values()) < MOST_BYTES


@pytest.mark.slow
def test_pages_are_read_without_scripts(stages: dict[int, Stage], chromium: Chromium) -> None:
    stage = stages[5]
    stage.sign_in(chromium)
    chromium.show("light", scripts=False)
    try:
        for path, text in {
            "/ui": "Last sweep",
            "/ui/tables": "sales.orders",
            "/ui/events": "prod:sales.orders",
        }.items():
            chromium.open(stage.url + path)
            assert text in chromium.text
        chromium.type("#token", "") if chromium.find_all("#token") else None
        chromium.open(f"{stage.url}/ui/tables/prod/sales/orders")
        chromium.press("Check now")
        assert "done=checked" in chromium.address
    finally:
        chromium.show("light")


@pytest.mark.slow
def test_names_of_tables_are_shown_and_not_run(stages: dict[int, Stage], chromium: Chromium) -> None:
    stage = stages[5]
    stage.sign_in(chromium)
    for path in ("/ui/tables", "/ui/events", "/ui/tables?table=sales.*"):
        chromium.open(stage.url + path)
        assert STRANGE in chromium.text
        assert chromium.title != "7"
    chromium.click('a[href*="onerror"]') if chromium.find_all('a[href*="onerror"]') else None
    assert chromium.title != "7"
    assert chromium.complaints() == []


@pytest.mark.slow
def test_a_dead_letter_is_replayed_after_its_cause_is_gone(tmp_path: Path, chromium: Chromium) -> None:
    with staged(tmp_path) as stage:
        faults.populate(stage)
        faults.foreign_file(stage)
        stage.sign_in(chromium)
        chromium.until_shown("1 dead letter of prod:sales.orders")
        chromium.press("Dead letters")
        for file in stage.lake.directory("orders").rglob("*.ver"):
            file.unlink()
        chromium.press("Replay this one")
        chromium.press("Replay 1 dead letter")
        stage.until_published("orders")
        chromium.open(f"{stage.url}/ui")
        chromium.until_shown("all is well")
        chromium.open(f"{stage.url}/ui/log")
        assert "replay" in chromium.text


@pytest.mark.slow
def test_held_drops_pass_once_the_catalog_is_named(tmp_path: Path, chromium: Chromium) -> None:
    with staged(tmp_path) as stage:
        faults.populate(stage)
        faults.drops_held(stage)
        stage.sign_in(chromium)
        chromium.until_shown("the drop limit has held")
        chromium.press("Held drops")
        chromium.press("Release…")
        chromium.type("#typed", "pord")
        chromium.click("button.danger")
        assert stage.operate("GET", "drop-limits/prod")["held"] > 0
        chromium.type("#typed", "prod")
        chromium.click("button.danger")
        wait_for(lambda: stage.operate("GET", "drop-limits/prod")["held"] == 0, "the release", 20, 0.1)


@pytest.mark.slow
def test_pictures_for_the_documentation_are_made(tmp_path: Path, chromium: Chromium) -> None:
    folder = PICTURES or tmp_path / "pictures"
    # A short path, because the pictures show it.
    with TemporaryDirectory(prefix="sfn-") as place, staged(Path(place)) as stage:
        faults.populate(stage)
        faults.foreign_file(stage)
        faults.drops_held(stage)
        stage.post("{nonsense")
        stage.sign_in(chromium)
        chromium.until_shown("dead letter of prod:sales.orders")
        faults.hang(stage)
        chromium.until_shown("the catalog prod has not answered")
        chromium.until_shown("tables have waited for a publish")
        shown = {
            "overview": "/ui?paused=true",
            "tables": "/ui/tables?namespace=sales&paused=true",
            "table": "/ui/tables/prod/sales/orders?files=now",
            "dead-letters": "/ui/dead-letters",
            "held-drops": "/ui/held-drops",
            "events": "/ui/events?paused=true",
            "log": "/ui/log",
        }
        for scheme in ("light", "dark"):
            chromium.show(scheme)
            for name, path in shown.items():
                chromium.open(stage.url + path)
                chromium.save(folder / f"page-{name}-{scheme}.png")
    made = sorted(file.name for file in folder.glob("page-*.png"))
    assert len(made) == 2 * len(shown)
