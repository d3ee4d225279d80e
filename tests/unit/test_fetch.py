"""What is fetched for the demo and the tests is told before, and that it still goes on."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy" / "fetch"


def command(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture(name="fetch")
def fixture_fetch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetching", DEPLOY / "fetching.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TOLD_EVERY", 0.05)
    return module


def test_what_is_fetched_is_told_before_with_its_size(tmp_path: Path) -> None:
    command(tmp_path, "java", "echo 'openjdk version \"21.0.1\"' >&2")
    command(tmp_path, "mvn", "echo no network; exit 1")
    surroundings = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",  # noqa: TID251 - a child's
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
    }
    done = subprocess.run(
        [sys.executable, DEPLOY / "jars.py"], env=surroundings, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    first, *others = done.stderr.splitlines()
    assert first == "fetching 41 jars of Iceberg's REST catalog server (some 80 MB), by maven"
    assert "no network" in others
    assert others[-1].startswith("could not fetch ")


def test_what_takes_long_says_that_it_goes_on(fetch: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    fetch.run("sleep", "0.3")
    assert "… still at it after 0 s" in capsys.readouterr().err


def test_what_fails_says_what_it_said(fetch: ModuleType) -> None:
    with pytest.raises(fetch.Failed, match=r"(?s)sh ended with 3.*not there"):
        fetch.run("sh", "-c", "echo not there >&2; exit 3")


def test_what_never_ends_is_given_up(fetch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SECONDS", 0)
    with pytest.raises(subprocess.TimeoutExpired):
        fetch.run("sleep", "60")
