"""The checker of a history: it looks at the store like readers do, after every change and at rest.

It knows the reader, the settings, and what the services can know of where a table is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sfn.domain.identifiers import JobKey, Table, TableIdentifier
from sfn.errors import Dropped, MalformedDocument, NotFound, Stale, Unreadable
from sfn.publish.existing_files import pointer_files
from sfn.publish.policy import Policy
from sfn.reader.files import FileSystemOptions, run_synchronously
from sfn.reader.resolve import Question, Resolved, resolve_question
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import MAIN_BRANCH, FileLayout, commit_ordinal
from tests.simulation.catalog import Files, Ranks
from tests.simulation.loop import EPOCH

if TYPE_CHECKING:
    from tests.simulation.world import World

LEASE = timedelta(seconds=20)

REPLICA_LAG = timedelta(seconds=6)


@dataclass(frozen=True, slots=True)
class Cause:
    """What was written just before readers look.

    Attributes:
        asked: when the catalog was asked whose answer was written, if one was.
        by: the identifier whose row wrote it.
        is_next_table: the file was given to the table that has this identifier now.
    """

    asked: datetime | None = None
    by: tuple[str, ...] | None = None
    is_next_table: bool = False


NOTHING = Cause()


@dataclass(slots=True)
class Checker:
    """Every promise that a reader could see broken.

    Attributes:
        bad: (kind, what) of each broken promise.
        ignore_moves_back: a script looks at that itself.
        stated: how often a case was met that can't be promised.
        strict: readers never go back, not even until the next look; else that too is a stated case.
        event_only: the catalogs are event-only. By its new name a reader may see what a table was before it had that
            name, as events of later commits under the old one may still come, and what had the name before while the
            event of its end may still come. By its directory it may be led back while a file of a name is there that
            the table lost: its event may still come, or its deletion.
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
    event_only: bool = False
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
        cause = Cause(asked, *_author(before, doc)) if doc else NOTHING
        here = key.rpartition("/")[0] + "/"
        for place in sorted(self.places):
            folders = [site.folder for site in self._sites_at(place)]
            if here in folders or key == version_hint.key_of(place) or self._points_to(place, here):
                self.look(place, cause)

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
        if reader[0] == "name" and not reader[3] and not self.event_only:
            had = self.ranks.under.get((catalog, self.listed(tuple(reader[2].split(".")))), {}).get(pointer)
        if had is None:
            self.blame(f"lie: {reader[0]}", f"{reader} {pointer}")
            return
        before = self.last.get(reader, -1)
        # A pointer that was stepped back to has two ranks: it counts as the first that is no step back from the last.
        rank = min((rank for rank in had if rank >= before), default=max(had))
        if rank < before and not self.ignore_moves_back:
            rolled_back = self.ranks.rolled_back[uuid]
            has_two_names = self.event_only and reader[0] != "name" and self._is_left_over(reader[1], uuid)
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


