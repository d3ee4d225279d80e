"""A reader that looks at every table over and over: whatever it once read may not be followed by something older."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import anyio

from sfn.sfnfile import version_hint
from tests.faults.files import Pointed

LOOKS_EVERY = 0.015


class Tables(Protocol):
    """What is looked at."""

    @property
    def tables(self) -> Iterable[str]:
        """Their names."""
        ...

    def pointed(self, name: str) -> Pointed:
        """What the directory of one says."""
        ...


class Back(NamedTuple):
    """A file that went back."""

    table: str
    file: str
    older: int
    newer: int


@dataclass
class Observer:
    """The reader.

    Attributes:
        back: what went back.
        steps: how often a file said something newer than before.
    """

    lake: Tables
    back: list[Back] = field(default_factory=list)
    steps: int = 0
    _at: dict[tuple[str, str], int] = field(default_factory=dict)

    async def watch(self) -> None:
        """For ever."""
        while True:
            self.look()
            await anyio.sleep(LOOKS_EVERY)

    def look(self) -> None:
        """Once at each table."""
        for name in self.lake.tables:
            for file, number in _numbers(self.lake.pointed(name)).items():
                before = self._at.get((name, file), -1)
                self._at[name, file] = number
                self.steps += number > before
                if number < before:
                    self.back.append(Back(name, file, number, before))


def _numbers(read: Pointed) -> dict[str, int]:
    """Which of a table's metadata files each of its two files names: they are numbered."""
    numbers = {}
    if read.document is not None:
        assert read.document.is_live, read.document
        numbers["file"] = int(read.document.metadata_file_path.rsplit("/", 1)[-1].partition("-")[0])
    # One that names nothing is what a hint begins as.
    if read.hint is not None and not version_hint.is_cleared(read.hint.encode()):
        numbers["hint"] = int(read.hint.partition("-")[0])
    return numbers
