"""The command line as an operator meets it before anything is served."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

SFN = Path(sys.executable).with_name("sfn")
FORGOTTEN = (
    "settings: expected a configuration file, found none that was given; "
    "name it: --config FILE or SFN_CONFIG; or set each key as SFN_SECTION__KEY"
)


def sfn(
    *arguments: str, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SFN_")}  # noqa: TID251 - a child's
    return subprocess.run(
        [SFN, *arguments],
        env={**inherited, **(environ or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_version_is_printed() -> None:
    done = sfn("--version")
    assert (done.returncode, done.stdout) == (0, f"sfn {version('iceberg-sfn')}\n")


def test_wrong_settings_are_all_named_and_exit_with_2(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[listener]\nprot = 1\n[admin]\ntoken = 's3cret with spaces'\n")
    done = sfn("serve", "--config", str(file), environ={"SFN_WORKER__CONCURRENCY": "many"})
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(line.split(": expected")[0] for line in done.stderr.splitlines()) == [
        "SFN_WORKER__CONCURRENCY",
        "sfn.toml: [admin] token",
        "sfn.toml: [listener] prot",
    ]
    assert "did you mean port?" in done.stderr
    assert "s3cret" not in done.stderr


def test_a_settings_file_that_is_not_there_exits_with_2(tmp_path: Path) -> None:
    done = sfn("serve", "--config", str(tmp_path / "absent.toml"))
    assert done.returncode == 2
    assert "absent.toml" in done.stderr


def test_without_any_settings_it_shows_what_to_write(tmp_path: Path) -> None:
    done = sfn("serve", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{FORGOTTEN}\nsettings: catalogs: expected at least one, found none; "
        'write [catalogs.NAME] uri = "https://…", or set SFN_CATALOGS__NAME__URI\n'
    )


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("audit",), ("notify", "sales.orders"), ("reconcile",), ("reconcile", "--dry-run")],
)
def test_a_forgotten_configuration_is_named_before_all_that_it_lacks(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = sfn(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert (first, len(rest)) == (FORGOTTEN, 1)


def test_a_check_names_a_forgotten_configuration_first(tmp_path: Path) -> None:
    done = sfn("check", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.splitlines()[:2] == [
        "error    settings: expected a configuration file, found none that was given",
        f"         → {FORGOTTEN.partition('; ')[2]}",
    ]


def test_what_is_wrong_in_a_configuration_is_all_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[admin]\n")
    done = sfn("status", "--config", str(file))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "admin.token" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[worker]\nlease = ['30s']", "sfn.toml: [worker] lease: expected a duration such as 30s"),
        (
            "[catalogs.prod]\nuri = 'http://catalog'\ntoken = 's3cret'\ntoken_file = '/x'",
            "catalogs.prod: expected valid settings of a REST catalog",
        ),
    ],
)
def test_one_wrong_setting_is_one_line_and_2(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text(text)
    done = sfn("serve", "--config", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert "s3cret" not in done.stderr


def test_an_unknown_command_exits_with_2() -> None:
    assert sfn("srve").returncode == 2
