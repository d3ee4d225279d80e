"""What is in the way of a file of ours, as an operator is told it."""

from __future__ import annotations

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.publish.own import TableFiles
from sfn.sfnfile.document import Document


def conflict_letter(table_files: TableFiles, name: TableIdentifier) -> DeadLettered:
    """The dead letter for a place that is taken.

    Args:
        table_files: with its obstacle.
        name: whose file belongs there.
    """
    reason = table_files.conflict or DeadLetterReason.FOREIGN_FILE
    if reason is DeadLetterReason.PERMANENT:
        detail = f"{name} has no table-uuid to call its files by; upgrade it to format version 2, or set another naming"
        return DeadLettered(reason, detail)
    detail = f"{table_files.key} is not ours: "
    if table_files.conflicting_document is None:
        what = "it is no SFN document of a catalog that can be told; look at it, then move or delete it"
        return DeadLettered(reason, detail + what)
    if reason is DeadLetterReason.FOREIGN_CATALOG:
        adopt = f"`sfn adopt {name.catalog} --from {table_files.conflicting_document.catalog_id}`"
        return DeadLettered(
            reason, f"{detail}it belongs to the same identifier of another catalog; {adopt} takes it over"
        )
    return DeadLettered(reason, detail + _conflict_with(table_files, table_files.conflicting_document, name))


def _conflict_with(table_files: TableFiles, found: Document, name: TableIdentifier) -> str:
    other_name = ".".join((*found.namespace, found.name))
    if other_name != name.dotted and other_name.casefold() == name.dotted.casefold():
        return (
            f"it is that of {other_name}, and the file system takes upper and lower case for the same; "
            "give one of the two tables another name, or another location"
        )
    if table_files.layout.naming.is_by_uuid:
        return f"{other_name} has the same table-uuid in this catalog; drop one of the two, or set another naming"
    return f"it is that of {other_name}; look at it, then move or delete it"