def _author(before: dict[str, Any], doc: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Whose row wrote a document, and whether it gave the file of one table to another."""
    is_next = doc["state"] == before.get("state") == "current" and doc["guid"] != before["guid"]
    return (*doc["namespace"], doc["name"]), is_next


def check_written(checker: Checker, key: str, doc: dict[str, Any], before: dict[str, Any]) -> None:
    """Compare a document with what the catalogs had, and with what lies beside it.

    Args:
        before: what was there; empty if nothing was.
    """
    _check_head(checker, key, doc)
    if commit_ordinal(key) is not None:
        _check_commit(checker, key, doc)
        return
    _check_forwarding(checker, key, doc, before)
    if doc["state"] != before.get("state"):
        _note_unheard_of(checker, key, doc)
    if doc["state"] == "current" and doc["ref"] != MAIN_BRANCH:
        _check_lead(checker, key, doc)


def check_deletion(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """Only a tombstone may be deleted, or the file of a table that is gone."""
    whose = (doc["catalog_id"], (*doc["namespace"], doc["name"]))
    if doc["state"] == "current" and checker.is_live(*whose, doc["guid"]):
        checker.blame("a live file was deleted", f"{key} {doc['guid']}")


def _note_unheard_of(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    asked = datetime.fromisoformat(doc["asked_at"])
    identifier = (*doc["namespace"], doc["name"])
    is_unheard_of = doc["state"] == "dropped" and not checker.is_known(doc["guid"], identifier, asked)
    checker.unheard_of = checker.unheard_of | {key} if is_unheard_of else checker.unheard_of - {key}


def _check_head(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """A document speaks of its branch as its metadata file does."""
    heads = checker.ranks.heads.get(doc["metadata_file_path"], {doc["ref"]: doc["snapshot_id"]})
    is_rebuilt = commit_ordinal(key) is not None and doc["snapshot_id"] is None
    if doc["state"] == "current" and not is_rebuilt and heads.get(doc["ref"], -1) != doc["snapshot_id"]:
        checker.blame("lie: branch", f"{key} {doc['ref']} at {doc['snapshot_id']}, not {heads}")


def _check_commit(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """A commit's document names a metadata file that a catalog had for that table."""
    pointer = doc["metadata_file_path"]
    if not checker.ranks.of(doc["guid"], pointer):
        checker.blame("lie: commit", f"{key} {pointer}")


def _check_lead(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """A branch's file never leads its table's: who read the branch would go back by asking for the table.

    What was suspended may create the file of a branch beside what its table became meanwhile.
    """
    had = checker.ranks.order.get((doc["catalog_id"], doc["guid"]), {})
    folder, whose = key.rpartition("/")[0] + "/", [doc[part] for part in ("namespace", "name", "guid")]
    leads = [
        lead
        for other in checker.files.below(folder)
        if other.endswith(".ver") and commit_ordinal(other) is None
        if (lead := checker.document(other))["ref"] == MAIN_BRANCH and lead["state"] == "current"
        if [lead[part] for part in ("namespace", "name", "guid")] == whose
    ]
    newest = max((max(had.get(lead["metadata_file_path"], [0])) for lead in leads), default=0)
    is_late = checker.now() - datetime.fromisoformat(doc["asked_at"]) > LEASE
    if newest < min(had.get(doc["metadata_file_path"], [0])) and not is_late:
        checker.blame_for_now("a branch ahead of its table", f"{key} {doc['metadata_file_path']}")


def _check_forwarding(checker: Checker, key: str, doc: dict[str, Any], before: dict[str, Any]) -> None:
    """A document that forwards must lead to where the same table was live before.

    That it is so still can't be had of a process that was suspended; a reader finds it dropped then.
    """
    target = (doc.get("moved_to") or {}).get("sfn_file_path")
    if doc["state"] not in {"renamed", "moved"} or target is None or doc["moved_to"] == before.get("moved_to"):
        return
    if (target, doc["guid"]) not in checker.lived:
        checker.blame("forwards to nothing", f"{key} to {target}")


def check_refusal(
    checker: Checker, reader: tuple[str, tuple[str, ...]], found: Resolved | Unreadable, cause: Cause
) -> None:
    """See that nobody is refused who need not be.

    An answer may be as old as the replicas' lag, and one that is written late older. What was told of alone, and what a
    second catalog has, may be elsewhere than this knows. Where another name's row says what became of a table, the one
    that has its name now is found once its own row was looked at. Where nothing is swept, a table that was renamed and
    of which nobody said so counts as gone by its old name if its new one is not published in time: that is stated. So
    is a table that came back to a name whose tombstone leads to the name it left, if the next table of that name is
    published first: the file there is right at once, and this one as soon as its own row has looked.

    Args:
        reader: (place, identifier) of one that reads by name.
        found: what it found.
    """
    place, identifier = reader
    if isinstance(found, Resolved):
        checker.found[reader] = found.document.guid
    elif isinstance(found, Dropped | NotFound) and reader in checker.found:
        uuid = checker.found.pop(reader)
        if cause.by != identifier and not checker.is_live(checker.catalogs[0], identifier, uuid):
            return
        since = checker.there_since(identifier, place)
        is_known = cause.asked is not None and since is not None and cause.asked - since >= REPLICA_LAG
        is_led = cause.is_next_table and since is not None and _was_led(checker, reader, since)
        if is_known and cause.by != identifier and (is_led or not checker.policies[-1].is_swept):
            checker.stated += 1
        elif is_known and not checker.event_only and len(checker.catalogs) == 1:
            checker.blame_for_now("refused: name", f"{reader} there since {since}: {found}")


def _was_led(checker: Checker, reader: tuple[str, tuple[str, ...]], since: datetime) -> bool:
    """Whether the row of a name last wrote there, before a time, that its table has another name."""
    place, identifier = reader
    own = [doc for _, doc in checker.documents(place) if (*doc["namespace"], doc["name"]) == identifier]
    return bool(own) and all(
        doc["state"] == "renamed" and datetime.fromisoformat(doc["asked_at"]) < since for doc in own
    )


def is_stated(reader: tuple[str, ...], at: datetime, back: datetime) -> bool:
    """The case that can't be promised: the catalog stepped back, and an answer that arrived within the replicas' lag
    still named the abandoned pointer; or a writer of the hint slept across the step.
    """
    return (back <= at and at - back <= REPLICA_LAG) or (reader[0] == "hint" and at <= back)


@dataclass(slots=True)
class Snapshot:
    """The store as a reader's files; metadata files, also deleted ones, hold no more than a table's uuid and refs."""

    files: Files
    ranks: Ranks

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        if key in self.ranks.owner:
            return self._metadata(key)[start : start + most]
        body = self.files.bodies.get(key)
        return None if body is None else body[start : start + most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        return [key for key in self.files.below(prefix) if key.endswith(".ver")][:limit]

    def _metadata(self, key: str) -> bytes:
        heads = {ref: head for ref, head in self.ranks.heads.get(key, {}).items() if head is not None}
        refs = {ref: {"snapshot-id": head, "type": "branch"} for ref, head in heads.items()}
        return json.dumps({"table-uuid": self.ranks.owner[key], "refs": refs}).encode()


class Knowledge:
    """Of the first catalog."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[tuple[TableIdentifier, str | None], datetime] = {}

    def settled(self, subject: JobKey) -> None:
        """A row settled: what it says of its table is known from now on, if every inbox has it."""
        if not isinstance(subject, TableIdentifier) or subject.catalog != self._world.truths[0].name:
            return
        table = self._world.truths[0].true(subject)
        if isinstance(table, Table) and (subject, table.uuid) not in self._since:
            services = self._world.services
            if all(subject in one.kept.carrying(subject.catalog, table.uuid or "") for one in services):
                self._since[subject, table.uuid] = self._world.loop.now()

    def is_known(self, uuid: str | None, identifier: tuple[str, ...], at: datetime) -> bool:
        """Whether a table was known to be live at a time: under this name by the catalog, or by the row of another."""
        name = self._named(identifier)
        mine = self._world.truths[0].true(name)
        return (isinstance(mine, Table) and mine.uuid == uuid) or any(
            other != name and owner == uuid and since <= at for (other, owner), since in self._since.items()
        )

    def there_since(self, identifier: tuple[str, ...], place: str) -> datetime | None:
        """Since when a name's table is at a place; one that was ever switched off may be gone from there."""
        world, name = self._world, self._named(identifier)

        def is_there(table: Table) -> bool:
            sites = world.checker.sites(name, table)
            return table.uuid not in world.switched and place in [site.location for site in sites]

        since = world.truths[0].there_since(name, is_there)
        return None if since is None else EPOCH + timedelta(seconds=since)

    def _named(self, identifier: tuple[str, ...]) -> TableIdentifier:
        return TableIdentifier(self._world.truths[0].name, identifier[:-1], identifier[-1])
