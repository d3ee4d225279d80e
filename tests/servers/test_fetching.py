"""What `make servers` does where servers can be had, and where they can't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FETCH = Path(__file__).parents[2] / "deploy" / "fetch" / "servers.py"

GO = """\
case $1 in
env) echo go1.99.1 ;;
*) for last; do :; done; last=${last##*/}; : >"$GOBIN/${last%@*}"; /bin/mkdir -p "$GOCACHE"; echo "$last" >>"$RAN" ;;
esac"""
NPM = 'echo "npm $1" >>"$RAN"'


def fetched(folder: Path, **commands: str) -> subprocess.CompletedProcess[str]:
    """Fetch into an empty cache, on a machine that has these commands and no network."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, script in commands.items():
        file = folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    surroundings = {
        "PATH": str(folder / "bin"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PIP_NO_INDEX": "1",
        "RAN": str(folder / "ran"),
    }
    return subprocess.run(
        [sys.executable, FETCH], env=surroundings, capture_output=True, text=True, timeout=60, check=False
    )


def lines(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


FOUND = dict.fromkeys(("initdb", "pg_ctl", "pg_isready", "postgres", "psql", "pgbouncer"), "")
INSTALLS = {"node": "echo v20.6.0", "npm": NPM}


def test_what_is_there_is_found_and_the_rest_fetched_once(tmp_path: Path) -> None:
    done = fetched(tmp_path, **FOUND, **INSTALLS, go=GO)
    assert done.returncode == 0, done.stderr
    cache = tmp_path / "cache" / "iceberg-sfn" / "test-servers-2026.11"
    assert (cache / "env").read_text() == done.stdout
    assert Path(lines(done)["SFN_POSTGRES"]) == tmp_path / "bin"
    assert Path(lines(done)["SFN_VERSITYGW"]) == cache / "versitygw-1.8.0" / "versitygw"
    assert Path(lines(done)["SFN_FAKE_GCS"]).is_file()
    assert not list(cache.glob("part-*"))
    built = ["versitygw@v1.8.0", "fake-gcs-server@v1.56.1", "v2@v2.15.2"]
    assert (tmp_path / "ran").read_text().split("\n") == ["npm ci", *built, ""]
    (tmp_path / "ran").unlink()
    again = fetched(tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    assert not (tmp_path / "ran").exists()


def test_what_can_not_be_had_is_told_and_has_no_line(tmp_path: Path) -> None:
    done = fetched(tmp_path, **FOUND, go=GO, node="echo v18.20.4", npm=NPM)
    assert done.returncode == 1
    assert lines(done).keys() == {"SFN_POSTGRES", "SFN_PGBOUNCER", "SFN_VERSITYGW", "SFN_FAKE_GCS", "SFN_NATS"}
    assert "fetching a Node, as the machine has none with npm that is new enough (some 60 MB), by pip" in done.stderr
    assert "could not fetch " in done.stderr


def test_a_build_that_fails_is_tried_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = fetched(tmp_path, **FOUND, **INSTALLS, go=GO.replace(": >", "echo no such module; exit 1; : >"))
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert told.count("fetching versitygw-1.8.0, which is built here (a few minutes), by go") == 2
    assert told.count("no such module") == 6
    left = {path.name for path in (tmp_path / "cache" / "iceberg-sfn" / "test-servers-2026.11").iterdir()}
    assert left == {"azurite-3.35.0", "env", "lock"}
