"""The differences between the catalog's answer for a table and our files: pure, and without any write.

Dry runs, sweeps and audits use the same kinds of differences. `compare` reads the same observations as `decide`, and
returns differences, not changes. `compare_published` reads no file: it compares the last published pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, PublishedPointer
from sfn.publish.context import hint_at
from sfn.publish.existing_files import FileFinder, TableFiles, has_identifier
from sfn.publish.policy import Policy
from sfn.publish.queries import Observations
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import MetadataOrder, compare_metadata
from sfn.sfnfile.naming import FileOwner


class DifferenceKind(StrEnum):
    """The kind of difference between a table's files and the catalog's answer.

    missing           there is no file of ours
    behind            the file names an older metadata file, or says that the table is gone
    ahead             the file names a newer metadata file than the catalog
    other             the file names a metadata file of unknown order, or is for another table
    hint-behind       the SFN file is right, the version hint beside it is outdated
    left-over         the table gets no files, but has one
    foreign-catalog, foreign-file, location-refused, permanent
                      no file of ours can be written there, as for a dead letter of that reason
    absent            the catalog does not have the table any more, and a file says that it has
    renamed           the same, and the catalog has the table under another name
    """

    MISSING = "missing"
    BEHIND = "behind"
    AHEAD = "ahead"
    OTHER = "other"
    HINT_BEHIND = "hint-behind"
    LEFT_OVER = "left-over"
    FOREIGN_CATALOG = "foreign-catalog"
    FOREIGN_FILE = "foreign-file"
    LOCATION_REFUSED = "location-refused"
    PERMANENT = "permanent"
    ABSENT = "absent"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True)
class TableDifference:
    """One table that differs.

    Attributes:
        table: the table's name.
        kind: the kind of difference.
        detail: a description for people.
    """

    table: TableIdentifier
    kind: DifferenceKind
    detail: str


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """The files at a table's place, and their difference.

    Attributes:
        table_files: our files there.
        difference: the difference; None if everything is right.
        is_exact: the file names the same metadata file as the catalog, and so does the version hint if there is one;
            the metadata log was not needed.
    """

    table_files: TableFiles
    difference: TableDifference | None
    is_exact: bool


def usual_keys(name: TableIdentifier, table: Table, location: str, policy: Policy) -> tuple[str, ...]:
    """Return the keys that `compare` reads for nearly every table, for callers that can read several at once."""
    layout = policy.layout(name, location)
    keys = layout.keys(FileOwner(name.namespace, name.name, table.uuid))[:1]
    has_hint = policy.version_hint and layout.has_version_hint
    return (*keys, version_hint.key_of(layout.location)) if has_hint else keys or (layout.folder,)


def compare(
    name: TableIdentifier, table: Table, location: str, observations: Observations, policy: Policy
) -> ComparisonResult:
    """Compare the files at a table's place with the catalog's answer.

    Args:
        name: the table's identifier.
        table: the catalog's answer.
        location: the table's canonical location, checked.
        observations: the files that were read so far.
        policy: the settings of the catalog.

    Raises:
        NeedsQuery: a file must be read first.
    """
    table_files = FileFinder(observations, policy, name).find_slot(policy.layout(name, location), table.uuid)
    difference = _difference(name, table, table_files, observations, policy)
    hint = (
        hint_at(observations, table_files.layout.location)
        if difference is None and _has_hint(table_files, table, policy)
        else None
    )
    return ComparisonResult(
        table_files, difference, difference is None and (hint is None or hint.body == version_hint.content(table))
    )


def _difference(
    name: TableIdentifier, table: Table, table_files: TableFiles, observations: Observations, policy: Policy
) -> TableDifference | None:
    if table.skip_reason is not None:
        live = table_files.main_document is not None and table_files.main_document.is_live
        return (
            TableDifference(name, DifferenceKind.LEFT_OVER, f"{table_files.key}: {table.skip_reason}") if live else None
        )
    if table_files.conflict is not None:
        return _conflict(name, table_files, table_files.conflict)
    if table_files.main_document is None:
        return TableDifference(name, DifferenceKind.MISSING, f"no file at {table_files.key}")
    if not has_identifier(table_files.main_document, name):
        document = table_files.main_document
        former_name = ".".join((*document.namespace, document.name))
        message = f"{table_files.key} still calls the table {former_name}"
        return TableDifference(name, DifferenceKind.BEHIND, message)
    found = _compare_pointer(table_files.main_document, table) or _compare_hint(
        table_files, table_files.main_document, table, observations, policy
    )
    return None if found is None else TableDifference(name, found[0], f"{table_files.key}: {found[1]}")


def compare_published(name: TableIdentifier, table: Table, live: PublishedPointer | None) -> TableDifference:
    """Return how a published pointer differs from the catalog's answer, where the caller knows that the two differ.

    Args:
        name: the table's identifier.
        table: the catalog's answer.
        live: the last published pointer; None if no file is live.
    """
    if table.skip_reason is not None:
        return TableDifference(name, DifferenceKind.LEFT_OVER, table.skip_reason)
    if live is None:
        return TableDifference(name, DifferenceKind.MISSING, "no file is published")
    found = _compare_metadata(live.metadata_location, live.uuid, table)
    return TableDifference(name, *(found or (DifferenceKind.BEHIND, "the last publish was given up")))


def _conflict(name: TableIdentifier, table_files: TableFiles, reason: DeadLetterReason) -> TableDifference:
    if reason is DeadLetterReason.FOREIGN_CATALOG and table_files.conflicting_document is not None:
        return TableDifference(
            name,
            DifferenceKind.FOREIGN_CATALOG,
            f"{table_files.key} carries the catalog_id {table_files.conflicting_document.catalog_id}",
        )
    if reason is DeadLetterReason.PERMANENT:
        return TableDifference(name, DifferenceKind.PERMANENT, "the table has no table-uuid, which its file name needs")
    return TableDifference(name, DifferenceKind.FOREIGN_FILE, f"{table_files.key} is not a file of this listener")


def _compare_pointer(doc: Document, table: Table) -> tuple[DifferenceKind, str] | None:
    if not doc.is_live:
        return DifferenceKind.BEHIND, f"the file has the state {doc.state.value}"
    return _compare_metadata(doc.metadata_file_path, doc.guid, table)


def _compare_metadata(named: str, uuid: str | None, table: Table) -> tuple[DifferenceKind, str] | None:
    if uuid != table.uuid:
        return DifferenceKind.OTHER, f"the file has the table-uuid {uuid}, the catalog has {table.uuid}"
    match compare_metadata(named, (), table.metadata_location, table.metadata_log):
        case MetadataOrder.SAME:
            return None
        case MetadataOrder.NEWER:
            return DifferenceKind.BEHIND, f"the file names {named}, the catalog {table.metadata_location}"
        case MetadataOrder.OLDER:
            return DifferenceKind.AHEAD, f"the file names {named}, the catalog {table.metadata_location}"
        case MetadataOrder.UNKNOWN:
            return (
                DifferenceKind.OTHER,
                f"the file names {named}, the catalog {table.metadata_location}; the order of the two is unknown",
            )


def _compare_hint(
    table_files: TableFiles, doc: Document, table: Table, observations: Observations, policy: Policy
) -> tuple[DifferenceKind, str] | None:
    """Compare the version hint, if it is ours; a missing hint may be right, as two tables may share the directory."""
    wanted = version_hint.content(table)
    hint = hint_at(observations, table_files.layout.location) if _has_hint(table_files, table, policy) else None
    if hint is None or hint.body == wanted:
        return None
    text = hint.body.decode(errors="replace")
    earlier = (one for entry in table.metadata_log for one in version_hint.known_texts(entry))
    our_texts = {*doc.hint_was, *(one for one in earlier if not version_hint.is_numbered(one))}
    expected = "and there should be none" if wanted is None else f"not {wanted.decode()}"
    return (DifferenceKind.HINT_BEHIND, f"the version hint says {text}, {expected}") if text in our_texts else None


def _has_hint(table_files: TableFiles, table: Table, policy: Policy) -> bool:
    """Return whether a version hint of ours may lie beside the table's files."""
    return table.skip_reason is None and policy.version_hint and table_files.layout.has_version_hint
