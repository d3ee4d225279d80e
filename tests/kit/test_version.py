"""The version is the same in every file that names it, and the changelog has a section of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NOTES = ROOT / "deploy" / "release" / "notes.py"
PATTERNS = {
    "CHANGELOG.md": r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$",
    "Dockerfile": r'org\.opencontainers\.image\.version="([^"]+)"',
    "deploy/docker-bake.hcl": r'variable "VERSION" \{[^}]*default += "([^"]+)"',
    "docker-compose.yml": r"image: iceberg-sfn:([\w.]+)",
    "docs/**/*.md": r"iceberg-sfn:([\d.]+\b)|iceberg_sfn-([\d.]+)-py3",
    "README.md": r"iceberg-sfn:([\d.]+\b)|iceberg_sfn-([\d.]+)-py3",
}


def named(files: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each file with a version that it names."""
    for file in sorted(ROOT.glob(files)):
        for groups in re.findall(pattern, file.read_text(), re.MULTILINE):
            yield str(file.relative_to(ROOT)), groups if isinstance(groups, str) else "".join(groups)


@pytest.mark.parametrize(("files", "pattern"), PATTERNS.items())
def test_each_file_names_the_version(files: str, pattern: str) -> None:
    found = list(named(files, pattern))
    if files == "CHANGELOG.md":
        found = found[:1]  # older sections follow
    assert [(file, version) for file, version in found if version != VERSION] == []
    is_needed = "*" not in files and files != "README.md" and (ROOT / files).is_file()
    assert found or not is_needed


def test_the_chart_is_of_the_version() -> None:
    file = ROOT / "deploy" / "helm" / "iceberg-sfn" / "Chart.yaml"
    if not file.is_file():
        pytest.skip("no chart")
    chart = yaml.safe_load(file.read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_installed_package_is_of_the_version() -> None:
    assert version("iceberg-sfn") == VERSION


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    done = subprocess.run([sys.executable, NOTES, VERSION], capture_output=True, text=True, check=True)
    assert done.stdout.strip()
    assert "\n## " not in done.stdout
    assert done.stdout.strip() in (ROOT / "CHANGELOG.md").read_text()


def test_a_version_without_a_section_has_no_notes() -> None:
    done = subprocess.run([sys.executable, NOTES, "99.0.0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "expected a section [99.0.0] with a date" in done.stderr
