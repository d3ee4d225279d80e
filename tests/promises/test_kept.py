"""The page's tables of promises are those of the suite, of which every test passes."""

from __future__ import annotations

from tests.promises.kept import EXPECTED, KEPT, SUITES, Found, page

ANEW = "write it down: python -m tests.promises"


def expected() -> Found:
    return Found.parse(EXPECTED.read_text())


def test_every_adapter_fulfils_every_contract() -> None:
    suite = {one.title: {name: dict.fromkeys(one.adapters, KEPT) for name in one.promises()} for one in SUITES}
    assert expected().cells == suite, ANEW


def test_page_matches_the_results() -> None:
    shown = page(expected())
    assert shown.path.read_text() == shown.brought_up_to_date(), ANEW
