"""The page of how catalogs are connected: each of its configurations is one that the service takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sfn.app import catalogs as app_catalogs
from tests.unit.settings_ground import Ground

PAGE = (Path(__file__).parents[2] / "service" / "CONNECTING.md").read_text()
SHOWN = re.findall(r"\n## ([^\n]+)\n.*?```toml\n(.*?)```", PAGE, re.DOTALL)
NO_GATEWAY = {"AWS Glue", "Amazon S3 Tables"}


def test_every_catalog_has_one() -> None:
    titles = re.findall(r"\n## ([^\n]+)", PAGE)
    assert [title for title, _ in SHOWN] == titles
    assert titles == [
        "Through the gateway",
        "Apache Polaris",
        "Lakekeeper",
        "Nessie",
        "Apache Gravitino",
        "AWS Glue",
        "Amazon S3 Tables",
        "Unity Catalog (Databricks)",
        "BigLake (Google)",
    ]


@pytest.mark.parametrize(("title", "text"), SHOWN)
def test_each_is_a_configuration(tmp_path: Path, title: str, text: str) -> None:
    settings = Ground(tmp_path).load(text)
    app_catalogs.check_adapters(settings)
    assert not settings.lacks_stores
    assert bool(settings.gateway) is (title not in NO_GATEWAY)
    for name, gateway in settings.gateway.items():
        catalogs = {settings.catalogs[ours].uri or "" for ours in settings.catalogs_behind(name).values()}
        # Who asks the catalog and who goes through the gateway come to the same one.
        assert all(uri.startswith(gateway.upstream) for uri in catalogs)
    if title in NO_GATEWAY:
        ours = next(iter(settings.catalogs))
        problems = Ground(tmp_path).problems(f'{text}\n[gateway.{ours}]\nupstream = "{settings.catalogs[ours].uri}"\n')
        assert "not signed with SigV4" in problems[0]
