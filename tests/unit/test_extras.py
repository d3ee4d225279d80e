"""The command that a remedy shows to install an extra."""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution
from os import PathLike
from pathlib import Path

import pytest
from typing_extensions import override

from sfn import extras


class Installed(Distribution):
    """A distribution with the origin that an installer recorded, as PEP 610 says; None for one from an index."""

    def __init__(self, origin: str | None) -> None:
        self.origin = origin

    @override
    def read_text(self, filename: str) -> str | None:
        return self.origin if filename == "direct_url.json" else None

    @override
    def locate_file(self, path: str | PathLike[str]) -> Path:
        return Path(path)


def requirement(url: str | None) -> str:
    return extras.requirement("s3", Installed(url and json.dumps({"url": url, "archive_info": {}})))


def test_the_index_is_named_if_the_package_came_from_one() -> None:
    assert requirement(None) == "iceberg-sfn[s3]"


def test_a_wheel_or_a_folder_is_named_while_it_is_there(tmp_path: Path) -> None:
    wheel = tmp_path / "a wheel.whl"
    wheel.touch()
    for place in (wheel, tmp_path):
        assert requirement(place.as_uri()) == f"iceberg-sfn[s3] @ {place.as_uri()}"


def test_a_wheel_that_is_gone_is_not_named(tmp_path: Path) -> None:
    assert requirement((tmp_path / "gone.whl").as_uri()) == "iceberg-sfn[s3]"


def test_an_address_is_named() -> None:
    assert requirement("https://example.org/sfn.whl") == "iceberg-sfn[s3] @ https://example.org/sfn.whl"


@pytest.mark.parametrize(
    ("receipt", "installer"),
    [
        (None, "pip install"),
        ("uv-receipt.toml", "uv tool install --force"),
        ("pipx_metadata.json", "pipx install --force"),
    ],
)
def test_the_tool_that_made_the_environment_is_named(
    receipt: str | None, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receipt is not None:
        (tmp_path / receipt).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extras.install_command("s3") == f"{installer} '{extras.requirement('s3')}'"
