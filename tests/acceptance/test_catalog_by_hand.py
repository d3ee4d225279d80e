"""`make catalog`: a real catalog for who has none, which goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs import runtime

ROOT = Path(__file__).parents[2]
SERVE = ROOT / "deploy" / "rest-fixture" / "serve.py"


@contextmanager
def catalog(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command on any free port; it is interrupted in the end, and must end well."""
    found = runtime()
    told = {"SFN_JAVA": str(found.java), "SFN_JARS": str(found.jars)}
    running = subprocess.Popen(
        [sys.executable, SERVE, folder, "0"],
        env={**os.environ, **told},  # noqa: TID251 - a child's
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
