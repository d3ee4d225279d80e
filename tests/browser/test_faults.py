"""What an operator finds out of a broken service, from the page alone and from the command line alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.browser import faults
from tests.browser.stage import OPERATORS_TOKEN, Stage, staged
from tests.servers.chromium import Chromium
from tests.support.processes import wait_for


class Found(NamedTuple):
    """What both show of a fault.

    Attributes:
        what: what is wrong.
        cause: why.
        next: what to do.
    """

    what: str
    cause: str
    next: str


FOUND: Final = {
    "hang": Found("the catalog prod has not answered", "/tables/", "sfn check"),
    "refuse": Found("the catalog prod has not answered", "ECONNREFUSED", "sfn check"),
    "read-only": Found("the store lake", "EACCES", "let the service's user"),
    "foreign-file": Found("1 dead letter of prod:sales.orders", "sales_orders_main.ver", "sfn dead-letters show 1"),
    "drops-held": Found("the drop limit has held 4 tables", "8 passed before", "sfn release prod"),
    "token-rotated": Found("5 requests with events were refused with 401", "127.0.0.1", "[senders.etl]"),
}


def lines_of(stage: Stage) -> Sequence[str]:
    """What `sfn status` prints."""
    return stage.sfn("status").out.splitlines()


def answered(stage: Stage) -> str:
    """When the catalog answered last."""
    at: str = stage.operate("GET", "status")["catalogs"][0]["answered_at"]
    return at


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FOUND])
def test_page_and_command_line_say_what_is_wrong_since_when_why_and_what_to_do(
    tmp_path: Path, chromium: Chromium, name: str
) -> None:
    found = FOUND[name]
    with staged(tmp_path) as stage:
        faults.populate(stage)
        stage.sign_in(chromium)
        chromium.until_shown("all is well")
        faults.FAULTS[name](stage)
        chromium.until_shown(found.what)
        (problem,) = [
            one for one in chromium.find_all(".problems li") if found.what in one.text.partition(" since ")[0]
        ]
        assert found.cause in problem.text
        assert found.next in problem.text
        assert " since " in problem.text
        wait_for(lambda: any(found.what in line for line in lines_of(stage)), found.what, 20, 0.5)
        lines = lines_of(stage)
        (line,) = [number for number, line in enumerate(lines) if found.what in line.partition(" since ")[0]]
        assert " since " in lines[line]
        assert found.cause in lines[line]
        assert any(found.next in one for one in lines[line : line + 3])
        if name == "hang":
            # The catalog answers other requests meanwhile: the outage goes on, and began when it began.
            before = stage.operate("GET", "status")
            stage.operate("POST", "reconcile")
            wait_for(lambda: answered(stage) > before["catalogs"][0]["answered_at"], "an answer", 60, 0.5)
            after = stage.operate("GET", "status")["verdict"]["problems"][0]
            assert after["since"] == before["verdict"]["problems"][0]["since"]
    assert OPERATORS_TOKEN not in (tmp_path / "0.log").read_text()
