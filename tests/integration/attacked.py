"""What is attacked: a facade whose opened files are known, and what lies outside of its roots."""

from __future__ import annotations

import re
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

import sfn
from tests.integration.facing import Facing
from tests.integration.pages import ROOT
from tests.support.facade import shown
from tests.support.table_directory import Directory

MIB = 1 << 20
OPENED = re.compile(r"= \d+<(/[^>]*)>$")
"""What a call that succeeded led to, by the system's own word."""


@dataclass(frozen=True)
class World:
    """A facade, its two roots, and what lies outside of them.

    Attributes:
        ours: the root that the attacker may write below.
        other: a root that somebody else writes below.
        outside: no root.
    """

    ours: Path
    other: Path
    outside: Path
    facade: Facing

    def ask(self, directory: Path | str, **more: Any) -> httpx.Response:  # noqa: ANN401 - httpx's
        return self.facade.table(str(directory), "dir", **more)

    def refuses(self, directory: Path | str, *statuses: int) -> None:
        """See that a directory is refused, at once and each time, and nothing of the outside told."""
        for query in ("", "?snapshots=refs"):
            answer = self.ask(directory, query=query)
            assert answer.status_code in (statuses or (403,)), answer.text
            assert answer.json()["error"]["code"] == answer.status_code
            assert "canary" not in answer.text


def opens(log: Path) -> list[Path]:
    """The files that were opened, of a log of strace's."""
    found = (OPENED.search(line.rstrip()) for line in log.read_text(errors="replace").splitlines())
    return [Path(match[1]) for match in found if match is not None]


def interpreter() -> list[Path]:
    """Where modules lie that may be imported at any time."""
    paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), str(Path(sfn.__file__).parent), str(ROOT)}
    return [Path(path).resolve() for path in paths] + [Path(path) for path in paths]


def planted(world: World, name: str, **more: Any) -> Directory:  # noqa: ANN401 - any attribute
    """A table of the attacker's."""
    path = world.ours / name
    return shown(path, f"evil.{name}", **{"metadata_file_path": f"file:{path}/metadata/00001-a.metadata.json", **more})


def weigh(world: World, ask: Callable[[], None]) -> int:
    """By how many bytes the process grows at most."""
    process = psutil.Process(world.facade.process.pid)
    before = most = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        ask()
    finally:
        done.set()
        thread.join()
    return most - before
