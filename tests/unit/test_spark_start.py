"""What Spark needs of a machine is told in one line, each time with what to do."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import sfn.spark
from sfn.errors import NotInstalled
from sfn.extras import install_command
from sfn.spark import start
from sfn.spark.start import check_java, check_packages

GOOD = {"pyspark": "4.1.4", "pandas": "2.3.3"}


@pytest.fixture(name="installed")
def fixture_installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The packages that there are, by name."""
    packages = dict(GOOD)

    def version(name: str) -> str:
        if name not in packages:
            raise PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(start, "version", version)
    return packages


def java(folder: Path, script: str) -> str:
    """A `JAVA_HOME`."""
    file = folder / "home" / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(folder / "home")


def refusal(home: str | None) -> str:
    with pytest.raises(NotInstalled) as refused:
        check_java(home)
    return one_line(refused.value)


def one_line(error: NotInstalled) -> str:
    assert error.remedy
    assert "\n" not in f"{error}"
    return f"{error}"


@pytest.mark.parametrize(("pandas", "pyspark"), [("2.3.3", "4.1.0"), ("2.2.0", "4.1.4"), (None, "4.1.4")])
def test_packages_that_go_together_are_taken(installed: dict[str, str], pandas: str | None, pyspark: str) -> None:
    installed |= {"pyspark": pyspark, "pandas": pandas or ""}
    if pandas is None:
        del installed["pandas"]
    check_packages()


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("pandas", "3.0.1", "pandas: expected a version before 3, for PySpark 4.1, found 3.0.1"),
        ("pandas", "10.0.0", "found 10.0.0"),
        ("pyspark", "4.0.2", "pyspark: expected version 4.1, found 4.0.2"),
        ("pyspark", "4.10.0", "found 4.10.0"),
        ("pyspark", None, "pyspark: expected version 4.1, found none"),
    ],
)
def test_packages_of_other_versions_are_told(
    installed: dict[str, str], name: str, version: str | None, said: str
) -> None:
    del installed[name]
    installed |= {name: version} if version else {}
    with pytest.raises(NotInstalled) as refused:
        check_packages()
    text = one_line(refused.value)
    assert said in text
    assert text.endswith(f"; {install_command('spark')}")


@pytest.mark.parametrize("name", sfn.spark.__all__)
def test_whoever_asks_for_anything_is_told_first(installed: dict[str, str], name: str) -> None:
    del installed["pyspark"]
    with pytest.raises(NotInstalled, match=r"pyspark: expected version 4\.1, found none"):
        getattr(sfn.spark, name)


@pytest.mark.parametrize("version", ["17.0.2", "21", "21.0.8"])
def test_a_java_that_runs_spark_is_taken(version: str, tmp_path: Path) -> None:
    check_java(java(tmp_path, f"echo 'openjdk version \"{version}\" 2026-01-20' >&2"))


@pytest.mark.parametrize("version", ["1.8.0_432", "11.0.25", "25.0.1"])
def test_a_java_that_is_too_old_or_too_new_is_told(version: str, tmp_path: Path) -> None:
    home = java(tmp_path, f"echo 'openjdk version \"{version}\" 2026-01-20' >&2; echo more >&2")
    text = refusal(home)
    assert f'{home}/bin/java: expected a Java from 17 to 21, found openjdk version "{version}"' in text
    assert "openjdk-17-jre-headless" in text


@pytest.mark.parametrize(("script", "said"), [("exit 1", "nothing"), ("echo broken >&2; exit 1", "broken")])
def test_a_java_that_says_no_version_is_told(script: str, said: str, tmp_path: Path) -> None:
    assert f"found {said};" in refusal(java(tmp_path, script))


def test_without_a_java_it_is_told_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Java: expected a Java from 17 to 21, found none; install one" in refusal(None)
    home = java(tmp_path / "other", "echo 'openjdk version \"17.0.2\"' >&2")
    monkeypatch.setenv("PATH", f"{home}/bin")
    check_java(None)


def test_a_java_home_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    text = refusal(str(tmp_path / "none"))
    assert f"found none in JAVA_HOME, {tmp_path}/none; install one" in text
    assert "set JAVA_HOME" in text


def test_a_java_that_can_not_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java(tmp_path, "sleep 10")
    monkeypatch.setattr(start, "_PATIENCE", 0.05)
    assert "found one that does not answer in 0 s; install one" in refusal(home)
    (Path(home) / "bin" / "java").write_bytes(b"\x7fELF of another processor")
    assert "found one that can't be started: Exec format error; install one" in refusal(home)
