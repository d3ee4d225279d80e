"""Check a table's directory: the SFN file, the metadata file, and the files below the head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from sfn.clock import SystemClock
from sfn.errors import (
    CommitNotFound,
    DirectoryNotFound,
    MalformedMetadata,
    NotInstalled,
    NotPermitted,
    RefNotFound,
    SfnError,
    Stale,
    Unreachable,
    Unreadable,
)
from sfn.reader import metadata
from sfn.reader.files import run_synchronously
from sfn.reader.resolve import Resolved
from sfn.reader.table import AllowedFiles, load_metadata, metadata_at_ref, require_packages
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH

MAX_MISSING_NAMED: Final = 100
"""The maximum number of missing files that are named."""

_COULD_NOT_CHECK: Final = (NotPermitted, Unreachable, NotInstalled)
"""Errors that prevent a check, and so are no result of it."""
_SUBJECT_OF_ERROR: Final = (
    ((Stale, MalformedMetadata), "metadata file"),
    ((RefNotFound, CommitNotFound), "ref"),
    ((DirectoryNotFound,), "directory"),
    (_COULD_NOT_CHECK, "store"),
)
"""The things that errors of a search are about, if not the SFN file."""

_WIDTH: Final = 16
"""Files that are checked at a time."""
_BATCH: Final = 1_024


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """The result of one check.

    Attributes:
        what: the thing that was checked.
        ok: whether it is right.
        text: its state, or the error.
        was_checked: whether the check was possible; otherwise nothing is known about the thing.
    """

    what: str
    ok: bool
    text: str
    was_checked: bool = True


OnProgress = Callable[[int, int], None]
"""Called with the number of manifests that were checked, and their total."""


def verify(
    resolving: Callable[[], Resolved], *, deep: bool, on_progress: OnProgress
) -> tuple[Resolved | None, list[VerifyFinding]]:
    """Check the SFN file, the metadata file and the files that its head needs.

    Args:
        resolving: finds the table.
        deep: check every manifest, data and delete file, too; needs PyIceberg.

    Returns:
        The resolved table, None if it was not found, and the findings.

    Raises:
        NotInstalled: PyIceberg is missing.
    """
    if deep:
        require_packages("pyiceberg")
    try:
        found = resolving()
    except Unreadable as refusal:
        return None, [_finding_of_error(refusal)]
    return found, list(_find_all(found, deep=deep, on_progress=on_progress))


def _find_all(found: Resolved, *, deep: bool, on_progress: OnProgress) -> Iterator[VerifyFinding]:
    files = found.files
    yield VerifyFinding("SFN file", ok=True, text=found.sfn_file)
    try:
        contents = _read_metadata(found, files)
    except Unreadable as refusal:
        yield _failed("metadata file", refusal)
        return
    guid = found.document.guid
    same = f"its table-uuid is {guid}" if guid else "the table has no uuid that could be compared"
    yield VerifyFinding("metadata file", ok=True, text=f"{found.metadata_location}: {same}")
    yield from _check_head(found, contents, files)
    if deep:
        yield from _check_files_below_head(found, files, on_progress)


def _read_metadata(found: Resolved, files: AllowedFiles) -> metadata.PartialMetadata:
    """Return the contents of the metadata file, which may have been replaced since it was found."""
    key = canonical(found.metadata_location)
    contents = run_synchronously(metadata.read_metadata(files.file_system, key))
    if contents is None:
        raise metadata.metadata_gone_error(key, found.document, found.sfn_file, SystemClock().now())
    metadata.check_table_uuid(key, contents.table_uuid, found.document, found.sfn_file)
    return contents


def _check_head(found: Resolved, contents: metadata.PartialMetadata, files: AllowedFiles) -> Iterator[VerifyFinding]:
    """Check the snapshot that the document names, and its manifest list."""
    try:
        head = contents.head(found.ref, found.metadata_location)
    except Unreadable as refusal:
        yield VerifyFinding("ref", ok=False, text=str(refusal))
        return
    if found.snapshot_id not in {None, head}:
        text = f"{found.sfn_file}: expected the snapshot {head}, as the metadata file says, found {found.snapshot_id}"
        yield VerifyFinding("ref", ok=False, text=text)
    else:
        yield VerifyFinding("ref", ok=True, text=f"{found.ref} is at {'no snapshot' if head is None else head}")
    yield from _check_other_refs(found, contents)
    listed = next((one.manifest_list for one in contents.snapshots or () if one.snapshot_id == head), None)
    if listed is not None:
        yield _check_file("manifest list", listed, None, files=files, named_by=found.metadata_location)
    elif head is not None:
        text = f"{found.metadata_location}: expected a manifest list of {head}, found none"
        yield VerifyFinding("manifest list", ok=False, text=text)


def _check_other_refs(found: Resolved, contents: metadata.PartialMetadata) -> Iterator[VerifyFinding]:
    """Yield the other branches and tags that can't be read."""
    named = 0
    for ref in sorted({MAIN_BRANCH, *(contents.refs or ())} - {found.ref}):
        try:
            contents.head(ref, found.metadata_location)
        except Unreadable as refusal:
            named += 1
            if named <= MAX_MISSING_NAMED:
                yield VerifyFinding("ref", ok=False, text=str(refusal))
    if (more := named - MAX_MISSING_NAMED) > 0:
        yield VerifyFinding("ref", ok=False, text=f"and {more:,} more")


