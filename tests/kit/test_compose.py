"""The Compose file as Compose itself reads it, without an engine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.deployment import COMPOSE, PROJECT, ROOT, SERVICES
from tests.support.programs import tool

FILE: Final = ROOT / "docker-compose.yml"
VARIABLE: Final = re.compile(r"(?<!\$)\$\{?\w")


def read(file: Path) -> subprocess.CompletedProcess[str]:
    """What Compose's own library makes of a file."""
    return subprocess.run(
        [tool("compose-go"), "--format", "json", file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(name="model", scope="module")
def fixture_model() -> dict[str, Any]:
    done = read(FILE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_compose_reads_every_service_of_every_profile(model: dict[str, Any]) -> None:
    assert model["services"].keys() == SERVICES.keys()
    assert model["name"] == COMPOSE["name"] == PROJECT["project"]["name"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_anchors_are_merged_as_the_tests_merge_them(model: dict[str, Any], name: str) -> None:
    service = model["services"][name]
    for key in ("image", "user", "read_only", "cap_drop", "network_mode", "profiles", "restart", "init"):
        assert service.get(key) == SERVICES[name].get(key)
    expected = {variable: str(value) for variable, value in SERVICES[name].get("environment", {}).items()}
    assert service.get("environment", {}) == expected


def test_no_value_depends_on_the_shell_of_the_user() -> None:
    assert VARIABLE.findall(FILE.read_text()) == []


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("    read_only: true\n", "    read_onyl: true\n", "read_onyl"),
        ("  s3:\n    <<: *sealed\n    profiles: [s3]\n", "  s3:\n    <<: *sealed\n    profiles: s3\n", "profiles"),
    ],
)
def test_a_mistake_is_refused(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    """Of the test itself."""
    text = FILE.read_text()
    assert right in text
    file = tmp_path / "docker-compose.yml"
    file.write_text(text.replace(right, wrong, 1))
    done = read(file)
    assert done.returncode == 1
    assert told in done.stderr
