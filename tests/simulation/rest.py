"""What must be so once nothing happens any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import Ambiguous
from sfn.reader.resolve import Resolved
from sfn.sfnfile import version_hint
from tests.simulation.checker import Checker
from tests.simulation.forwarding import check_forwarding
from tests.simulation.truth import version_of


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
