"""What must be so once nothing happens any more, and where the files lead that a table left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import Ambiguous, NameTaken
from sfn.reader.resolve import Resolved
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import MAIN_BRANCH
from tests.simulation.catalog import version_of
from tests.simulation.checker import Checker

HOPS = 8


@dataclass(frozen=True, slots=True)
class Resting:
    """One live table, as its catalog has it.

    Attributes:
        catalog_id: whose.
        name, table: what.
        refused: its service has a dead letter for it (a foreign file is in its place).
    """

    catalog_id: str
    name: TableIdentifier
    table: Table
    refused: bool

    @property
    def identifier(self) -> tuple[str, ...]:
        return (*self.name.namespace, self.name.name)


def at_rest(
    checker: Checker, when: str, tables: list[Resting], *, knowable: bool, one_catalog: bool, deletes: bool
) -> None:
    """Compare every file with the catalogs.

    Args:
        when: for the report.
        tables: all that truly live.
        knowable: no inbox was lost: then also places where nothing lives any more must be right.
        one_catalog: no second catalog registered the same tables.
        deletes: the store can delete on a condition, so that tombstones go.
    """
    rest = _Rest(checker, when, tables, knowable=knowable, one_catalog=one_catalog, deletes=deletes)
    for table in tables:
        if not table.refused and table.table.uuid not in rest.strays:
            rest.check_table(table)
    for place in sorted(checker.places):
        here = [table for table in tables if rest.place_of(table) == place]
        rest.check_hint(place, here)
        if here or knowable:
            rest.check_left_over(place, here)


def _is_stray(table: Table, places: set[str]) -> bool:
    """Whether the table, or its current metadata file, is where no store is."""
    return not {table.location, table.metadata_location.split("/metadata/", maxsplit=1)[0]} <= places


class _Rest:
    """One comparison.

    Attributes:
        strays: tables that are refused, see `_is_stray`: their older files stay as they are.
    """

    def __init__(self, checker: Checker, when: str, tables: list[Resting], **world: bool) -> None:
        self.checker, self.when, self.tables = checker, when, tables
        self.knowable = world["knowable"]
        self.one_catalog, self.deletes = world["one_catalog"], world["deletes"]
        self.strays = {one.table.uuid for one in tables if _is_stray(one.table, checker.places)}

    def blame(self, kind: str, what: str) -> None:
        self.checker.blame(f"{self.when}: {kind}", what)

    def check_table(self, one: Resting) -> None:
        place, checker = self.place_of(one), self.checker
        live = [
            doc
            for _, doc in checker.documents(place)
            if (*doc["namespace"], doc["name"]) == one.identifier
            and doc["catalog_id"] == one.catalog_id
            and doc["state"] == "current"
        ]
        current = [doc for doc in live if doc["ref"] == "main"]
        if len(current) != 1:
            self.blame("not one live file", f"{one.name} at {place}: {current}")
            return
        self.check_branches(one, [doc for doc in live if doc["ref"] != "main"], current[0])
        if checker.policies[-1].naming.has_commit_files:
            self.check_commits(one, current[0])
        if (current[0]["metadata_file_path"], current[0]["guid"]) != (one.table.metadata_location, one.table.uuid):
            self.blame("stale", f"{one.name}: {current[0]['metadata_file_path']} not {one.table.metadata_location}")
        found = checker.resolve(place, one.identifier)
        if isinstance(found, Ambiguous) and not self.one_catalog:
            return
        if not isinstance(found, Resolved) or found.metadata_location != one.table.metadata_location:
            self.blame("a reader by name is wrong", f"{one.name} at {place}: {found}")

    def check_branches(self, one: Resting, branches: list[dict[str, Any]], lead: dict[str, Any]) -> None:
        wanted = sorted(self.checker.policies[-1].branch_heads(one.table))
        found = sorted(doc["ref"] for doc in branches)
        # What other settings left is found at the next look, at most a refresh away.
        is_left_over = self.when == "rest" and len(self.checker.policies) > 1 and set(found) > set(wanted)
        others = {doc["metadata_file_path"] for doc in branches} - {lead["metadata_file_path"]}
        if (found != wanted and not is_left_over) or others:
            self.blame("branches", f"{one.name}: {found}, not {wanted}; {others}")

    def check_commits(self, one: Resting, head: dict[str, Any]) -> None:
        """A timeline ends with what the head says; each Ordinal is its own, and where nothing is lost nothing lacks."""
        place = self.place_of(one)
        docs = [doc for _, doc in self.checker.commits(place) if doc["guid"] == one.table.uuid]
        docs = [doc for doc in docs if (*doc["namespace"], doc["name"]) == one.identifier]
        newest = max(docs, key=lambda doc: doc["Ordinal"], default=head | {"Ordinal": ""})
        if newest["Ordinal"] != head["Ordinal"] or newest["metadata_file_path"] != head["metadata_file_path"]:
            self.blame("a timeline that ends early", f"{one.name}: {newest['Ordinal']}, not {head['Ordinal']}")
        self._check_order(one, docs)
        counted = sum(1 + doc.get("gap", 0) for doc in docs)
        if self.checker.has_stayed(one.table) and counted != version_of(one.table) + 1:
            self.blame("a timeline that lacks a commit", f"{one.name}: {counted} of {version_of(one.table) + 1}")

    def _check_order(self, one: Resting, docs: list[dict[str, Any]]) -> None:
        """The catalog had the commits of a timeline in their order, unless it stepped back."""
        if self.checker.ranks.rolled_back[one.table.uuid]:
            return
        last = 0
        for doc in sorted(docs, key=lambda doc: doc["Ordinal"]):
            had = self.checker.ranks.of(one.table.uuid, doc["metadata_file_path"])
            rank = min((rank for rank in had if rank >= last), default=None)
            if rank is None:
                self.blame("a timeline out of order", f"{one.name}: {doc['Ordinal']} {doc['metadata_file_path']}")
            last = rank or last

    def place_of(self, one: Resting) -> str:
        """Where its files lie by now."""
        return self.checker.policies[-1].layout(one.name, one.table.location).location

    def check_hint(self, place: str, here: list[Resting]) -> None:
        pointer = self.checker.hint(place)
        if not here:
            stays = self.checker.ranks.owner.get(pointer or "") in self.strays
            if pointer is not None and self.one_catalog and self.knowable and not stays:
                self.blame("a hint where nothing lives", f"{place} {pointer}")
        elif len(here) == 1 and not here[0].refused and here[0].table.uuid not in self.strays:
            self._check_only(place, here[0], pointer)
        elif pointer is not None and self.one_catalog and len({one.table.uuid for one in here}) > 1:
            self.blame("a hint in a shared directory", f"{place} {pointer}")

    def _check_only(self, place: str, one: Resting, pointer: str | None) -> None:
        inside = one.table.metadata_location.rpartition("/")[0] == f"{place}/metadata"
        foreign = any(
            doc["catalog_id"] != one.catalog_id or doc["guid"] in self.strays
            for _, doc in self.checker.documents(place)
        )
        unheard = pointer is None and not self.one_catalog and self.when == "rest"
        if foreign or unheard:
            return
        is_theirs = version_hint.key_of(place) in self.checker.theirs
        has_hint = self.checker.policies[-1].layout(one.name, place).has_version_hint and not is_theirs
        if inside and has_hint and pointer != one.table.metadata_location:
            self.blame("hint stale", f"{place} {pointer} not {one.table.metadata_location}")
        if not inside and pointer is not None:
            self.blame("a hint though the metadata is elsewhere", f"{place} {pointer}")
        found = self.checker.resolve(place, None)
        if not isinstance(found, Resolved) or found.metadata_location != one.table.metadata_location:
            self.blame("a reader by directory is wrong", f"{place}: {found}, not {one.table.metadata_location}")

    def check_left_over(self, place: str, here: list[Resting]) -> None:
        live = {(one.catalog_id, one.identifier, one.table.uuid) for one in here}
        documents = self.checker.documents(place)
        if self.when == "rest" and any(key in self.checker.late for key, _ in documents):
            return
        for key, doc in documents:
            whose = (doc["catalog_id"], (*doc["namespace"], doc["name"]), doc["guid"])
            if doc["state"] == "current" and whose not in live and doc["guid"] not in self.strays:
                self.blame("current for ever", f"{key} {doc['guid']}")
            if doc["state"] != "current" and self.when == "expired" and self.deletes:
                self.blame("a tombstone for ever", f"{key} {doc['state']}")
        if not here and self.when == "expired" and self.deletes and (left := self.checker.commits(place)):
            self.blame("a timeline for ever", f"{place} {left[0][0]}")
        if self.one_catalog and self.knowable:
            check_forwarding(self, place, is_empty=not here)
        found = self.checker.resolve(place, None)
        pointers = {one.table.metadata_location for one in self.tables}
        stays = isinstance(found, Resolved) and found.document.guid in self.strays
        if not here and isinstance(found, Resolved) and found.metadata_location not in pointers and not stays:
            self.blame("an old directory is stale", f"{place} {found.metadata_location}")


def check_forwarding(rest: _Rest, place: str, *, is_empty: bool) -> None:
    """Look for each table as whoever knows what it left at a place does.

    Args:
        is_empty: no table lives there.
    """
    tables = {one.table.uuid: one for one in rest.tables}
    documents = [(key, doc) for key, doc in rest.checker.documents(place) if doc["ref"] == MAIN_BRANCH]
    left = [
        doc
        for key, doc in documents
        if doc["state"] != "current" and doc["guid"] in tables and _leads_on(rest, key, doc, tables[doc["guid"]])
    ]
    for doc in left:
        _check_name(rest, place, doc, tables[doc["guid"]])
    for uuid in sorted({doc["guid"] for doc in left}):
        _expect(rest, f"{place} by uuid", rest.checker.resolve(place, None, uuid=uuid), tables[uuid])
        if is_empty and {doc["guid"] for _, doc in documents} == {uuid}:
            _expect(rest, f"{place} by directory", rest.checker.resolve(place, None), tables[uuid])


def _check_name(rest: _Rest, place: str, doc: dict[str, Any], one: Resting) -> None:
    """By its old name: the table, or once another has that name, what this one is called now.

    Where the table moved before it was renamed the file of its old name lies elsewhere, and says that for whoever comes
    to it: whoever starts here is led to the table.
    """
    identifier = (*doc["namespace"], doc["name"])
    listed = rest.checker.listed(identifier)
    heir = next((other for other in rest.tables if other.identifier == listed and other is not one), None)
    if heir is not None and rest.place_of(heir) == place:
        return
    found, what = rest.checker.resolve(place, identifier), f"{place} by name {identifier}"
    if isinstance(found, NameTaken):
        had = len(rest.checker.ranks.names[one.catalog_id, listed])
        if had < 2 or f" {'.'.join(one.identifier)}," not in found.found:
            rest.blame("a name that is said to be taken", f"{what}: {found}")
    elif heir is not None and doc["state"] == "renamed" and not _is_refused(rest, heir):
        rest.blame("a name that is not said to be taken", f"{what}: {found}")
    else:
        _expect(rest, what, found, one)


def _expect(rest: _Rest, what: str, found: object, one: Resting) -> None:
    if not isinstance(found, Resolved) or found.metadata_location != one.table.metadata_location:
        rest.blame("a table that is not found where it was", f"{what}: {found}, not {one.table.metadata_location}")


def _leads_on(rest: _Rest, key: str, doc: dict[str, Any], one: Resting) -> bool:
    """Whether none of the exceptions is met."""
    checker = rest.checker
    was_away = one.table.uuid in checker.ranks.ended or not checker.is_live(
        one.catalog_id, one.identifier, one.table.uuid
    )
    is_exempt = was_away or (key in checker.unheard_of and checker.event_only) or _is_refused(rest, one)
    return not (is_exempt or _is_cut(rest, doc) or _is_superseded(rest, key, doc))


def _is_refused(rest: _Rest, one: Resting) -> bool:
    return one.refused or one.table.uuid in rest.strays


def _is_cut(rest: _Rest, doc: dict[str, Any]) -> bool:
    """Whether on the way from a document lies a file that is another table's."""
    at = doc
    for _ in range(HOPS):
        target = (at.get("moved_to") or {}).get("sfn_file_path")
        if target not in rest.checker.files.bodies:
            return False
        at = rest.checker.document(target)
        if at["guid"] != doc["guid"]:
            return True
    return False


def _is_superseded(rest: _Rest, key: str, doc: dict[str, Any]) -> bool:
    named = rest.checker.ranks.names[doc["catalog_id"], rest.checker.listed((*doc["namespace"], doc["name"]))]
    by_uuid = key.rpartition("/")[2].startswith(str(doc["guid"]))
    place = next(place for place in sorted(rest.checker.places) if key.startswith(f"{place}/"))
    beside = (uuid for uuid in named if uuid != doc["guid"] and place in rest.checker.ranks.places[uuid])
    return doc["state"] == "dropped" and by_uuid and any(beside)
