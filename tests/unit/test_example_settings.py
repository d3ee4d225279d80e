"""The example settings and the Makefile."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sfn.app import catalogs
from sfn.settings import load
from sfn.settings.root import Settings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "sfn.example.toml"
LINES = FILE.read_text().splitlines()
TABLE = re.compile(r"(#?)\[(.+)\]")
KEY = re.compile(r"(#?)([a-z0-9_]+) = (.+)")
NOTHING: tuple[object, ...] = (None, (), {}, PydanticUndefined)
"""Defaults that show nothing, or are none: an example stands in their place."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A key in the file.

    Attributes:
        section: `listener`, or `catalogs` for each table of that section.
        is_set: it is no remark.
        in_force: nor is its table.
        number: of its line.
    """

    section: str
    key: str
    value: Any
    is_set: bool
    in_force: bool
    number: int

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


def shown() -> Iterator[Shown]:
    """The keys in the file, set or not."""
    section, in_force = "", True
    for number, line in enumerate(LINES):
        if table := TABLE.fullmatch(line):
            section, in_force = table[2].split(".")[0], not table[1]
        elif key := KEY.fullmatch(line):
            value = tomllib.loads(f"value = {key[3]}")["value"]
            yield Shown(section, key[2], value, is_set=not key[1], in_force=in_force, number=number)


def known() -> Iterator[tuple[str, FieldInfo]]:
    """The keys of the model."""
    for section, info in Settings.model_fields.items():
        # The model itself, or that of each table of a mapping.
        model = next(part for part in (info.annotation, *get_args(info.annotation)) if hasattr(part, "model_fields"))
        yield from ((f"{section}.{key}", field) for key, field in model.model_fields.items())


WITHOUT_VALUE = "catalogs.root"
"""The key that has no value yet which could be shown."""
FIELDS = dict(known())
SHOWN = list(shown())


def default_of(key: Shown) -> object:
    return FIELDS[key.name].get_default(call_default_factory=True)


DEFAULTS = [key for key in SHOWN if key.name in FIELDS and not key.is_set and default_of(key) not in NOTHING]


def test_every_key_is_in_it_once_and_no_other() -> None:
    assert sorted(key.name for key in SHOWN) == sorted(set(FIELDS) - {WITHOUT_VALUE})


def described() -> list[str]:
    """Return the keys with a heading in the reference of settings, such as `catalogs.uri`."""
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    return [key.replace(".NAME.", ".") for key in re.findall(r"^### `(.+)`$", text, re.MULTILINE)]


def test_every_key_is_in_the_reference_once_and_no_other() -> None:
    assert sorted(described()) == sorted(FIELDS)


def test_every_line_is_a_remark_a_table_or_a_key() -> None:
    others = [line for line in LINES if line and not line.startswith("# ") and line != "#"]
    assert [line for line in others if not TABLE.fullmatch(line) and not KEY.fullmatch(line)] == []


def test_what_is_set_is_what_has_no_default() -> None:
    assert [key.name for key in SHOWN if key.is_set] == ["catalogs.uri", "stores.prefix"]


def test_it_loads_as_it_stands() -> None:
    settings = load(FILE, {})
    catalogs.check_adapters(settings)
    assert (len(settings.catalogs), len(settings.stores)) == (1, 1)


@pytest.mark.parametrize("key", SHOWN, ids=lambda key: key.name)
def test_what_a_line_shows_is_the_default_or_an_example_of_another_value(key: Shown) -> None:
    field = FIELDS[key.name]
    annotation: Any = field.annotation
    alone = create_model("Alone", value=(annotation, field)).model_validate({"value": key.value})
    assert (vars(alone)["value"] == default_of(key)) == (key in DEFAULTS)


@pytest.mark.parametrize("key", [key for key in SHOWN if not key.is_set], ids=lambda key: key.name)
def test_what_shows_no_default_says_so(key: Shown) -> None:
    above = next(line for line in reversed(LINES[: key.number]) if line.startswith("# "))
    assert above.endswith("e.g.") == (key not in DEFAULTS)


def test_with_its_defaults_set_it_says_the_same(tmp_path: Path) -> None:
    lines = dict(enumerate(LINES))
    lines |= {key.number: LINES[key.number].removeprefix("#") for key in DEFAULTS if key.in_force}
    file = tmp_path / "sfn.toml"
    file.write_text("\n".join(lines.values()))
    assert tomllib.loads(file.read_text()) != tomllib.loads(FILE.read_text())
    assert load(file, {}) == load(FILE, {})


def test_the_sender_in_it_may_be_let_in(tmp_path: Path) -> None:
    wanted = ("#[senders.etl]", "#secrets =")
    file = tmp_path / "sfn.toml"
    file.write_text("\n".join(line.removeprefix("#") if line.startswith(wanted) else line for line in LINES))
    assert load(file, {"SFN_LISTENER__HOST": "0.0.0.0"}).catalogs_of("etl") == {"prod": "prod"}  # noqa: S104 - not bound


MAKEFILE = Path(__file__).parents[2] / "Makefile"
MAKE = str(shutil.which("make"))


@pytest.fixture(name="tree")
def fixture_tree(tmp_path: Path) -> Path:
    """A source tree whose virtual environment is there, and notes what is run in it; it can fetch nothing."""
    shutil.copy(MAKEFILE, tmp_path)
    (tmp_path / "deploy").mkdir()
    (tmp_path / "build" / "docs-venv").mkdir(parents=True)
    for source in ("deploy/requirements.lock", "deploy/spark.lock", "deploy/docs.lock", "pyproject.toml"):
        (tmp_path / source).touch()
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("python", "pytest", "ruff", "mypy", "lint-imports", "hadolint", "check-jsonschema"):
        (commands / name).write_text(f"#!/bin/sh\necho {name} >>ran\nexit {int(name == 'python')}\n")
        (commands / name).chmod(0o755)
    for stamp in (".venv/installed", ".venv/spark", "build/docs-venv/installed"):
        (tmp_path / stamp).touch()
    return tmp_path


def made(tree: Path, *, ci: str | None) -> subprocess.CompletedProcess[str]:
    surroundings = {"PATH": os.environ["PATH"], **({} if ci is None else {"CI": ci})}  # noqa: TID251 - a child's
    return subprocess.run(
        [MAKE, "test"], cwd=tree, env=surroundings, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("ci", [None, "", "false"])
def test_every_other_test_is_run(tree: Path, ci: str | None) -> None:
    done = made(tree, ci=ci)
    assert done.returncode == 0, done.stderr
    assert (tree / "ran").read_text().split()[-4:] == ["python", "python", "python", "pytest"]
    assert "no catalog server, or no compatibility kit: the tests that need it are skipped" in done.stderr
    assert "a server is missing: the tests of stores, of PostgreSQL or of NATS that need it are skipped" in done.stderr
    assert "no PySpark, or no runtime of Iceberg's for it: the tests that need them are skipped" in done.stderr


def test_on_ci_it_is_a_failure(tree: Path) -> None:
    assert made(tree, ci="true").returncode != 0
    assert (tree / "ran").read_text().split()[-1] == "python"


@pytest.mark.parametrize(("ci", "last"), [(None, "pytest"), ("true", "python")])
@pytest.mark.parametrize("missing", ["servers.py", "jars.py --spark"])
def test_one_that_is_missing_is_no_reason_to_do_without_the_others(
    tree: Path, ci: str | None, last: str, missing: str
) -> None:
    python = f"#!/bin/sh\necho python >>ran\n[ \"$*\" != 'deploy/fetch/{missing}' ]\n"
    (tree / ".venv" / "bin" / "python").write_text(python)
    done = made(tree, ci=ci)
    assert (done.returncode == 0) is (last == "pytest")
    assert (tree / "ran").read_text().split()[-1] == last
    assert "no catalog server" not in done.stderr


@pytest.mark.parametrize(("ci", "last"), [(None, "pytest"), ("true", "ruff")])
def test_without_pyspark_mypy_leaves_out_what_imports_it(tree: Path, ci: str | None, last: str) -> None:
    (tree / ".venv" / "spark").unlink()
    commands = tree / ".venv" / "bin"
    (commands / "python").write_text("#!/bin/sh\n")
    (commands / "mypy").write_text('#!/bin/sh\necho "mypy $*" >>ran\n')
    done = made(tree, ci=ci)
    ran = (tree / "ran").read_text().splitlines()
    assert ran[-1] == last
    assert [line for line in ran if line.startswith("mypy ")] == (
        [] if ci else [r"mypy --exclude=/(pyspark_sfn|spark)(/|\.py$)"]
    )
    assert ("make: no PySpark: mypy skips modules that import it" in done.stderr) is (ci is None)


@pytest.mark.parametrize(("ci", "status"), [(None, 0), ("true", 2)])
def test_without_its_generator_the_site_is_not_tested(tree: Path, ci: str | None, status: int) -> None:
    (tree / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")
    (tree / "deploy" / "docs.lock").unlink()
    done = made(tree, ci=ci)
    assert done.returncode == status
    assert ("no generator for the documentation site: its tests are skipped" in done.stderr) is (ci is None)


def test_where_it_is_had_nothing_is_said(tree: Path) -> None:
    (tree / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")
    done = made(tree, ci=None)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(name="fetching")
def fixture_fetching(tree: Path) -> Path:
    """A source tree whose virtual environment is yet to be made, of 51 packages."""
    (tree / ".venv" / "installed").unlink()
    (tree / "deploy" / "requirements.lock").write_text("a==1\nb==2\n")
    pip = tree / ".venv" / "bin" / "pip"
    pip.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--quiet*) exit 0 ;; esac\n'
        "echo 'Collecting a==1'\n"
        "echo '  Downloading a-1-py3-none-any.whl.metadata (2 kB)'\n"
        "echo '  Downloading a-1-py3-none-any.whl (41.5 MB)'\n"
        "echo 'Downloading https://index.example/packages/b_c-2.whl (1 kB)'\n"
        "for number in $(seq 49); do echo '  Using cached d-1.whl (1 kB)'; done\n"
        "echo 'Installing collected packages: a, b'\n"
    )
    pip.chmod(0o755)
    for python in (tree / "python", tree / ".venv" / "bin" / "python"):
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
    return tree


FETCH = [MAKE, "venv", "PYTHON=./python"]


def test_packages_that_are_fetched_are_told_of_in_a_few_lines(fetching: Path) -> None:
    done = subprocess.run(FETCH, cwd=fetching, capture_output=True, text=True, timeout=60, check=False)
    first, *others = done.stderr.splitlines()
    assert done.returncode == 0
    assert first.startswith("make: 2 Python packages into .venv")
    assert others == ["  25 packages so far", "  50 packages so far", "  … and installing them"]
    (fetching / ".venv" / "bin" / "pip").write_text("#!/bin/sh\nexit 1\n")
    (fetching / ".venv" / "installed").unlink()
    failed = subprocess.run(FETCH, cwd=fetching, capture_output=True, check=False, timeout=60)
    assert failed.returncode != 0


def test_on_a_terminal_they_are_told_of_in_one_line_that_is_written_anew(fetching: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(FETCH, cwd=fetching, stdout=theirs, stderr=theirs, check=False, timeout=60)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    first, line, rest = shown.split("\r\n")
    assert first.startswith("make: 2 Python packages into .venv")
    told = line.split("\r")
    assert (told[0], told[1]) == ("\x1b[K  package 1: a (41.5 MB)", "\x1b[K  package 2: b_c (1 kB)")
    assert (len(told), told[-1], rest) == (52, "\x1b[K  … and installing them", "")


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile"])
def test_what_a_lock_has_is_all_that_is_installed(name: str) -> None:
    installs = [line for line in MAKEFILE.with_name(name).read_text().splitlines() if "--require-hashes" in line]
    assert installs
    assert all("--no-deps" in line for line in installs)
