"""The wheel: what is in it, how it describes itself, and that its commands run without the source tree.

`make dist` also runs the acceptance tests against the wheel, in an environment that has nothing else.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.shape.wording import syntax_tree
from tests.support.deployment import closure

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = ROOT / "docs" / "get-started" / "pip.md"
NAMES = ("sfn", "iceberg-sfn")


@pytest.fixture(name="wheel", scope="module")
def fixture_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(name="programs", scope="module")
def fixture_programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with the packages of this one, but without its source tree."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    quietly = ["--quiet", "install", "--no-deps", "--no-index"]
    command: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, *quietly, wheel]
    subprocess.run(command, check=True)
    asked: list[str | Path] = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    # A path in a .pth file is not searched for .pth files, such as that of an editable installation.
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("/site-packages")))
    return place / "bin"


@pytest.fixture(name="metadata", scope="module")
def fixture_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def ran(*command: str | Path, folder: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SFN_CONFIG"}}  # noqa: TID251 - a child's
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_all_files_of_the_package_and_no_others(wheel: Path) -> None:
    folder = ROOT / "service"
    expected = {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected
    for needed in ("sfn/py.typed", "sfn/ui/templates/base.html", "sfn/ui/assets/page.css"):
        assert needed in expected


def test_the_wheel_has_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_metadata_says_what_the_project_says(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert metadata["License-Expression"] == PROJECT["license"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_the_description_has_no_links_that_an_index_cannot_follow(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert text.startswith("# Iceberg SFN listener")
    assert re.findall(r"\]\((?!https?://)[^)]+\)", text) == []
    assert "read-only REST catalog (the *facade*)" in text.replace("\n", " ")


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_command_that_was_called(name: str, programs: Path, tmp_path: Path) -> None:
    assert f"Usage: {name} [OPTIONS] COMMAND" in ran(programs / name, "--help", folder=tmp_path)
    assert ran(programs / name, "--version", folder=tmp_path) == f"sfn {PROJECT['version']}\n"


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_shell_completion_of_its_own(name: str, programs: Path, tmp_path: Path) -> None:
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    shown = ran("/usr/bin/env", "SHELL=/bin/bash", f"{variable}=source_bash", programs / name, folder=tmp_path)
    assert f"complete -o default -F _{name.replace('-', '_')}_completion {name}" in shown


def test_the_module_is_a_command(programs: Path, tmp_path: Path) -> None:
    assert ran(programs / "python", "-m", "sfn", "--version", folder=tmp_path) == f"sfn {PROJECT['version']}\n"


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    asked = ran(programs / "python", "-c", "import sfn; print(sfn.__file__)", folder=tmp_path).strip()
    assert Path(asked).is_relative_to(programs.parent)
    told = ran(programs / "iceberg-sfn", "demo", folder=tmp_path)
    assert "All checks passed." in told


def test_the_page_lists_the_extras_of_the_project() -> None:
    table = PAGE.read_text().partition("| extra | for |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines()[2:]]
    assert {row[0].strip(" `") for row in rows} == {"none", *PROJECT["optional-dependencies"]}
    for row in rows:
        assert all(re.fullmatch(r" \d[\d,]* MB ", size) for size in row[2:]), row


def test_the_extra_of_everything_has_every_extra_of_the_listener_and_its_readers() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = set(re.findall(r"\[(.*)\]", everything)[0].split(","))
    assert named == set(PROJECT["optional-dependencies"]) - {"all", "demo", "dev", "spark"}


def imports(module: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the packages that a module of tests imports when it is imported, also through other modules of tests."""
    seen.add(module)
    for node in syntax_tree(module.read_text()).body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            yield name.partition(".")[0]
            path = ROOT / name.replace(".", "/")
            for file in {path.with_suffix(".py"), path / "__init__.py"} - seen:
                if name.startswith("tests.") and file.exists():
                    yield from imports(file, seen)


def test_the_environment_of_the_acceptance_tests_has_what_they_import() -> None:
    program = runpy.run_path(str(ROOT / "deploy" / "release" / "acceptance.py"))
    optional = PROJECT["optional-dependencies"]
    extras = [one for extra in program["EXTRAS"].split(",") for one in optional[extra]]
    known = closure([*PROJECT["dependencies"], *extras, *program["TOOLS"], *program["READERS"]])
    seen: set[Path] = set()
    names = {name for file in (ROOT / "tests" / "acceptance").glob("*.py") for name in imports(file, seen)}
    of = packages_distributions()
    missing = {name for name in names & of.keys() if known.isdisjoint(map(canonicalize_name, of[name]))}
    assert missing - {"sfn"} == set()
