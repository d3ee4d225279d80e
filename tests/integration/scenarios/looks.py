"""Scenarios, what readers see after them in words that are the same in each run, and whether the catalog says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from pyiceberg.table import StaticTable, Table

import sfn
from sfn.errors import NameTaken, Unreadable
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.document import Document, DocumentState
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH, FileLayout, FileOwner, Placement, commit_ordinal
from tests.integration.scenarios.service import Identifier, Service
from tests.integration.scenarios.stage import Known, Stage

NONE = "none"
FOLLOWS = "→ "
DIRECTORY, NAME, UUID, HINT = STANDARD = ("directory", "name", "uuid", "hint")


@dataclass(frozen=True, slots=True)
class Look:
    """One look of one reader.

    Attributes:
        of: which table or place it is, where a scenario has several; may be empty.
        by: what the reader goes by.
        see: what it sees.
    """

    of: str
    by: str
    see: Callable[[Truth], str]

    @property
    def how(self) -> str:
        """Which of its cell's looks it is."""
        return f"{self.of}: {self.by}" if self.of else self.by


def everywhere(table: Known, of: str = "") -> list[Look]:
    """Whoever remembers a table, and looks at its place in each way that there is."""
    return [
        Look(of, DIRECTORY, lambda truth: _resolved(truth, table.directory)),
        by_name(table, of),
        by_uuid(table, of),
        Look(of, HINT, lambda truth: _hinted(truth, table.directory)),
    ]


def by_name(table: Known, of: str = "") -> Look:
    return Look(of, NAME, lambda truth: _resolved(truth, table.directory, table.identifier))


def by_uuid(table: Known, of: str = "") -> Look:
    return Look(of, UUID, lambda truth: _resolved(truth, table.directory, uuid=table.uuid))


def by_ref(table: Known, ref: str) -> Look:
    """Whoever wants a branch or tag."""
    return Look("", f"ref {ref}", lambda truth: _resolved(truth, table.directory, table.identifier, ref=ref))


def by_history(table: Known, now: Known | None = None) -> Look:
    """Whoever wants every commit of a table, which may have another name now."""
    of = "" if now is None else "old"
    return Look(of, "history", lambda truth: _history(truth, table, now or table))


def file_of(table: Known, ref: str) -> Look:
    """The state that a branch's own file has."""
    return Look("", f"file of {ref}", lambda truth: _state(truth, table, ref))


def by_letter(table: Known) -> Look:
    """Whoever operates the service: why a table has no file."""
    return Look("", "dead letter", lambda truth: _letter(truth, table, truth.stage.world.service))


def by_rivals_letter(table: Known) -> Look:
    """Whoever operates the other environment's service."""
    return Look("", "the other one's dead letter", lambda truth: _letter(truth, table, truth.stage.world.rival))


def owner_of(table: Known) -> Look:
    """Which environment's file leads a table at its place."""
    return Look("", "the file there", lambda truth: _owner(truth, table))


def why(stage: Stage, table: Known, by: str) -> Look:
    """Whoever operates the service, now and not at the end: what a table waits for."""
    row = stage.world.service.row(stage.section.name, table.identifier)
    said = (row["last_result"]["why"] if row is not None else None) or NONE
    return Look("", by, lambda _: said)


def _resolved(
    truth: Truth, directory: Path, table: Identifier | None = None, *, uuid: str | None = None, ref: str = MAIN_BRANCH
) -> str:
    try:
        found = sfn.resolve(directory, table, uuid, ref)
    except Unreadable as refusal:
        return _refused(truth, refusal)
    called = truth.confirm(found.sfn_file, found.metadata_location, found.table(), ref)
    by = "" if ref == MAIN_BRANCH else " by its own file" if found.document.ref == ref else " by the metadata"
    return f"{FOLLOWS if found.via else ''}{called}{by}"


def _hinted(truth: Truth, directory: Path) -> str:
    """By a reader that knows of nothing else."""
    hint = version_hint.key_of(str(directory))
    if not Path(hint).exists():
        return NONE
    try:
        table = StaticTable.from_metadata(str(directory))
    except OSError:
        return "refuses"
    return truth.confirm(hint, table.metadata_location, table)


def _history(truth: Truth, table: Known, now: Known) -> str:
    had = truth.stage.history(now.identifier)
    try:
        told = sfn.history(table.directory, table.identifier)
    except Unreadable as refusal:
        return _refused(truth, refusal)
    found = [entry.metadata_location for entry in told]
    if found != [location for location in had if location in found]:
        raise AssertionError(f"{table.directory}: expected commits of {had} in that order, found {found}")
    sources = " and ".join(sorted({entry.source.value for entry in told}))
    lost = sum(entry.gap for entry in told)
    return f"{len(found)} of {len(had)} commits by {sources}" + (f", {lost} reported as lost" if lost else "")


def _state(truth: Truth, table: Known, ref: str) -> str:
    return " and ".join(doc.state.value for doc in _documents(truth, table, ref)) or NONE


