"""What `sfn check` says where packages are missing that speak to stores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sfn.cli.check_config import Severity
from sfn.cli.check_findings import run_checks
from tests.unit.settings_ground import Ground

ERROR, WARNING = Severity.ERROR, Severity.WARNING
TEXT = """
[catalogs.prod]
uri = "http://127.0.0.1:1"
refresh_after = "1d"
[catalogs.told]
type = "events"
catalog_id = "x"
allowed_locations = ["s3://lake"]
[senders.etl]
secrets = { main = "sixteen-of-these" }
catalog = "told"
[stores.a]
prefix = "s3://lake"
[stores.b]
prefix = "gs://lake"
[stores.c]
prefix = "abfss://c@a.dfs.core.windows.net"
[listener]
port = 0
"""


async def test_each_store_without_its_package_is_named_and_what_is_not_looked_at_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s3", "gcs"):
        monkeypatch.delitem(sys.modules, f"sfn.app.storage_{name}", raising=False)
        monkeypatch.setitem(sys.modules, f"sfn.storage.{name}", None)
    settings = Ground(tmp_path).load(f"{TEXT}[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n")
    found = [one async for one in run_checks(settings, thorough=False)]
    assert [(one.where, one.severity) for one in found[-5:]] == [
        ("stores.a.prefix", ERROR),
        ("stores.b.prefix", ERROR),
        ("catalogs.prod", WARNING),
        ("stores.c", WARNING),
        ("catalogs.prod.refresh_after", WARNING),
    ]
    assert [one.remedy for one in found[-5:-3]] == ["pip install '.[s3]'", "pip install '.[gcs]'"]
    assert {(one.text, one.remedy) for one in found[-3:-1]} == {
        ("not looked at: not all of the stores can be opened", "see to stores.a, stores.b first, and check again")
    }
