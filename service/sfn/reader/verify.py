"""Whether what lies in a directory is right, as far as the directory itself can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from sfn.clock import SystemClock
from sfn.errors import (
    CommitNotFound,
    MalformedMetadata,
    NoDirectory,
    NotInstalled,
    NotPermitted,
    RefNotFound,
    SfnError,
    Stale,
    Unreachable,
    Unreadable,
)
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader import metadata
from sfn.reader.boundary import Bounded
from sfn.reader.files import finish
from sfn.reader.resolve import Resolved
from sfn.reader.table import at_ref, loaded, needed

MISSING_NAMED: Final = 100
"""Files that are named of those that are missing."""

_UNSEEN: Final = (NotPermitted, Unreachable, NotInstalled)
"""Refusals that say nothing of what was to be looked at."""
_SUBJECTS: Final = (
    ((Stale, MalformedMetadata), "metadata file"),
    ((RefNotFound, CommitNotFound), "ref"),
    ((NoDirectory,), "directory"),
    (_UNSEEN, "store"),
)
"""What the refusals of a search are about that are not about the SFN file."""

_WIDTH: Final = 16
"""Files that are looked at, at a time."""
_BATCH: Final = 1_024


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing.

    Attributes:
        what: that was looked at.
        ok: it is right.
        text: what is so, or what is wrong.
        was_looked_at: it could be; otherwise nothing is known of it.
    """

    what: str
    ok: bool
    text: str
    was_looked_at: bool = True


Moved = Callable[[int, int], None]
"""Told how many of how many manifests were looked through."""


def verify(resolving: Callable[[], Resolved], *, deep: bool, moved: Moved) -> tuple[Resolved | None, list[Finding]]:
    """Look at the SFN file, the metadata file and the files that its head needs.

    Args:
        resolving: finds the table.
        deep: look at every manifest, data and delete file too; needs PyIceberg.

    Returns:
        What was resolved, None where nothing was, and what was found.

    Raises:
        NotInstalled: PyIceberg is missing.
    """
    if deep:
        needed("pyiceberg")
    try:
        found = resolving()
    except Unreadable as refusal:
        return None, [_refused(refusal)]
    return found, list(_findings(found, deep=deep, moved=moved))


def _findings(found: Resolved, *, deep: bool, moved: Moved) -> Iterator[Finding]:
    files = found.files
    yield Finding("SFN file", ok=True, text=found.sfn_file)
    try:
        contents = _contents(found, files)
    except Unreadable as refusal:
        yield _wrong("metadata file", refusal)
        return
    guid = found.document.guid
    same = f"its table-uuid is {guid}" if guid else "the table has no uuid to be known by"
    yield Finding("metadata file", ok=True, text=f"{found.metadata_location}: {same}")
    yield from _head(found, contents, files)
    if deep:
        yield from _deep(found, files, moved)


def _contents(found: Resolved, files: Bounded) -> metadata.Metadata:
    """What stands in the metadata file, which may have been replaced since it was found."""
    key = canonical(found.metadata_location)
    contents = finish(metadata.contents(files.storage, key))
    if contents is None:
        raise metadata.gone(key, found.document, found.sfn_file, SystemClock().now())
    metadata.compare(key, contents.table_uuid, found.document, found.sfn_file)
    return contents


def _head(found: Resolved, contents: metadata.Metadata, files: Bounded) -> Iterator[Finding]:
    """The snapshot that the document names, and where its manifests are listed."""
    try:
        head = contents.head(found.ref, found.metadata_location)
    except Unreadable as refusal:
        yield Finding("ref", ok=False, text=str(refusal))
        return
    if found.snapshot_id not in {None, head}:
        text = f"{found.sfn_file}: expected the snapshot {head}, as the metadata file says, found {found.snapshot_id}"
        yield Finding("ref", ok=False, text=text)
    else:
        yield Finding("ref", ok=True, text=f"{found.ref} is at {'no snapshot' if head is None else head}")
    yield from _other_refs(found, contents)
    listed = next((one.manifest_list for one in contents.snapshots or () if one.snapshot_id == head), None)
    if listed is not None:
        yield _file("manifest list", listed, None, files=files, said_by=found.metadata_location)
    elif head is not None:
        text = f"{found.metadata_location}: expected a manifest list of {head}, found none"
        yield Finding("manifest list", ok=False, text=text)