def _owner(truth: Truth, table: Known) -> str:
    ours = truth.stage.section.catalog_id
    docs = _documents(truth, table, None)
    return " and ".join("ours" if doc.catalog_id == ours else "the other one's" for doc in docs) or NONE


def _documents(truth: Truth, table: Known, ref: str | None) -> list[Document]:
    """Of a branch, or what leads the table."""
    site = FileLayout(f"file://{table.directory}", truth.stage.section.naming)
    whose = FileOwner(table.identifier[:-1], table.identifier[-1], table.uuid)
    files = [Path(key.removeprefix("file://")) for key in site.keys(whose, ref)]
    return [document.parse(file.read_bytes()) for file in files if file.exists()]


def _letter(truth: Truth, table: Known, service: Service) -> str:
    row = service.row(truth.stage.section.name, table.identifier)
    return str(row["reason"]) if row is not None and row["reason"] is not None else NONE


def _refused(truth: Truth, refusal: Unreadable) -> str:
    """The kind of error; of one that speaks of several tables also which of the scenario's it names."""
    kind = type(refusal).__name__
    if not isinstance(refusal, NameTaken):
        return kind
    tables = {truth.stage.short(table): re.escape(".".join(table)) for table in truth.stage.tables}
    said = [short for short, dotted in tables.items() if re.search(rf"(?<![\w.]){dotted}(?![\w.])", str(refusal))]
    return f"{kind} ({' and '.join(sorted(said))})"


Play = Callable[[Stage], Sequence[Look]]


class Telling(StrEnum):
    """How the service may learn of the changes, where it is not told of each as it happens."""

    LAST = "one event after an outage"
    NONE = "no event"


OUTAGE = (Telling.LAST,)
OUTAGE_OR_SILENCE = (Telling.LAST, Telling.NONE)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row.

    Attributes:
        title: of its row.
        play: do it, and wait until the service has seen it through; who looks afterwards.
        again: how else the service learns of it, in a play of its own each.
        placement: where the service puts files.
        expires: whether tombstones go as soon as they may.
    """

    title: str
    play: Play
    again: Sequence[Telling] = ()
    placement: Placement = Placement.INSIDE
    expires: bool = False

    @property
    def key(self) -> str:
        """It, as a part of names."""
        return self.play.__name__


class Truth:
    """The catalog's tables at the end, which nobody changes any more.

    Args:
        stage: where the scenario was played.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._rows: set[tuple[str, str]] = set()

    @cached_property
    def live(self) -> dict[str, Table]:
        """All tables of the scenario that the catalog has, by their pointers."""
        return {canonical(str(table.metadata_location)): table for table in self.stage.live()}

    @cached_property
    def theirs(self) -> dict[str, Table]:
        """The other environment's, of which its service was told."""
        return {canonical(str(table.metadata_location)): table for table in self.stage.others}

    def confirm(self, said_by: str, pointer: str, found: StaticTable, ref: str = MAIN_BRANCH) -> str:
        """What a table that was found is called: a live one, at its current metadata file and with its rows.

        Args:
            said_by: the file that names it.
            pointer: what it names.
            found: what was opened, at the ref.

        Raises:
            AssertionError: it is not.
        """
        key = canonical(pointer)
        table = self.live.get(key) or self.theirs.get(key)
        if table is None:
            what = "an old one" if key in self.stage.had else "one that the catalog never had"
            raise AssertionError(f"{said_by}: expected one of {sorted(self.live)}, found {pointer}, {what}")
        if (key, ref) not in self._rows:
            scan = table.scan() if ref == MAIN_BRANCH else table.scan().use_ref(ref)
            rows, here = (sorted(map(repr, one.to_arrow().to_pylist())) for one in (scan, found.scan()))
            if rows != here:
                raise AssertionError(f"{said_by}: expected {rows} as through the catalog, found {here}")
            self._rows.add((key, ref))
        whose = "" if key in self.live else "the other one's "
        return f"{whose}{self.stage.short(table.name())}"

    def untrue(self) -> list[str]:
        """Every file that says what its catalog does not say, or never said: a line each."""
        folders = [directory.glob("**/_sfn/*") for directory in sorted(self.stage.directories)]
        folders.append(self.stage.section.root.glob(f"{self.stage.namespace}*/*/*"))
        return [line for files in folders for file in sorted(files) for line in self._wrong(file)]

    def _wrong(self, file: Path) -> Iterator[str]:
        doc = document.parse(file.read_bytes())
        live = self.live if doc.catalog_id == self.stage.section.catalog_id else self.theirs
        pointer = canonical(doc.metadata_file_path)
        if pointer not in self.stage.had:
            yield f"{file}: names {pointer}, which the catalog never had"
        if doc.state is not DocumentState.CURRENT or commit_ordinal(file.name) is not None:
            return
        table = live.get(pointer)
        if table is None:
            yield f"{file}: is current and names {pointer}, which is none of {sorted(live)}"
        elif (said := (*doc.namespace, doc.name, doc.guid)) != (now := (*table.name(), str(table.metadata.table_uuid))):
            yield f"{file}: speaks of {said}, the catalog of {now}"
