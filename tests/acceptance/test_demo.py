"""`sfn demo` and `make catalog`: a table to look at, and a real catalog for who has none."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sfn.demo import environment
from tests.support.programs import runtime

SFN = Path(sys.executable).with_name("sfn")
MINUTE = 60
SURROUNDINGS = {name: value for name, value in os.environ.items() if not name.startswith("SFN_")}  # noqa: TID251 - a child's


@pytest.fixture(name="surroundings")
def fixture_surroundings(tmp_path: Path) -> dict[str, str]:
    """An environment in which the demo can run, with an empty folder for temporary files."""
    environment.require_packages()
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


def told_in_order(surroundings: dict[str, str], *parts: str) -> str:
    """The demo, which must end well and tell of these parts in their order; its first line."""
    done = subprocess.run(
        [SFN, "demo"], env=surroundings, capture_output=True, text=True, timeout=5 * MINUTE, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    told = re.sub(r"^ *[0-9.]+ s +", "", done.stdout, flags=re.MULTILINE)
    position = 0
    for part in parts:
        position = told.index(part, position) + len(part)
    return told.partition("\n")[0]


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


def test_without_the_jars_it_says_so_first_and_does_with_another_catalog(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    empty = {"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    without = {name: value for name, value in SURROUNDINGS.items() if name not in {"SFN_JAVA", "SFN_JARS"}}
    first = told_in_order({**without, **empty}, "PyIceberg's SQL catalog, in a SQLite file", *STORY)
    assert first.startswith("No REST catalog server, so PyIceberg's SQL catalog is used: ")
    assert "make jars" in first
    assert not left_behind(tmp_path)
    assert not list((tmp_path / "tmp").iterdir())


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


def test_without_its_dependencies_it_says_what_to_do() -> None:
    block = "import sys; sys.modules['pyiceberg'] = None; sys.argv[1:] = ['demo']"
    command = [sys.executable, "-c", f"{block}; from sfn.cli.main import main; main()"]
    done = subprocess.run(command, env=SURROUNDINGS, capture_output=True, text=True, timeout=MINUTE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "sfn demo: expected PyIceberg and DuckDB, found no pyiceberg; pip install '.[demo]'\n"


ROOT = Path(__file__).parents[2]
SERVE = ROOT / "deploy" / "rest-fixture" / "serve.py"


@contextmanager
def catalog(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command on any free port; it is interrupted in the end, and must end well."""
    found = runtime()
    told = {"SFN_JAVA": str(found.java), "SFN_JARS": str(found.jars)}
    command, pipe = [sys.executable, str(SERVE), str(folder), "0"], subprocess.PIPE
    surroundings = {**os.environ, **told}  # noqa: TID251 - a child's
    running = subprocess.Popen(command, env=surroundings, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
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


def test_each_line_is_a_commit_and_what_was_committed_stays(tmp_path: Path) -> None:
    with catalog(tmp_path / "lake") as running:
        page = [told(running) for _ in range(4)]
        assert page[1].endswith(f" {tmp_path}/lake/warehouse")
        assert "sales.orders" in page[2]
        assert "00000-" in page[2]
        pointers = [commit(running), commit(running)]
    assert [Path(pointer).name[:6] for pointer in pointers] == ["00001-", "00002-"]
    with catalog(tmp_path / "lake") as running:
        assert [told(running) for _ in range(4)][2].endswith(f" at {pointers[-1]}")
