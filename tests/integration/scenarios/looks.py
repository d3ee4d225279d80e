"""What a reader sees, in words that are the same in each run. It must be true, whatever was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import StaticTable

import sfn
from sfn.errors import NameTaken, Unreadable
from sfn.pointer import document, hintfile
from sfn.pointer.document import Document
from sfn.pointer.location import canonical
from sfn.pointer.naming import NAMINGS, Whose
from sfn.pointer.site import Site
from tests.integration.scenarios.service import Identifier
from tests.integration.scenarios.stage import Known, Rows, Stage

NONE = "none"


@dataclass(frozen=True, slots=True)
class Look:
    """One look of one reader.

    Attributes:
        how: what it goes by.
        see: what it sees.
    """

    how: str
    see: Callable[[Stage], str]


def everywhere(table: Known, of: str = "") -> list[Look]:
    """Whoever remembers a table, and looks at its place in each way that there is.

    Args:
        of: which table or place it is, where a scenario has several.
    """
    return [
        by_directory(table, of),
        by_name(table, of),
        Look(_how("uuid", of), lambda stage: _resolved(stage, table.directory, uuid=table.uuid)),
        Look(_how("hint", of), lambda stage: _hinted(stage, table.directory)),
    ]


def by_directory(table: Known, of: str = "") -> Look:
    return Look(_how("directory", of), lambda stage: _resolved(stage, table.directory))


def by_name(table: Known, of: str = "") -> Look:
    return Look(_how("name", of), lambda stage: _resolved(stage, table.directory, table.identifier))


def by_ref(table: Known, ref: str) -> Look:
    """Whoever wants a branch or tag."""
    return Look(f"ref {ref}", lambda stage: _resolved(stage, table.directory, table.identifier, ref=ref))


def by_history(table: Known) -> Look:
    """Whoever wants every commit."""
    return Look("history", lambda stage: _told(stage, table))


def file_of(table: Known, ref: str) -> Look:
    """The state that a branch's own file has."""
    return Look(f"file of {ref}", lambda stage: _state(stage, table, ref))


def by_letters(table: Known) -> Look:
    """Whoever operates the other environment's service: why it has no file of the table."""
    return Look("the other one's dead letter", lambda stage: _letter(stage, table))


def _letter(stage: Stage, table: Known) -> str:
    row = stage.world.rival.row(stage.naming, table.identifier)
    return str(row["reason"]) if row is not None and row["reason"] is not None else NONE


def _how(what: str, of: str) -> str:
    return f"{of}: {what}" if of else what


def _resolved(
    stage: Stage, directory: Path, table: Identifier | None = None, *, uuid: str | None = None, ref: str = "main"
) -> str:
    try:
        found = sfn.resolve(directory, table, uuid, ref)
    except NameTaken as taken:
        return f"NameTaken ({' and '.join(_named_in(str(taken), stage))})"
    except Unreadable as refusal:
        return type(refusal).__name__
    meant = _meant(stage, found.metadata_location, found.sfn_file)
    if found.document.guid != meant.uuid or _identifier(found.document) != meant.identifier:
        raise AssertionError(f"{found.sfn_file}: expected {meant}, found {found.document}")
    there, here = stage.load(meant.identifier).scan(), found.table().scan()
    if ref != "main":
        there = there.use_ref(ref)
    _compare(_rows(there.to_arrow().to_pylist()), _rows(here.to_arrow().to_pylist()), found.sfn_file)
    by = "" if ref == "main" else " by its own file" if found.document.ref == ref else " by the metadata"
    return f"{'→ ' if found.via else ''}{stage.short(meant.identifier)}{by}"


def _hinted(stage: Stage, directory: Path) -> str:
    if not Path(hintfile.key(str(directory))).exists():
        return NONE
    try:
        table = StaticTable.from_metadata(str(directory))
    except OSError:
        return "refuses"
    meant = _meant(stage, table.metadata_location, hintfile.key(str(directory)))
    there = stage.load(meant.identifier).scan().to_arrow().to_pylist()
    _compare(_rows(there), _rows(table.scan().to_arrow().to_pylist()), hintfile.key(str(directory)))
    return stage.short(meant.identifier)


def _meant(stage: Stage, pointer: str, said_by: str) -> Known:
    """The live table of which a pointer is the current one."""
    live = stage.live()
    if canonical(pointer) not in live:
        what = "an old one" if canonical(pointer) in stage.had else "one that the catalog never had"
        raise AssertionError(f"{said_by}: expected one of {sorted(live)}, found {pointer}, {what}")
    return live[canonical(pointer)]


def _rows(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


def _compare(expected: Sequence[str], found: Sequence[str], said_by: str) -> None:
    if expected != found:
        raise AssertionError(f"{said_by}: expected the rows {expected} as through the catalog, found {found}")


def _told(stage: Stage, table: Known) -> str:
    had = stage.history(table.identifier)
    told = sfn.history(table.directory, table.identifier)
    found = [entry.metadata_location for entry in told]
    places = [had.index(location) for location in found]
    if places != sorted(set(places)):
        raise AssertionError(f"{table.directory}: expected commits of {had} in that order, found {found}")
    sources = " and ".join(sorted({entry.source.value for entry in told}))
    return f"{len(found)} of {len(had)} commits by {sources}"


def _state(stage: Stage, table: Known, ref: str) -> str:
    site = Site(f"file://{table.directory}", NAMINGS[stage.naming])
    whose = Whose(table.identifier[:-1], table.identifier[-1], table.uuid)
    for key in site.keys(whose, ref):
        file = Path(key.removeprefix("file://"))
        if file.exists():
            return document.parse(file.read_bytes()).state.value
    return NONE


def _named_in(text: str, stage: Stage) -> list[str]:
    """Which of the stage's tables a message names."""
    parts = {stage.short(table): re.escape(".".join(table)) for table in stage.tables}
    return sorted(short for short, dotted in parts.items() if re.search(rf"(?<![\w.]){dotted}(?![\w.])", text))


def _identifier(doc: Document) -> Identifier:
    return (*doc.namespace, doc.name)
