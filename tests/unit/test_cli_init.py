"""`sfn init`: a first configuration that loads, with tokens of its own, and that replaces nothing unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sfn.cli.main import app
from sfn.settings import load

CATALOG, LAKE = "http://127.0.0.1:8181", "s3://bucket/warehouse"


def run(*arguments: str, **more: Any) -> Result:  # noqa: ANN401 - the runner's own
    return CliRunner().invoke(app, ["init", *arguments], **more)


def test_the_file_loads_and_has_new_tokens(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.toml", "two.toml")]
    for file in files:
        done = run(str(file), "--uri", CATALOG, "--store", LAKE, "--warehouse", 'my "w"', "--catalog", "eu-1")
        assert (done.exit_code, done.stdout.splitlines()[:2]) == (
            0,
            [f"wrote {file}", f"next: sfn check --config {file}    (is everything reachable?)"],
        )
        assert file.stat().st_mode & 0o777 == 0o600
    one, two = (load(file, {}) for file in files)
    assert (one.catalogs["eu-1"].uri, one.catalogs["eu-1"].warehouse) == (CATALOG, 'my "w"')
    assert one.stores["lake"].prefix == LAKE
    tokens = [settings.admin.token.get_secret_value() for settings in (one, two) if settings.admin.token is not None]
    tokens += [settings.senders["webhook"].secrets["first"].get_secret_value() for settings in (one, two)]
    assert len(set(tokens)) == 4
    assert list(tmp_path.iterdir()) in (files, files[::-1])


def test_a_file_that_exists_stays_without_force(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("mine")
    done = run(str(file), "--uri", CATALOG, "--store", LAKE)
    assert (done.exit_code, file.read_text()) == (2, "mine")
    assert "expected a file that does not exist yet, found one; pass --force to replace it" in done.stderr
    assert run(str(file), "--uri", "nonsense", "--store", LAKE, "--force").exit_code == 2
    assert file.read_text() == "mine"
    assert run(str(file), "--uri", CATALOG, "--store", LAKE, "--force").exit_code == 0
    assert load(file, {}).catalogs["prod"].uri == CATALOG


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--store", LAKE], 2, "pass --uri"),
        (["--uri", CATALOG], 2, "pass --store"),
        (["--uri", "catalog:8181", "--store", LAKE], 2, "did you mean http://catalog:8181?"),
        (["--uri", CATALOG, "--store", "bucket"], 2, "prefix"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    file = tmp_path / "sfn.toml"
    done = run(str(file), *arguments)
    assert (done.exit_code, file.exists()) == (status, False)
    assert said in " ".join(done.stderr.split())


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    done = run(str(tmp_path / "none" / "sfn.toml"), "--uri", CATALOG, "--store", LAKE)
    assert (done.exit_code, "expected a file that can be written" in done.stderr) == (1, True)
