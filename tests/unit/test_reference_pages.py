"""The pages about settings, commands and catalogs agree with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from sfn.app import catalogs as app_catalogs
from sfn.formats.decode import FORMAT_NAMES
from sfn.settings import load
from sfn.settings.root import Settings
from tests.dialects.page import TITLES, page
from tests.dialects.samples import by_dialect
from tests.pages import keys, pages
from tests.pages.descriptions import DESCRIPTIONS, SECTIONS
from tests.support.pages import Shown
from tests.support.settings_file import Ground

PAGE = page()
SETTINGS: Final = Path(__file__).parents[2] / "docs" / "catalogs" / "README.md"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.page)
def test_a_page_is_what_the_code_says(page: Shown) -> None:
    assert page.path.read_text() == page.brought_up_to_date(), "write it down: python -m tests.pages"


def test_each_setting_has_one_description() -> None:
    described = {name for _, name, field in keys() if field.description}
    assert sorted(DESCRIPTIONS) == sorted({name for _, name, _ in keys()} - described)


def test_each_section_has_one_description() -> None:
    assert sorted(SECTIONS) == sorted(Settings.model_fields)


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


PAGES = Path(__file__).parents[2] / "docs" / "catalogs"
SHOWN = re.compile(r"\A# ([^\n]+)\n.*?```toml\n(.*?)```", re.DOTALL)
CONNECTION_TITLES = {
    "gateway": "Connect through the gateway",
    "iceberg-rest": "Any Iceberg REST catalog",
    "polaris": "Apache Polaris",
    "lakekeeper": "Lakekeeper",
    "nessie": "Nessie",
    "gravitino": "Apache Gravitino",
    "aws-glue": "AWS Glue",
    "s3-tables": "Amazon S3 Tables",
    "unity-catalog": "Unity Catalog (Databricks)",
    "biglake": "BigLake (Google)",
}
OTHERS = {"README", "event-only", "nats", "pyiceberg", "send-events"}
"""Pages with a test elsewhere, such as `tests/acceptance/test_pages.py`."""
NO_GATEWAY = {"aws-glue", "s3-tables"}


def shown(page: str) -> tuple[str, str]:
    """The title of a page, and its first configuration."""
    found = SHOWN.match((PAGES / f"{page}.md").read_text())
    assert found is not None, page
    return found[1], found[2]


def test_every_catalog_has_one() -> None:
    assert {page: shown(page)[0] for page in CONNECTION_TITLES} == CONNECTION_TITLES
    assert {file.stem for file in PAGES.glob("*.md")} == {*CONNECTION_TITLES, *OTHERS}


@pytest.mark.parametrize("page", CONNECTION_TITLES)
def test_each_is_a_configuration(tmp_path: Path, page: str) -> None:
    _, text = shown(page)
    settings = Ground(tmp_path).load(text)
    app_catalogs.check_adapters(settings)
    assert not settings.lacks_stores
    assert bool(settings.gateway) is (page not in NO_GATEWAY)
    for name, gateway in settings.gateway.items():
        catalogs = {settings.catalogs[ours].uri or "" for ours in settings.catalogs_behind(name).values()}
        # Who asks the catalog and who goes through the gateway come to the same one.
        assert all(uri.startswith(gateway.upstream) for uri in catalogs)
    if page in NO_GATEWAY:
        ours = next(iter(settings.catalogs))
        problems = Ground(tmp_path).problems(f'{text}\n[gateway.{ours}]\nupstream = "{settings.catalogs[ours].uri}"\n')
        assert "without SigV4 signatures" in problems[0]
