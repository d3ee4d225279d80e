"""A file for each commit, beside a head that names the newest (specification, section 3, "Ordinal naming").

The head is swapped first: that allots the Ordinals and fences whoever is behind. What the swap made room for is written
on the head, so that whoever comes next can create what a writer that died did not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

from sfn.errors import LocationRefused
from sfn.pointer import naming
from sfn.pointer.document import LAST_ORDINAL, Commit, Document, render
from sfn.pointer.lineage import Relation, relate, version
from sfn.pointer.location import canonical, checked
from sfn.pointer.naming import Whose
from sfn.publish.changes import Draft, Stage
from sfn.publish.documents import relative, says
from sfn.publish.facts import FOLDER_LISTED
from sfn.publish.inventory import ours, readable
from sfn.publish.own import Own
from sfn.publish.policy import MOST_COMMITS
from sfn.publish.scene import Scene
from sfn.words import Held, Table

LONGEST_BETWEEN = 48_000
"""Bytes that a head may spend on naming commits: a document has its limit."""

_ENTRY = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Timeline:
    """The files of a table's commits, as listed.

    Attributes:
        own: the head that they lie beside.
        keys: by Ordinal; None where the folder holds more files than are listed.
    """

    scene: Scene
    own: Own
    keys: Mapping[int, str] | None

    def key(self, ordinal: int) -> str:
        """Where the file of a commit belongs: spelled as its head is."""
        whose, site = _whose(self.own, self.scene), self.own.site
        names = site.naming.commit_names(whose, ordinal)
        return site.folder + names[_spelling(self.own, self.scene)]

    def has(self, ordinal: int) -> bool:
        """Whether a file is there; it is taken for there where that can't be told."""
        return self.keys is None or ordinal in self.keys

    @property
    def last(self) -> int:
        """The greatest Ordinal, 0 without any."""
        return max((ordinal for ordinal in self.keys or () if ordinal <= LAST_ORDINAL), default=0)


def keep_commits(scene: Scene, table: Table, own: Own, doc: Document, draft: Draft, *, anew: bool) -> Document:
    """Bring the commits' files in line with the head.

    Args:
        own: the table's files so far.
        doc: the head, as it is or would be written.
        anew: it is written now.

    Returns:
        The head with the Ordinal and the commits that its swap allots.
    """
    if not anew and scene.facts.from_memory:
        return doc
    timeline = _timeline(scene, own)
    _mend(timeline, draft)
    created: list[int] = []
    if anew and not says(scene, own.doc, table):
        doc = _allotted(timeline, table, doc)
        for commit in (*doc.between, Commit(doc.ordinal, doc.metadata_file_path, doc.gap)):
            draft.put(Stage.COMMIT, timeline.key(commit.ordinal), render(_commit(own, doc, commit)), None)
            created.append(commit.ordinal)
    elif own.doc is not None:
        doc = replace(doc, gap=own.doc.gap, between=own.doc.between)
    _prune(timeline, created, draft)
    return doc


def finish_commits(scene: Scene, own: Own, draft: Draft) -> None:
    """Create what a head still promises, before anything else is written over it."""
    if own.site.naming.has_commits and not scene.facts.from_memory:
        _mend(_timeline(scene, own), draft)


def remove_commits(scene: Scene, own: Own, draft: Draft, *, but: Collection[int] = ()) -> None:
    """Delete the files of all commits but some."""
    for key, held in _commit_files(scene, own, but=but):
        draft.remove(Stage.PRUNE, key, held)


def touch_commits(scene: Scene, own: Own, draft: Draft) -> None:
    """Write the files of all commits once more, unchanged; beside a tombstone too they stay until it expires."""
    changed = {change.key for change in draft.changes}
    for key, held in _commit_files(scene, own):
        if key not in changed:
            draft.put(Stage.FORWARD, key, held.body, held)


def _commit_files(scene: Scene, own: Own, but: Collection[int] = ()) -> Iterator[tuple[str, Held]]:
    """The commits' files that are known to be there and are ours, the oldest first, but those of some Ordinals."""
    known = (_timeline(scene, own).keys or {}) if own.site.naming.has_commits else {}
    keys = [key for ordinal, key in sorted(known.items()) if ordinal not in but]
    scene.facts.require_files(keys)
    for key in keys:
        held = scene.facts.file(key)
        doc = readable(held)
        if held is not None and doc is not None and ours(doc, scene.name, scene.policy):
            yield key, held


def _timeline(scene: Scene, own: Own) -> _Timeline:
    folder = scene.facts.folder(own.site.folder)
    if len(folder) > FOLDER_LISTED:
        return _Timeline(scene, own, None)
    names = [key.removeprefix(own.site.folder) for key in folder]
    owner = naming.owner_of(own.site.naming.commit_names(_whose(own, scene), 0)[_spelling(own, scene)])
    keys = {
        ordinal: own.site.folder + name
        for name in names
        if naming.owner_of(name) == owner and (ordinal := naming.commit_of(name)) is not None
    }
    return _Timeline(scene, own, keys)


def _whose(own: Own, scene: Scene) -> Whose:
    return Whose(scene.name.namespace, scene.name.name, own.doc.guid if own.doc is not None else None)


