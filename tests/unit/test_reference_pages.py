"""`docs/reference/settings.md` and `cli.md` are what the settings model and the command line are."""

from __future__ import annotations

import pytest

from sfn.settings.root import Settings
from tests.integration.pages import Shown
from tests.pages.descriptions import DESCRIPTIONS, SECTIONS
from tests.pages.reference import keys, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.page)
def test_a_page_is_what_the_code_says(page: Shown) -> None:
    assert page.path.read_text() == page.brought_up_to_date(), "write it down: python -m tests.pages"


def test_each_setting_has_one_description() -> None:
    described = {name for _, name, field in keys() if field.description}
    assert sorted(DESCRIPTIONS) == sorted({name for _, name, _ in keys()} - described)


def test_each_section_has_one_description() -> None:
    assert sorted(SECTIONS) == sorted(Settings.model_fields)