def _check_files_below_head(found: Resolved, files: AllowedFiles, on_progress: OnProgress) -> Iterator[VerifyFinding]:
    """Check every file below the head."""
    from sfn.reader.inspect import MetadataWalk

    try:
        whole = load_metadata(found)
        head = metadata_at_ref(whole, found.ref, found.metadata_location).current_snapshot_id
        walk = MetadataWalk(found.metadata_location, whole, files)
        snapshot = None if head is None else walk.snapshot(head)
    except Unreadable as refusal:
        yield _finding_of_error(refusal)
        return
    listed_in = "" if snapshot is None else snapshot.manifest_list
    manifests, problem = ([], "") if snapshot is None else walk.manifests(snapshot)
    if problem:
        there = _check_file("manifest list", listed_in, None, files=files, named_by=found.metadata_location)
        yield VerifyFinding("manifest list", ok=False, text=problem, was_checked=there.was_checked)
        return
    findings = _FileFindings()
    for number, manifest in enumerate(manifests):
        path = manifest.manifest_path
        inside, problem = walk.files(manifest, listed_in)
        # A manifest that is cut off between two of its blocks can be read, but has fewer files.
        sized = _check_file("manifest", path, manifest.manifest_length, files=files, named_by=listed_in)
        # If the store did not return the manifest, the decoder's error says nothing about the file.
        findings.add(replace(sized, ok=False, text=problem) if problem else sized)
        for finding in _check_files(((one.file_path, one.file_size_in_bytes) for one in inside), files, path):
            findings.add(finding)
        on_progress(number + 1, len(manifests))
    yield from findings.findings()


def _finding_of_error(refusal: Unreadable) -> VerifyFinding:
    """Return the finding for an error of the search."""
    what = next((what for kinds, what in _SUBJECT_OF_ERROR if isinstance(refusal, kinds)), "SFN file")
    return _failed(what, refusal)


def _failed(what: str, refusal: SfnError) -> VerifyFinding:
    return VerifyFinding(what, ok=False, text=str(refusal), was_checked=not isinstance(refusal, _COULD_NOT_CHECK))


class _FileFindings:
    """A summary of many files: the first findings that are wrong, and their number."""

    def __init__(self) -> None:
        self._files = self._wrong = 0
        self._named: list[VerifyFinding] = []

    def add(self, finding: VerifyFinding) -> None:
        self._files += 1
        self._wrong += not finding.ok
        if not finding.ok and len(self._named) < MAX_MISSING_NAMED:
            self._named.append(finding)

    def findings(self) -> Iterator[VerifyFinding]:
        yield from self._named
        if more := self._wrong - len(self._named):
            yield VerifyFinding("files", ok=False, text=f"and {more:,} more")
        if not self._wrong:
            text = f"{self._files:,} manifests, data and delete files exist with the recorded sizes"
            yield VerifyFinding("files", ok=True, text=text)


def _check_files(named: Iterable[tuple[str, int]], files: AllowedFiles, named_by: str) -> Iterator[VerifyFinding]:
    remaining = iter(named)
    with ThreadPoolExecutor(_WIDTH, "sfn-verify") as threads:
        while batch := list(islice(remaining, _BATCH)):
            yield from threads.map(lambda one: _check_file("data file", *one, files=files, named_by=named_by), batch)


def _check_file(what: str, location: str, size: int | None, *, files: AllowedFiles, named_by: str) -> VerifyFinding:
    """Check that a file exists and has the size that was recorded."""
    try:
        found = files.size(location, named_by)
    except SfnError as refusal:
        return _failed(what, refusal)
    if found is None:
        return VerifyFinding(what, ok=False, text=f"{location}: expected a file, found none")
    if size is not None and found != size:
        return VerifyFinding(what, ok=False, text=f"{location}: expected {size:,} bytes, found {found:,}")
    return VerifyFinding(what, ok=True, text=location)
