"""The pages of catalogs: what is said of each event is what decoding one finds, and settings are understood."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sfn.formats import FORMAT_NAMES
from sfn.settings import load
from tests.dialects.page import TITLES, page
from tests.dialects.samples import by_dialect

PAGE = page()
SETTINGS: Final = Path(__file__).parents[2] / "docs" / "catalogs" / "README.md"


def test_every_dialect_is_on_it() -> None:
    assert set(TITLES) == set(FORMAT_NAMES) == set(by_dialect())


def test_it_says_what_is_found() -> None:
    assert PAGE.path.read_text() == PAGE.brought_up_to_date(), "write it down: python -m tests.dialects"


def test_its_settings_are_understood(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", SETTINGS.read_text(), re.DOTALL | re.MULTILINE)
    file = tmp_path / "sfn.toml"
    file.write_text(f'[catalogs.prod]\nuri = "https://catalog"\n[stores.lake]\nprefix = "s3://lake"\n{shown}')
    settings = load(file, {})
    assert settings.senders["lakekeeper"].dialect == "lakekeeper"
    assert list(settings.catalogs_of("lakekeeper").values()) == ["prod"]
