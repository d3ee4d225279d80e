"""The workflows of GitHub Actions: pinned actions, least permissions, and what two linters say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.programs import tool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"- uses: (?P<action>[\w./-]+)@(?P<commit>[0-9a-f]{40}) # v(?P<version>\d+\.\d+\.\d+)$")
WRITES: Mapping[str, set[str]] = {
    "ci": set(),
    "image": {"publish: id-token", "publish: packages"},
    "release": {
        "distributions: attestations",
        "distributions: id-token",
        "image: id-token",
        "image: packages",
        "chart: id-token",
        "chart: packages",
        "index: id-token",
        "announcement: contents",
    },
}
"""What each job may write. Everything else is read-only, or not allowed at all."""


def workflow(file: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(file.read_text())
    return found


def steps(file: Path) -> Iterator[dict[str, Any]]:
    for job in workflow(file)["jobs"].values():
        yield from job.get("steps", [])


def test_each_workflow_is_known() -> None:
    assert {file.stem for file in FILES} == set(WRITES)


def test_each_action_is_pinned_by_one_commit_and_names_its_version() -> None:
    lines = [line.strip() for file in FILES for line in file.read_text().splitlines() if "uses: " in line]
    foreign = [line for line in lines if "uses: ./" not in line]
    found = [PINNED.fullmatch(line) for line in foreign]
    assert [line for line, match in zip(foreign, found, strict=True) if match is None] == []
    pins = {(match["action"], match["commit"], match["version"]) for match in found if match is not None}
    assert len(pins) == len({action for action, _, _ in pins})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_jobs_have_only_the_permissions_that_they_need(file: Path) -> None:
    content = workflow(file)
    assert content["permissions"] == {}
    granted = {
        f"{name}: {scope}"
        for name, job in content["jobs"].items()
        for scope, access in job["permissions"].items()
        if access == "write"
    }
    assert granted == WRITES[file.stem]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_job_ends_and_runs_on_a_fixed_system(file: Path) -> None:
    content = workflow(file)
    assert content["concurrency"]["group"].endswith("${{ github.ref }}")
    for name, job in content["jobs"].items():
        if "uses" not in job:
            assert job["timeout-minutes"] <= 120, name
            assert "latest" not in str(job["runs-on"]), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_checkout_leaves_its_token_and_no_secret_is_stored(file: Path) -> None:
    checkouts = [step for step in steps(file) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert "secrets." not in file.read_text()


def test_the_index_is_published_to_in_its_environment_after_everything_else() -> None:
    jobs = workflow(FOLDER / "release.yml")["jobs"]
    assert jobs["index"]["environment"] == "pypi"
    assert set(jobs["index"]["needs"]) == {"distributions", "image", "chart"}
    assert jobs["announcement"]["needs"] == "index"


def test_actionlint_finds_nothing() -> None:
    done = subprocess.run([tool("actionlint"), "-no-color", *FILES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_zizmor_finds_nothing() -> None:
    program = Path(sys.executable).with_name("zizmor")
    command: list[str | Path] = [program, "--offline", "--no-progress", "--pedantic", ROOT / ".github"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
