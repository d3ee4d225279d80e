"""Which metadata file has a table's state, and what of it Iceberg's runtime is asked for.

Nothing of a table that only that runtime understands is looked into.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sfn.errors import NotSupported
from sfn.reader import metadata
from sfn.reader import resolve as reading
from sfn.reader.files import run_synchronously
from sfn.reader.history import DocumentVersion
from sfn.reader.lookup import FoundDocument
from sfn.reader.metadata import PartialMetadata
from sfn.reader.resolve import MetadataPointer, Resolved
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.spark.asked import AsOf, AsOfOrdinal, AsOfRef, AsOfSnapshot, AsOfTime, ReadRequest
from sfn.spark.moments import check_snapshot_id, snapshot_at

_NUMBER: Final = re.compile(r"[+-]?\d+")
"""What Java's `Long.parseLong` may take, which Iceberg asks first."""


@dataclass(frozen=True, slots=True)
class PinnedPointer:
    """A table in one state.

    Attributes:
        pointer: its metadata file, and the document that names it.
        name: its identifier, for people.
        version: a snapshot's id, a branch or a tag, as Iceberg's option `versionAsOf` takes it; None: as it is there.
    """

    pointer: MetadataPointer
    name: str
    version: str | None


def pin_pointer(request: ReadRequest) -> PinnedPointer:
    """The state that is asked for, looked up now.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        NotSupported: a branch that Iceberg would take for a snapshot's id.
    """
    storage = request.file_system_options.open_file_system()
    found = run_synchronously(reading.resolve_question(storage, request.question, request.file_system_options))
    key = canonical(found.metadata_location)
    if isinstance(request.as_of, AsOfOrdinal) or request.as_of == AsOfRef(MAIN_BRANCH):
        return _to_pinned_pointer(found, key, None)
    contents = run_synchronously(metadata.read_metadata(storage, key))
    if contents is None:
        raise metadata.metadata_gone_error(key, found.document, found.sfn_file, found.document.written_at + found.age)
    return _to_pinned_pointer(found, key, version_as_of(request.as_of, contents, found.metadata_location))


def version_as_of(as_of: AsOf, contents: PartialMetadata, where: str) -> str | None:
    """What Iceberg's option `versionAsOf` is given for a state of a table: a snapshot's id, a branch or a tag.

    Args:
        as_of: as which it is read, of its own history.
        contents: what stands in its metadata file, with all snapshots that a state is looked for among.
        where: that file.

    Returns:
        None for the table as it is there.

    Raises:
        RefNotFound, CommitNotFound: it has no such branch, tag or snapshot.
        NotSupported: a branch that Iceberg would take for a snapshot's id.
    """
    known = contents.snapshot_ids
    match as_of:
        case AsOfRef(name) if name != MAIN_BRANCH:
            return _version_of_ref(name, contents, where)
        case AsOfRef() | AsOfOrdinal():
            return None
        case AsOfSnapshot(number):
            check_snapshot_id(number, known, where)
            return f"{number}"
        case AsOfTime(milliseconds):
            number = snapshot_at(contents.snapshot_log_entries(where), milliseconds, where)
            check_snapshot_id(number, known, where)
            return f"{number}"


def _version_of_ref(name: str, contents: PartialMetadata, where: str) -> str:
    """A branch has the table's schema, a tag that of its snapshot: Iceberg tells them by the name."""
    contents.head(name, where)
    ref = (contents.refs or {})[name]
    if _NUMBER.fullmatch(name) is None:
        return name
    schemas = {one.snapshot_id: one.schema_id for one in contents.snapshots or ()}
    if ref.type == "branch" and schemas.get(ref.snapshot_id) != contents.current_schema_id:
        raise NotSupported(
            where,
            expected="a branch that can be told from a snapshot's id",
            found=f"branch {name}, with another schema than its snapshot",
            remedy="use engine='files' or engine='sfn'",
        )
    return f"{ref.snapshot_id}"


def _to_pinned_pointer(found: Resolved, key: str, version: str | None) -> PinnedPointer:
    name = ".".join((*found.document.namespace, found.document.name))
    return PinnedPointer(
        MetadataPointer(key, DocumentVersion(FoundDocument(found.sfn_file, found.document))), name, version
    )