def _other_refs(found: Resolved, contents: metadata.Metadata) -> Iterator[Finding]:
    """The branches and tags that were not asked for and can't be read."""
    named = 0
    for ref in sorted({MAIN_BRANCH, *(contents.refs or ())} - {found.ref}):
        try:
            contents.head(ref, found.metadata_location)
        except Unreadable as refusal:
            named += 1
            if named <= MISSING_NAMED:
                yield Finding("ref", ok=False, text=str(refusal))
    if (more := named - MISSING_NAMED) > 0:
        yield Finding("ref", ok=False, text=f"and {more:,} more")


def _deep(found: Resolved, files: Bounded, moved: Moved) -> Iterator[Finding]:
    """Every file below the head."""
    from sfn.reader.walk import Walk

    try:
        whole = loaded(found)
        head = at_ref(whole, found.ref, found.metadata_location).current_snapshot_id
        walk = Walk(found.metadata_location, whole, files)
        snapshot = None if head is None else walk.snapshot(head)
    except Unreadable as refusal:
        yield _refused(refusal)
        return
    listed_in = "" if snapshot is None else snapshot.manifest_list
    manifests, problem = ([], "") if snapshot is None else walk.manifests(snapshot)
    if problem:
        there = _file("manifest list", listed_in, None, files=files, said_by=found.metadata_location)
        yield Finding("manifest list", ok=False, text=problem, was_looked_at=there.was_looked_at)
        return
    seen = _Seen()
    for number, manifest in enumerate(manifests):
        path = manifest.manifest_path
        inside, problem = walk.files(manifest, listed_in)
        # Cut between two of its blocks it reads as one with fewer files.
        sized = _file("manifest", path, manifest.manifest_length, files=files, said_by=listed_in)
        # What a decoder says of one that a store did not give tells nothing of the file.
        seen.take(replace(sized, ok=False, text=problem) if problem else sized)
        for finding in _looked_at(((one.file_path, one.file_size_in_bytes) for one in inside), files, path):
            seen.take(finding)
        moved(number + 1, len(manifests))
    yield from seen.findings()


def _refused(refusal: Unreadable) -> Finding:
    """What a refusal is about, and what it says."""
    what = next((what for kinds, what in _SUBJECTS if isinstance(refusal, kinds)), "SFN file")
    return _wrong(what, refusal)


def _wrong(what: str, refusal: SfnError) -> Finding:
    return Finding(what, ok=False, text=str(refusal), was_looked_at=not isinstance(refusal, _UNSEEN))


class _Seen:
    """What was found of many files: the first that are wrong, and how many there are."""

    def __init__(self) -> None:
        self._files = self._wrong = 0
        self._named: list[Finding] = []

    def take(self, finding: Finding) -> None:
        self._files += 1
        self._wrong += not finding.ok
        if not finding.ok and len(self._named) < MISSING_NAMED:
            self._named.append(finding)

    def findings(self) -> Iterator[Finding]:
        yield from self._named
        if more := self._wrong - len(self._named):
            yield Finding("files", ok=False, text=f"and {more:,} more")
        if not self._wrong:
            text = f"{self._files:,} manifests, data and delete files are there, each as large as it was"
            yield Finding("files", ok=True, text=text)


def _looked_at(named: Iterable[tuple[str, int]], files: Bounded, said_by: str) -> Iterator[Finding]:
    remaining = iter(named)
    with ThreadPoolExecutor(_WIDTH, "sfn-verify") as threads:
        while batch := list(islice(remaining, _BATCH)):
            yield from threads.map(lambda one: _file("data file", *one, files=files, said_by=said_by), batch)


def _file(what: str, location: str, size: int | None, *, files: Bounded, said_by: str) -> Finding:
    """Whether a file is there, and as large as it was written."""
    try:
        found = files.size(location, said_by)
    except SfnError as refusal:
        return _wrong(what, refusal)
    if found is None:
        return Finding(what, ok=False, text=f"{location}: expected a file, found none")
    if size is not None and found != size:
        return Finding(what, ok=False, text=f"{location}: expected {size:,} bytes, found {found:,}")
    return Finding(what, ok=True, text=location)
