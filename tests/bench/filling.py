"""How full a folder gets where each commit has a file, however long these are to be kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio

from sfn.sfnfile.naming import EXTENSION, ORDINAL
from tests.bench.publishing import Line
from tests.bench.record import Figure, Goal, Run

COMMITS: Final = 10_000
PAGE: Final = 1_000
"""Keys that a page of a listing has on S3; on Azure and GCS it is more."""
AT_ONCE: Final = 100
"""Commits that are told of as one: as many as a metadata-log has unless a table says otherwise."""


def measure(commits: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Publish many commits of one table, and count what lies there at most."""
    line, most = Line(folder, ORDINAL, keep_for=timedelta(days=9_999)), 0
    place = Path(line.location.removeprefix("file://"), "metadata", "_sfn")
    for done in range(0, commits, AT_ONCE):
        say(f"filling: {done:,}/{commits:,} commits")
        anyio.run(line.publish, AT_ONCE)
        most = max(most, len(list(place.glob(f"*{EXTENSION}"))))
    note = f"{commits:,} commits, each to be kept for ever; one page of a listing has {PAGE:,}"
    goal, short = Goal("value", "<=", PAGE), commits < COMMITS
    return [Figure(name="ordinal_folder_most", unit="files", runs=[Run(most)], goal=goal, short=short, note=note)]
