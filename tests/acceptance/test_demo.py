"""`sfn demo`, `sfn demo-catalog` and `make catalog`: a table to read, and a catalog for users without one."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sfn.demo.lake import require_packages
from sfn.extras import DISTRIBUTION, install_command, requirement
from tests.support.command_line import forked
from tests.support.programs import runtime

SFN = Path(sys.executable).with_name("sfn")
MINUTE = 60
SURROUNDINGS = {name: value for name, value in os.environ.items() if not name.startswith("SFN_")}  # noqa: TID251 - a child's


@pytest.fixture(name="surroundings")
def fixture_surroundings(tmp_path: Path) -> dict[str, str]:
    """An environment in which the demo can run, with an empty folder for temporary files."""
    require_packages()
    found = runtime()
    folder = {"TMPDIR": str(tmp_path), "SFN_JAVA": str(found.java), "SFN_JARS": str(found.jars)}
    # A proxy where nobody listens, for loopback addresses too.
    proxy = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": ""}
    # A variable that would turn the service's configuration into another one.
    return {**SURROUNDINGS, **folder, **proxy, "SFN_SWEEP__EVERY": "nonsense"}


def left_behind(folder: Path) -> list[str]:
    """Processes that speak of a folder."""
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return [command for command in commands if str(folder) in command]


def told_in_order(surroundings: dict[str, str], *parts: str, command: Sequence[str | Path] = (SFN, "demo")) -> None:
    """Run the demo, which must end well and print these parts in their order."""
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=5 * MINUTE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    told = re.sub(r"^ *[0-9.]+ s +", "", done.stdout, flags=re.MULTILINE)
    position = 0
    for part in parts:
        position = told.index(part, position) + len(part)


STORY = (
    "Create the table shop.orders",
    "the SFN file names 00000-",
    "the file names the current metadata file",
    '"table_identifier": "shop.orders"',
    *[f"the SFN file names 0000{number}-" for number in (1, 2, 3)],
    "Rename shop.orders to shop.sales",
    "the old name's SFN file is a tombstone: `renamed`",
    "shop.sales stays in the folder ",
    "each table has an SFN file of its own",
    '"table_identifier": "shop.scratch"',
    "Drop shop.scratch",
    "later readers get an error",
    "the table is a dead letter: a foreign file is never changed",
    "$ sfn status",
    "1 thing needs attention",
    "`LAST SWEEP` is the one of the start",
    "$ sfn status shop.returns",
    "foreign-file",
    "$ sfn dead-letters replay",
    "queued 1 of 1 for another attempt",
    "the SFN file names 00000-",
    "all is well",
    "late, not wrong",
    "Start the catalog again",
    "the SFN file names 00004-",
    "the listener drained and ended with 0",
    "✓ DuckDB",
    "6  umbrella",
    "✓ PyIceberg",
    "6  umbrella",
    "All checks passed.",
)


def test_it_shows_what_it_should_and_leaves_nothing_behind(surroundings: dict[str, str], tmp_path: Path) -> None:
    told_in_order(surroundings, "Iceberg's own REST catalog server", *STORY)
    assert not left_behind(tmp_path)
    assert not list(tmp_path.iterdir())


def without_runtime(tmp_path: Path) -> dict[str, str]:
    """An environment in which `make jars` downloaded nothing."""
    (tmp_path / "tmp").mkdir()
    own = {name: value for name, value in SURROUNDINGS.items() if name not in {"SFN_JAVA", "SFN_JARS"}}
    return {**own, "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}


def test_without_the_jars_the_catalog_is_one_of_pyiceberg(tmp_path: Path) -> None:
    told_in_order(without_runtime(tmp_path), "PyIceberg's SQL catalog, behind a small REST server", *STORY)
    assert not left_behind(tmp_path)
    assert not list((tmp_path / "tmp").iterdir())


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
sys.argv[1:] = ["demo"]
from sfn.cli.main import main
main()
"""


