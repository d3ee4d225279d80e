"""What is in the way of a file of ours, as an operator is told it."""

from __future__ import annotations

from sfn.pointer.document import Document
from sfn.publish.own import Own
from sfn.words import Dead, Reason, TableName


def in_the_way(own: Own, name: TableName) -> Dead:
    """The dead letter for a place that is taken.

    Args:
        own: with its obstacle.
        name: whose file belongs there.
    """
    reason = own.obstacle or Reason.FOREIGN_FILE
    if reason is Reason.PERMANENT:
        detail = f"{name} has no table-uuid to call its files by; upgrade it to format version 2, or set another naming"
        return Dead(reason, detail)
    detail = f"{own.key} is not ours: "
    if own.found is None:
        what = "it is no SFN document of a catalog that can be told; look at it, then move or delete it"
        return Dead(reason, detail + what)
    if reason is Reason.FOREIGN_CATALOG:
        adopt = f"`sfn adopt {name.catalog} --from {own.found.catalog_id}`"
        return Dead(reason, f"{detail}it belongs to the same identifier of another catalog; {adopt} takes it over")
    return Dead(reason, detail + _of_another(own, own.found, name))


def _of_another(own: Own, found: Document, name: TableName) -> str:
    theirs = ".".join((*found.namespace, found.name))
    if theirs != name.identifier and theirs.casefold() == name.identifier.casefold():
        return (
            f"it is that of {theirs}, and the file system takes upper and lower case for the same; give one of the two "
            "tables another name, or another location"
        )
    if own.site.naming.is_by_guid:
        return f"{theirs} has the same table-uuid in this catalog; drop one of the two, or set another naming"
    return f"it is that of {theirs}; look at it, then move or delete it"
