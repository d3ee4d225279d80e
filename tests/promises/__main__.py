"""`python -m tests.promises`: try every promise on every adapter; writes it down for the test and the page."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

from tests.promises.test_results import EXPECTED, FOLDER, KEPT, SUITES, Found, page


class Outcomes:
    """A plugin of pytest: what became of each promise, on each adapter."""

    def __init__(self) -> None:
        self.failed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self.tried: set[tuple[str, str]] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Function) -> Generator[None, Any, Any]:
        report = yield
        adapter = item.callspec.params.get("ground") if hasattr(item, "callspec") else None
        if isinstance(adapter, str):
            cell = item.originalname, adapter
            self.tried.add(cell)
            if report.outcome != "passed":
                self.failed[cell].add(report.outcome)
        return report

    def of(self, promise: str, adapter: str) -> str:
        """How a cell is shown."""
        cell = promise, adapter
        if cell not in self.tried:
            return "not tried"
        return ", ".join(sorted(self.failed[cell])) or KEPT


def main() -> int:
    """Try them all."""
    outcomes = Outcomes()
    files = [str(FOLDER / f"{module}.py") for suite in SUITES for module in suite.modules]
    # What this module has imported already shows failures in fewer words, that is all.
    quietly = ["-q", "-p", "no:randomly", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main([*quietly, *files], plugins=[outcomes])
    found = Found(
        {
            suite.title: {
                promise: {adapter: outcomes.of(promise, adapter) for adapter in suite.adapters}
                for promise in suite.promises()
            }
            for suite in SUITES
        }
    )
    EXPECTED.write_text(found.text())
    page(found).write()
    return int(any(cell != KEPT for rows in found.cells.values() for row in rows.values() for cell in row.values()))


if __name__ == "__main__":
    sys.exit(main())