def test_the_demo_needs_no_pyarrow(tmp_path: Path) -> None:
    told_in_order(without_runtime(tmp_path), *STORY, command=(sys.executable, "-c", WITHOUT_PYARROW))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_in_the_middle_it_leaves_no_process_behind(
    surroundings: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen([SFN, "demo"], env=surroundings, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "Create the table" in line:
                demo.send_signal(number)
                break
        demo.stdout.read()
    assert demo.returncode != 0
    deadline = time.monotonic() + 10
    while left_behind(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left_behind(tmp_path)
    assert number is signal.SIGKILL or not list(tmp_path.iterdir())


def test_jars_that_are_named_are_wanted(tmp_path: Path) -> None:
    command = [str(SFN), "demo", "--jars", str(tmp_path)]
    done = subprocess.run(command, env=SURROUNDINGS, capture_output=True, text=True, timeout=MINUTE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "make jars" in done.stderr


WITHOUT_PACKAGES = """
import sys
sys.modules["pyiceberg"] = None
sys.argv[1:] = sys.argv[1:] or ["demo"]
from sfn.cli.main import main
main()
"""


def without_packages(command: str, *more: str, uv: Path | None = None) -> subprocess.CompletedProcess[str]:
    surroundings = {name: value for name, value in SURROUNDINGS.items() if name != "UV"}
    line = [sys.executable, "-c", WITHOUT_PACKAGES, command, *more]
    environ = surroundings | ({} if uv is None else {"UV": str(uv)})
    return subprocess.run(line, env=environ, capture_output=True, text=True, timeout=MINUTE, check=False)


@pytest.mark.parametrize("command", ["demo", "demo-catalog"])
def test_without_its_packages_it_names_the_command_that_installs_them(command: str) -> None:
    done = without_packages(command)
    assert (done.returncode, done.stdout) == (1, "")
    remedy = install_command("demo")
    assert done.stderr == f"sfn demo: expected PyIceberg and DuckDB, found no pyiceberg; {remedy}\n"


def test_uv_runs_the_demo_again_with_its_packages(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    uv.chmod(0o755)
    done = without_packages("demo-catalog", "--port", "0", uv=uv)
    assert done.returncode == 0
    expected = ["tool", "run", "--from", requirement("demo"), DISTRIBUTION, "demo-catalog", "--port", "0", "--fetched"]
    assert done.stdout.splitlines() == expected
    assert "uv fetches them" in done.stderr


def test_uv_runs_the_demo_again_only_once() -> None:
    done = without_packages("demo", "--fetched", uv=Path(sys.executable))
    assert (done.returncode, done.stdout) == (1, "")
    assert install_command("demo") in done.stderr


ROOT = Path(__file__).parents[2]
SERVE = ROOT / "deploy" / "rest-fixture" / "serve.py"


@contextmanager
def catalog(*command: str | Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command that runs a catalog; it is interrupted in the end, and must end well."""
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    with running:
        try:
            yield running
            running.send_signal(signal.SIGINT)
            _, complaint = running.communicate(timeout=60)
            assert (running.returncode, complaint) == (0, "")
        finally:
            running.kill()


def told(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().rstrip()


def commit(running: subprocess.Popen[str]) -> str:
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()
    return told(running)


def commits_stay(folder: Path, *command: str | Path, environ: dict[str, str]) -> None:
    """Each line on standard input must be a commit, and a second start must continue."""
    with catalog(*command, environ=environ) as running:
        page = [told(running) for _ in range(4)]
        assert page[1].endswith(f" {folder}/warehouse")
        assert "sales.orders" in page[2]
        pointers = [commit(running), commit(running)]
    assert [Path(pointer).name[:6] for pointer in pointers] == ["00001-", "00002-"]
    with catalog(*command, environ=environ) as running:
        again = [told(running) for _ in range(4)]
        assert again[1] == page[1]
        assert "sales.orders" in again[2]
        assert Path(commit(running)).name.startswith("00003-")
    assert not left_behind(folder)


def test_each_line_is_a_commit_to_the_demos_catalog_and_commits_stay(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    commits_stay(folder, SFN, "demo-catalog", folder, "--port", "0", environ=SURROUNDINGS)


def test_each_line_is_a_commit_to_icebergs_own_catalog_and_commits_stay(tmp_path: Path) -> None:
    found = runtime()
    folder = tmp_path / "lake"
    environ = {**SURROUNDINGS, "SFN_JAVA": str(found.java), "SFN_JARS": str(found.jars)}
    commits_stay(folder, sys.executable, SERVE, folder, "0", environ=environ)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command: list[str | Path] = [SFN, "demo-catalog", tmp_path / "lake", "--port", str(port)]
        done = subprocess.run(command, env=SURROUNDINGS, capture_output=True, text=True, timeout=MINUTE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"port {port}: Address already in use" in done.stderr


def test_a_url_is_no_folder_of_its_catalog(tmp_path: Path) -> None:
    done = forked("demo-catalog", "s3://lake/warehouse", "--port", "0", folder=tmp_path)
    assert (done.status, done.out, list(tmp_path.iterdir())) == (2, "", [])
    assert "expected a folder of this machine" in " ".join(done.err.split())
