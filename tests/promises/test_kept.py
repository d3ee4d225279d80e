"""The page's tables of promises are those of the suite, of which every test passes."""

from __future__ import annotations

from tests.promises.kept import EXPECTED, KEPT, SUITES, Found, page

ANEW = "write it down: python -m tests.promises"


def expected() -> Found:
    return Found.parse(EXPECTED.read_text())


def test_every_promise_was_found_kept_by_every_adapter() -> None:
    suite = {one.title: {name: dict.fromkeys(one.adapters, KEPT) for name in one.promises()} for one in SUITES}
    assert expected().cells == suite, ANEW


def test_the_page_says_what_was_found() -> None:
    shown = page(expected())
    assert shown.path.read_text() == shown.brought_up_to_date(), ANEW
