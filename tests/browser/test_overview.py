"""The overview and the sign-in in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.stage import OPERATORS_TOKEN, Stage, staged
from tests.servers.chromium import Chromium


@pytest.fixture(name="stage", scope="module")
def fixture_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("service")) as stage:
        for name in ("customers", "orders", "returns", "stock", "suppliers"):
            stage.lake.commit(name)
            stage.tell(name)
        stage.until_published("customers", "orders", "returns", "stock", "suppliers")
        yield stage


def test_an_operator_signs_in_and_out(stage: Stage, chromium: Chromium) -> None:
    chromium.forget()
    chromium.open(f"{stage.url}/ui/tables?late=true")
    assert chromium.barriers() == []
    chromium.type("#token", "a-wrong-token")
    chromium.press("Sign in")
    chromium.until_shown("This is not a token of an operator.")
    chromium.type("#token", OPERATORS_TOKEN)
    chromium.press("Sign in")
    assert chromium.address == f"{stage.url}/ui/tables?late=true"
    chromium.press("Sign out")
    chromium.open(f"{stage.url}/ui")
    assert "/ui/login" in chromium.address


def test_an_outage_is_seen_without_a_reload(stage: Stage, chromium: Chromium) -> None:
    stage.sign_in(chromium)
    chromium.until_shown("all is well")
    stage.stop_catalog()
    try:
        stage.tell("orders")
        chromium.until_shown("the catalog prod has not answered")
        assert chromium.barriers() == []
    finally:
        stage.start_catalog()
    chromium.until_shown("all is well", 60)
    assert chromium.complaints() == []
