"""What a service leaves behind, read from outside: SFN files, version hints and the inbox's database."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import anyio

from sfn.inbox.schema import decode_job
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document, parse
from sfn.sfnfile.naming import FileLayout, FileOwner

LOOKS_EVERY = 0.015


@dataclass(frozen=True, slots=True)
class Pointed:
    """The two files of one table.

    Attributes:
        document: the SFN file's; None where there is none.
        hint: the content of `version-hint.text`; None where there is none.
    """

    document: Document | None
    hint: str | None

    def says(self, pointer: str) -> bool:
        """Whether both name this metadata file, and the table is live."""
        document = self.document
        if document is None or not document.is_live:
            return False
        return document.metadata_file_path == pointer and self.hint == version_hint.text_for(pointer)


def pointed(directory: Path, namespace: str, name: str) -> Pointed:
    """The files of a table in its directory."""
    (key, *_) = FileLayout(directory.as_uri()).keys(FileOwner((namespace,), name))
    document, hint = _content(Path(key.removeprefix("file://"))), _content(directory / "metadata" / "version-hint.text")
    return Pointed(None if document is None else parse(document), None if hint is None else hint.decode())


def contents(warehouse: Path) -> dict[Path, bytes]:
    """Every SFN file and version hint below a directory, byte for byte."""
    found = (*warehouse.rglob("*.ver"), *warehouse.rglob("version-hint.text"))
    return {path: path.read_bytes() for path in found}


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with TemporaryDirectory() as folder:
        # The log first: a checkpoint in between moves its pages into the database, and none out of it.
        for file in (path.with_name(f"{path.name}-wal"), path):
            if file.exists():
                shutil.copy(file, folder)
        db = sqlite3.connect(f"{(Path(folder) / path.name).as_uri()}?mode=rw", uri=True)
        try:
            yield db
        finally:
            db.close()


def logged(path: Path) -> set[str]:
    """The ids of all events in the log."""
    with _opened(path) as db:
        return {event for (event,) in db.execute("SELECT event_id FROM event WHERE event_id IS NOT NULL")}


def letters(path: Path) -> dict[str, int]:
    """How many rows are dead, by reason."""
    with _opened(path) as db:
        return dict(db.execute("SELECT reason, count(*) FROM dead_letter WHERE status = 'open' GROUP BY reason"))


def leased(path: Path) -> int:
    """How many claims are open."""
    with _opened(path) as db:
        return int(db.execute("SELECT count(*) FROM job WHERE state = 'leased'").fetchone()[0])


def most_attempts(path: Path) -> int:
    """The highest count of attempts over all rows."""
    with _opened(path) as db:
        return max((decode_job(record).attempt for (record,) in db.execute("SELECT record FROM job")), default=0)


def unsettled(path: Path) -> int:
    """How many jobs have an unprocessed notification and are not dead, and how many records wait to be folded."""
    with _opened(path) as db:
        waiting = int(db.execute("SELECT count(*) FROM pending").fetchone()[0])
        rows = [decode_job(record) for (record,) in db.execute("SELECT record FROM job WHERE state != 'dead'")]
    return waiting + sum(row.version > row.processed_version for row in rows)


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
