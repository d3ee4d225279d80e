"""What is in the way of a file of ours, as an operator is told it."""

from __future__ import annotations

from sfn.pointer.document import Document
from sfn.publish.own import TableFiles
from sfn.words import Dead, Reason, TableName


def conflict_letter(table_files: TableFiles, name: TableName) -> Dead:
    """The dead letter for a place that is taken.

    Args:
        table_files: with its obstacle.
        name: whose file belongs there.
    """
    reason = table_files.conflict or Reason.FOREIGN_FILE
    if reason is Reason.PERMANENT:
        detail = f"{name} has no table-uuid to call its files by; upgrade it to format version 2, or set another naming"
        return Dead(reason, detail)
    detail = f"{table_files.key} is not ours: "
    if table_files.conflicting_document is None:
        what = "it is no SFN document of a catalog that can be told; look at it, then move or delete it"
        return Dead(reason, detail + what)
    if reason is Reason.FOREIGN_CATALOG:
        adopt = f"`sfn adopt {name.catalog} --from {table_files.conflicting_document.catalog_id}`"
        return Dead(reason, f"{detail}it belongs to the same identifier of another catalog; {adopt} takes it over")
    return Dead(reason, detail + _conflict_with(table_files, table_files.conflicting_document, name))


def _conflict_with(table_files: TableFiles, found: Document, name: TableName) -> str:
    other_name = ".".join((*found.namespace, found.name))
    if other_name != name.identifier and other_name.casefold() == name.identifier.casefold():
        return (
            f"it is that of {other_name}, and the file system takes upper and lower case for the same; "
            "give one of the two tables another name, or another location"
        )
    if table_files.layout.naming.is_by_uuid:
        return f"{other_name} has the same table-uuid in this catalog; drop one of the two, or set another naming"
    return f"it is that of {other_name}; look at it, then move or delete it"
