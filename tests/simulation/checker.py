"""Looks at the store like its readers do, after every change and at rest. It knows the reader, and the settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import MalformedDocument, Stale, Unreadable
from sfn.publish.existing_files import pointer_files
from sfn.publish.policy import Policy
from sfn.reader.files import FileSystemOptions, run_synchronously
from sfn.reader.resolve import Question, Resolved, resolve_question
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import MAIN_BRANCH, FileLayout
from tests.simulation.refusals import REPLICA_LAG, Cause, check_refusal, is_stated
from tests.simulation.snapshot import Snapshot
from tests.simulation.truth import Files, Ranks
from tests.simulation.written import LEASE, check_deletion, check_written

NOTHING = Cause()


@dataclass(slots=True)
class Checker:
    """Every promise that a reader could see broken.

    Attributes:
        bad: (kind, what) of each broken promise.
        ignore_moves_back: a script looks at that itself.
        stated: how often a case was met that can't be promised.
        strict: readers never go back, not even until the next look; else that too is a stated case.
        told: nobody can ask the catalogs. By its new name a reader may see what a table was before it had that name, as
            later commits under the old one are still to be told of, and what had the name before while the end of that
            is. By its directory it may be led back while a file is there of a name that the table lost: that is still
            to be told of, or to be seen through.
        policies: that the service has in turn, the last one at rest.
        lived: keys of documents, each with a table uuid that was live there.
        found: by (place, identifier): the uuid of the table that a reader by name found when it last looked.
        unheard_of: files that say `dropped` since nobody was known to have their table.
        is_known: whether the service knew at a time that a table is live, under this name or another.
        is_end_unheard: whether the service could not know at a time that a table lost a name.
        listed: an identifier as the catalog lists it.
        there_since: since when a name's table was always at a place, by the catalog's own word; None if it is not.
        last: by reader: the highest rank that it saw.
        theirs: version hints of whoever else writes there, by key, which are to stay as they are.
        late: keys written long after the catalog was asked, by a process that was suspended meanwhile. If it is killed
            before it can say so, the file is right only after the next refresh: so much is stated.
    """

    files: Files
    ranks: Ranks
    now: Callable[[], datetime]
    catalogs: list[str]
    bad: list[tuple[str, str]] = field(default_factory=list)
    stated: int = 0
    strict: bool = True
    told: bool = False
    ignore_moves_back: bool = False
    policies: list[Policy] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    last: dict[tuple[str, ...], int] = field(default_factory=dict)
    is_live: Callable[[str, tuple[str, ...], str | None], bool] = lambda _catalog, _identifier, _uuid: False
    theirs: dict[str, bytes] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    lived: set[tuple[str, str | None]] = field(default_factory=set)
    found: dict[tuple[str, tuple[str, ...]], str | None] = field(default_factory=dict)
    unheard_of: set[str] = field(default_factory=set)
    is_known: Callable[[str | None, tuple[str, ...], datetime], bool] = lambda _uuid, _identifier, _at: True
    is_end_unheard: Callable[[tuple[str, ...], str, datetime], bool] = lambda _identifier, _uuid, _at: False
    there_since: Callable[[tuple[str, ...], str], datetime | None] = lambda _identifier, _place: None
    listed: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda identifier: identifier
    seen_at: dict[str, datetime] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def blame(self, kind: str, what: str) -> None:
        """A promise was broken."""
        self.bad.append((kind, f"{(self.now().timestamp() % 86400):.1f} {what}"))

    def changed(self, key: str, old: bytes | None, new: bytes | None, writer: str) -> None:
        """A file was written or deleted by a service: let every reader look.

        Args:
            writer: catalog id of that service.
        """
        before = json.loads(old) if old is not None and key.endswith(".ver") else {}
        doc = json.loads(new) if new is not None and key.endswith(".ver") else {}
        if before and before["catalog_id"] != writer:
            self.blame("foreign file touched", f"{key} by {writer}")
        if key in self.theirs and new != self.theirs[key]:
            self.blame("foreign hint touched", f"{key} = {new!r} by {writer}")
        is_pointer = bool(pointer_files([key]))
        if is_pointer and before and not doc:
            check_deletion(self, key, before)
        if doc:
            check_written(self, key, doc, before)
        asked = None
        if doc and is_pointer:
            if doc["state"] == "current":
                self.lived.add((key, doc["guid"]))
            asked = datetime.fromisoformat(doc["asked_at"])
            if doc["asked_at"] != before.get("asked_at"):
                self.late = self.late | {key} if self.now() - asked > LEASE else self.late - {key}
            self.seen_at[doc["metadata_file_path"]] = datetime.fromisoformat(doc["written_at"])
        here = key.rpartition("/")[0] + "/"
        for place in sorted(self.places):
            folders = [site.folder for site in self._sites_at(place)]
            if here in folders or key == version_hint.key_of(place) or self._points_to(place, here):
                self.look(place, Cause(asked, (*doc["namespace"], doc["name"]) if doc else None))

    def look(self, place: str, cause: Cause = NOTHING) -> None:
        """Read a directory in every way, once something was written there."""
        self._look_naively(place)
        for _catalog, identifier in sorted(self.ranks.names):
            self._look(place, identifier, cause)
        self._look(place, None)
        self._look_at_branches(place)
        for uuid in sorted({doc["guid"] for _, doc in self.documents(place)}):
            self._look_by_uuid(place, uuid)

    def resolve(
        self, place: str, identifier: tuple[str, ...] | None, *, uuid: str | None = None, ref: str = "main"
    ) -> Resolved | Unreadable:
        """What a reader gets to know."""
        try:
            question = Question(place, identifier, uuid, ref)
            return run_synchronously(
                resolve_question(Snapshot(self.files, self.ranks), question, FileSystemOptions(place))
            )
        except Unreadable as refusal:
            return refusal

    def document(self, key: str) -> dict[str, Any]:
        """A document as JSON."""
        body: dict[str, Any] = json.loads(self.files.bodies[key])
        return body

    def documents(self, place: str) -> list[tuple[str, dict[str, Any]]]:
        """All documents of a directory."""
        keys = [key for site in self._sites_at(place) for key in self.files.below(site.folder)]
        return [(key, self.document(key)) for key in pointer_files(keys)]

    def commits(self, place: str) -> list[tuple[str, dict[str, Any]]]:
        """The documents of single commits."""
        keys = [key for site in self._sites_at(place) for key in self.files.below(site.folder)]
        return [
            (key, self.document(key)) for key in sorted(set(keys) - set(pointer_files(keys))) if key.endswith(".ver")
        ]

    def has_stayed(self, table: Table) -> bool:
        """Whether a table with a whole timeline was always at one place, under one name, and never stepped back."""
        uuid, policies = table.uuid, self.policies
        names = sum(uuid in uuids for uuids in self.ranks.names.values())
        is_whole = len(policies) == 1 and policies[0].keep_commits >= self.ranks.last
        return is_whole and names == len(self.ranks.places[uuid]) == 1 and not self.ranks.rolled_back[uuid]

    def sites(self, name: TableIdentifier, table: Table) -> list[FileLayout]:
        """Where a table's files may lie."""
        return list(dict.fromkeys(policy.layout(name, table.location) for policy in self.policies))

    def _sites_at(self, place: str) -> list[FileLayout]:
        """One for each folder at a place."""
        return [FileLayout(place, placement=one) for one in {policy.placement: None for policy in self.policies}]

    def hint(self, place: str) -> str | None:
        """What the version hint names, as a metadata location; None for one that is somebody else's."""
        key = version_hint.key_of(place)
        said = self.files.bodies.get(key, b"").decode()
        if key in self.theirs or not said or said.startswith("sfn-withdrawn-"):
            return None
        return f"{place}/metadata/{'v' if said.isdecimal() else ''}{said}.metadata.json"

    def _points_to(self, place: str, here: str) -> bool:
        return any(
            (doc.get("moved_to") or {}).get("sfn_file_path", "").startswith(here) for _, doc in self.documents(place)
        )

    def _look_naively(self, place: str) -> None:
        pointer = self.hint(place)
        if pointer is None:
            return
        said = version_hint.text_for(pointer) or ""
        docs = [doc for _, doc in self.documents(place) if doc["state"] == "current"]
        if len(self.catalogs) == 1 and not any(
            said in {version_hint.text_for(doc["metadata_file_path"]), *doc.get("hint_was", ())} for doc in docs
        ):
            if self._is_left_over_hint(place, said):
                self.stated += 1
            else:
                self.blame_for_now("a hint without a document", f"{place} names {pointer}")
        uuid = self.ranks.owner.get(pointer)
        owners = [catalog for catalog, owner in self.ranks.order if owner == uuid and uuid is not None]
        if not owners:
            self.blame("lie: hint", f"{place} names {pointer}")
        elif len(owners) == 1:
            self._saw(("hint", place, str(uuid)), owners[0], uuid, pointer, self.seen_at.get(pointer))

    def _is_left_over_hint(self, place: str, said: str) -> bool:
        """Whether the files of two rows both said it, ended at once and left it to each other, until the next look.

        One may have been written late, by who slept meanwhile.
        """
        ended = {
            (*doc["namespace"], doc["name"]): key in self.late or self.now() - written < REPLICA_LAG
            for key, doc in self.documents(place)
            if doc["state"] != "current" and said in doc["metadata_file_path"]
            for written in [datetime.fromisoformat(doc["written_at"])]
        }
        return len(ended) > 1 and any(ended.values())

    def _look(self, place: str, identifier: tuple[str, ...] | None, cause: Cause = NOTHING) -> None:
        found = self.resolve(place, identifier)
        if identifier is not None:
            check_refusal(self, (place, identifier), found, cause)
        if isinstance(found, Resolved):
            doc = found.document
            reader = (
                ("name", place, ".".join(identifier), "" if (*doc.namespace, doc.name) == identifier else str(doc.guid))
                if identifier
                else ("directory", place, str(doc.guid))
            )
            self._saw((*reader, doc.catalog_id), doc.catalog_id, doc.guid, found.metadata_location, doc.written_at)
            if identifier and doc.guid not in self.ranks.names.get((doc.catalog_id, self.listed(identifier)), ()):
                self.blame("wrong table by name", f"{place} {identifier}: {found}")
            if not identifier and place not in self.ranks.places[doc.guid]:
                self.blame("wrong table by directory", f"{place}: {found}")
        elif isinstance(found, MalformedDocument | Stale):
            self.blame("unreadable", f"{place} {identifier}: {found}")

    def _look_at_branches(self, place: str) -> None:
        """Read each branch that has a file, by the table's name."""
        branches = {
            ((*doc["namespace"], doc["name"]), doc["ref"])
            for _, doc in self.documents(place)
            if doc["state"] == "current" and doc["ref"] != MAIN_BRANCH
        }
        for identifier, ref in sorted(branches):
            found = self.resolve(place, identifier, ref=ref)
            if isinstance(found, Resolved):
                doc, pointer = found.document, found.metadata_location
                reader = ("branch", place, ".".join(identifier), ref, str(doc.guid), doc.catalog_id)
                self._saw(reader, doc.catalog_id, doc.guid, pointer, doc.written_at)
                if self.ranks.heads.get(pointer, {}).get(ref) != found.snapshot_id:
                    self.blame("lie: branch by name", f"{place} {identifier} {ref}: {found.snapshot_id}")
            elif isinstance(found, MalformedDocument | Stale):
                self.blame("unreadable", f"{place} {identifier} {ref}: {found}")

    def _look_by_uuid(self, place: str, uuid: str) -> None:
        found = self.resolve(place, None, uuid=uuid)
        if isinstance(found, Resolved):
            doc = found.document
            if doc.guid != uuid:
                self.blame("wrong table by uuid", f"{place} {uuid}: {found}")
            reader = ("uuid", place, uuid, doc.catalog_id)
            self._saw(reader, doc.catalog_id, uuid, found.metadata_location, doc.written_at)
        elif isinstance(found, MalformedDocument | Stale):
            self.blame("unreadable", f"{place} by uuid {uuid}: {found}")

    def _saw(self, reader: tuple[str, ...], catalog: str, uuid: str | None, pointer: str, at: datetime | None) -> None:
        """A reader saw a pointer: the catalog must have had it, and the reader must not have seen a later one."""
        had = self.ranks.order.get((catalog, uuid), {}).get(pointer)
        if reader[0] == "name" and not reader[3] and not self.told:
            had = self.ranks.under.get((catalog, self.listed(tuple(reader[2].split(".")))), {}).get(pointer)
        if had is None:
            self.blame(f"lie: {reader[0]}", f"{reader} {pointer}")
            return
        before = self.last.get(reader, -1)
        # A pointer that was stepped back to has two ranks: it counts as the first that is no step back from the last.
        rank = min((rank for rank in had if rank >= before), default=max(had))
        if rank < before and not self.ignore_moves_back:
            rolled_back = self.ranks.rolled_back[uuid]
            has_two_names = self.told and reader[0] != "name" and self._is_left_over(reader[1], uuid)
            is_over = reader[0] == "name" and at and self.is_end_unheard(tuple(reader[2].split(".")), str(uuid), at)
            if has_two_names or is_over or (at and any(is_stated(reader, at, back) for back in rolled_back)):
                self.stated += 1
            else:
                self.blame_for_now(f"moved back: {reader[0]}", f"{reader} to rank {rank} ({pointer}) after {before}")
        self.last[reader] = max(before, rank)

    def _is_left_over(self, place: str, uuid: str | None) -> bool:
        """Whether a live file is there of a name that the table does not have any more."""
        return any(
            doc["state"] == "current"
            and doc["guid"] == uuid
            and not self.is_live(doc["catalog_id"], (*doc["namespace"], doc["name"]), uuid)
            for _, doc in self.documents(place)
        )

    def blame_for_now(self, kind: str, what: str) -> None:
        """A promise was broken that is right again after the next look."""
        if self.strict:
            self.blame(kind, what)
        else:
            self.stated += 1
