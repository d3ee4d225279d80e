"""A report in a configured catalog: how PyIceberg is to ask that one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfn.audit.storage import parse_report_location
from sfn.settings import load
from sfn.settings.sources import ConfigurationError

ASSUMED = 'auth = "sigv4"\nsigning_region = "eu-west-1"\nsigning_name = "glue"\nrole_arn = "arn:aws:iam::1:role/x"'


def properties(folder: Path, more: str) -> dict[str, Any]:
    file = folder / "sfn.toml"
    file.write_text(f'[catalogs.prod]\nuri = "https://catalog.example/iceberg"\nwarehouse = "w"\n{more}\n')
    return dict(parse_report_location("prod:ops.report", load(file, {}), {"s3.region": "eu"}).properties)


def test_whom_it_trusts(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.touch()
    found = properties(tmp_path, f'ca_file = "{authority}"\ntoken = "secret"')
    assert found == {
        "type": "rest",
        "uri": "https://catalog.example/iceberg",
        "warehouse": "w",
        "token": "secret",
        "ssl": {"cabundle": str(authority)},
        "s3.region": "eu",
    }


def test_who_asks_by_google(tmp_path: Path) -> None:
    found = properties(tmp_path, 'auth = "google"')["auth"]
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    assert found == {"type": "google", "google": {"credentials_path": None, "scopes": scopes}}


def test_who_asks_by_a_role_cannot(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--report: expected a catalog that PyIceberg can ask, or a directory"):
        properties(tmp_path, ASSUMED)