def _spelling(own: Own, scene: Scene) -> int:
    return own.site.keys(_whose(own, scene)).index(own.key)


def _mend(timeline: _Timeline, draft: Draft) -> None:
    """Create the files that the last swap of the head made room for, if its writer did not."""
    scene, own = timeline.scene, timeline.own
    doc = own.doc
    if doc is None or not doc.live:
        return
    promised = (*doc.between, Commit(doc.ordinal, doc.metadata_file_path, doc.gap))[-scene.policy.keep :]
    for commit in promised:
        if not timeline.has(commit.ordinal):
            draft.put(Stage.MEND, timeline.key(commit.ordinal), render(_commit(own, doc, commit)), None)


def _commit(own: Own, head: Document, commit: Commit) -> Document:
    """The document of one commit, made of the head whose swap allotted it."""
    is_newest = commit.ordinal == head.ordinal
    return replace(
        head,
        ordinal=commit.ordinal,
        metadata_file_path=commit.metadata_file_path,
        metadata_file_relative=relative(own.site, commit.metadata_file_path),
        gap=commit.gap,
        snapshot_id=head.snapshot_id if is_newest else None,
        hint_was=(),
        between=(),
        turned=head.turned and is_newest,
    )


def _allotted(timeline: _Timeline, table: Table, head: Document) -> Document:
    """The head with the commits since the one that is held, as far as log and files tell, and the count of the rest."""
    scene = timeline.scene
    entries, gap = _since_held(timeline, table)
    kept = _short_enough(entries, scene.policy.keep - 1)
    gap += len(entries) - len(kept)
    there = _there(scene, [entry for entry, _ in kept])
    last, between = max(scene.previous, timeline.last), []
    for entry, at in kept:
        if canonical(entry) in there:
            last = max(min(at, LAST_ORDINAL), last + 1)
            between.append(Commit(last, entry, gap))
            gap = 0
        else:
            gap += 1
    return replace(head, ordinal=max(head.ordinal, last + 1), gap=gap, between=tuple(between))


def _since_held(timeline: _Timeline, table: Table) -> tuple[list[tuple[str, int]], int]:
    """The entries of the log behind the newest pointer that we knew, and how many commits before them are missing."""
    times = chain(table.log_times, repeat(0))
    entries = list(zip(table.metadata_log, times, strict=False))
    known = _known(timeline, table)
    if known is None:
        first = version(entries[0][0] if entries else table.metadata_location)
        return entries, first or 0
    since = _index_after(canonical(known), table.metadata_log)
    if since is not None:
        return entries[since:], 0
    before = version(known)
    if before is None or relate(known, (), table.metadata_location, table.metadata_log) is not Relation.NEWER:
        return [], 0
    newer = [(entry, at) for entry, at in entries if (version(entry) or 0) > before]
    first = version(newer[0][0] if newer else table.metadata_location)
    return newer, max(0, (first or 0) - before - 1)


def _index_after(pointer: str, log: Sequence[str]) -> int | None:
    """Where a log goes on after a canonical pointer, looked for from its end: most often that is near."""
    found = (index for index in range(len(log), 0, -1) if canonical(log[index - 1]) == pointer)
    return next(found, None)


def _known(timeline: _Timeline, table: Table) -> str | None:
    """The newest pointer of the table that a file of ours named: at its place, elsewhere, or under another name."""
    scene = timeline.scene
    mine = [doc for doc in scene.documents if doc.guid == table.uuid]
    if mine:
        # What leads on from where the table was has a greater Ordinal, and names what was current there.
        return max(mine, key=lambda doc: (doc.live, doc.ordinal)).metadata_file_path
    others = scene.facts.others_with(table.uuid, scene.name) if table.uuid is not None else []
    return max(others, key=lambda other: other[1].written_at)[1].pointer if others else None


def _short_enough(entries: list[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """The newest, as many as a head may name."""
    kept: list[tuple[str, int]] = []
    length = 0
    for entry in reversed(entries[max(0, len(entries) - most) :]):
        length += len(json.dumps(entry[0])) + _ENTRY
        if length > LONGEST_BETWEEN:
            break
        kept.append(entry)
    return kept[::-1]


def _there(scene: Scene, entries: Iterable[str]) -> set[str]:
    """Those metadata files of the log that still exist, where we may look; canonical."""
    places: list[str] = []
    for entry in entries:
        with suppress(LocationRefused):
            places.append(checked(entry, scene.policy.allowed))
    return scene.facts.existing(places)


def _prune(timeline: _Timeline, created: list[int], draft: Draft) -> None:
    """Delete what is neither among the newest nor young."""
    scene = timeline.scene
    policy, now = scene.policy, scene.look.answered
    all_of_them = sorted({*(timeline.keys or ()), *created}, reverse=True)
    young = {
        ordinal
        for rank, ordinal in enumerate(all_of_them[:MOST_COMMITS])
        if rank < policy.keep or now - (_EPOCH + timedelta(milliseconds=ordinal)) < policy.keep_for
    }
    remove_commits(scene, timeline.own, draft, but=young)
