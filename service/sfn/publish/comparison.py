"""What differs between the catalog's answer for a table and our files beside it, pure: nothing is to be written.

A rehearsal of a first publish, for people: it reads as `decide` does, and says what it found instead of what to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLetterReason
from sfn.publish.context import hint_at
from sfn.publish.existing_files import FileFinder, TableFiles, has_identifier
from sfn.publish.policy import Policy
from sfn.publish.queries import Observations
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileOwner
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata


class DifferenceKind(StrEnum):
    """What a table's files are to the catalog's answer.

    missing           no file of ours lies there
    behind            it names an older metadata file, or says that the table is gone
    ahead             it names a newer metadata file than the catalog
    other             it names one that is neither known to be newer nor older, or another table's
    hint-behind       the SFN file is right, the version hint beside it is not yet
    left-over         the table gets no files, and has one
    foreign-catalog, foreign-file, location-refused, permanent
                      no file of ours can be written there, as for a dead letter of that reason
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


@dataclass(frozen=True, slots=True)
class TableDifference:
    """One table that differs.

    Attributes:
        table: which.
        kind: how.
        detail: what was found, for a person.
    """

    table: TableIdentifier
    kind: DifferenceKind
    detail: str


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """What lies at a table's place.

    Attributes:
        table_files: our files there.
        difference: how they differ from what they should say; None where all is right.
        is_exact: they say just what the catalog does, and so does the version hint, or there is none: nothing of that
            was found out by the table's metadata log.
    """

    table_files: TableFiles
    difference: TableDifference | None
    is_exact: bool


def usual_keys(name: TableIdentifier, table: Table, location: str, policy: Policy) -> tuple[str, ...]:
    """The files that `compare` reads of nearly every table, for whoever can read several at once."""
    layout = policy.layout(name, location)
    keys = layout.keys(FileOwner(name.namespace, name.name, table.uuid))[:1]
    has_hint = policy.version_hint and layout.has_version_hint
    return (*keys, version_hint.key_of(layout.location)) if has_hint else keys or (layout.folder,)


def compare(
    name: TableIdentifier, table: Table, location: str, observations: Observations, policy: Policy
) -> ComparisonResult:
    """What lies at a table's place, and how that differs from what should.

    Args:
        name: its identifier.
        table: what the catalog says.
        location: its canonical location, checked.
        observations: the files there, as far as they were read.
        policy: the catalog's settings.

    Raises:
        Lacking: a file must be read first.
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
        return TableDifference(name, DifferenceKind.MISSING, f"nothing at {table_files.key}")
    if not has_identifier(table_files.main_document, name):
        document = table_files.main_document
        called = ".".join((*document.namespace, document.name))
        message = f"{table_files.key} still calls the table {called}"
        return TableDifference(name, DifferenceKind.BEHIND, message)
    found = _compare_pointer(table_files.main_document, table) or _compare_hint(
        table_files, table_files.main_document, table, observations, policy
    )
    return None if found is None else TableDifference(name, found[0], f"{table_files.key}: {found[1]}")


def _conflict(name: TableIdentifier, table_files: TableFiles, reason: DeadLetterReason) -> TableDifference:
    if reason is DeadLetterReason.FOREIGN_CATALOG and table_files.conflicting_document is not None:
        return TableDifference(
            name,
            DifferenceKind.FOREIGN_CATALOG,
            f"{table_files.key} carries the catalog_id {table_files.conflicting_document.catalog_id}",
        )
    if reason is DeadLetterReason.PERMANENT:
        return TableDifference(name, DifferenceKind.PERMANENT, "it has no table-uuid to call its files by")
    return TableDifference(name, DifferenceKind.FOREIGN_FILE, f"{table_files.key} is not provably ours")


def _compare_pointer(doc: Document, table: Table) -> tuple[DifferenceKind, str] | None:
    named = doc.metadata_file_path
    if not doc.is_live:
        return DifferenceKind.BEHIND, f"it says {doc.state.value}"
    if doc.guid != table.uuid:
        return DifferenceKind.OTHER, f"it is of the table {doc.guid}, the catalog's is {table.uuid}"
    match compare_metadata(named, (), table.metadata_location, table.metadata_log):
        case MetadataOrder.SAME:
            return None
        case MetadataOrder.NEWER:
            return DifferenceKind.BEHIND, f"it names {named}, the catalog {table.metadata_location}"
        case MetadataOrder.OLDER:
            return DifferenceKind.AHEAD, f"it names {named}, the catalog {table.metadata_location}"
        case MetadataOrder.UNKNOWN:
            return (
                DifferenceKind.OTHER,
                f"it names {named}, the catalog {table.metadata_location}, of which none is known to be newer",
            )


def _compare_hint(
    table_files: TableFiles, doc: Document, table: Table, observations: Observations, policy: Policy
) -> tuple[DifferenceKind, str] | None:
    """The version hint, where it is ours and behind. None at all may be right: two tables may share the directory."""
    wanted = version_hint.content(table)
    hint = hint_at(observations, table_files.layout.location) if _has_hint(table_files, table, policy) else None
    if hint is None or hint.body == wanted:
        return None
    said = hint.body.decode(errors="replace")
    spellings = (text for entry in table.metadata_log for text in version_hint.known_texts(entry))
    our_texts = {*doc.hint_was, *(text for text in spellings if not version_hint.is_numbered(text))}
    expected = "and there should be none" if wanted is None else f"not {wanted.decode()}"
    return (DifferenceKind.HINT_BEHIND, f"the version hint says {said}, {expected}") if said in our_texts else None


def _has_hint(table_files: TableFiles, table: Table, policy: Policy) -> bool:
    """Whether a version hint of ours may stand beside the table's files."""
    return table.skip_reason is None and policy.version_hint and table_files.layout.has_version_hint
