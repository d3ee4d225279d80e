"""Whose a catalog's files are once its address has changed: what the rows say of it, remembered across starts."""

from __future__ import annotations

from sfn.domain.jobs import IndexedTable
from sfn.inbox import TableIndex
from sfn.inbox.desk import CatalogAdmin


async def recorded_owner(catalog: str, catalog_id: str, catalog_admin: CatalogAdmin, table_index: TableIndex) -> str:
    """Note whose a catalog's files are: those of another `catalog_id`, while there are any to be adopted, else its own.

    All rows may be read for it, but not of a catalog that is noted as its own: files that it wrote at another address
    meanwhile are then not looked for. A table that another catalog's file keeps from its place counts only where that
    catalog was noted before: else nobody says that it was ever ours.

    Args:
        catalog: its configured name.
        catalog_id: which it is now.

    Returns:
        What was noted.

    Raises:
        Transient: scope inbox.
        Broken: the inbox can't be trusted any more.
    """
    before = await catalog_admin.owner_id(catalog)
    if before == catalog_id:
        return catalog_id
    owner = catalog_id
    async for row in table_index.tables(catalog):
        found = _owner_of_file(row, before)
        if found not in {None, catalog_id, row.adopt_catalog_id}:
            owner = found or catalog_id
            break
    if owner != before:
        await catalog_admin.record_owner(catalog, owner)
    return owner


def _owner_of_file(row: IndexedTable, recorded: str | None) -> str | None:
    """The `catalog_id` in a file that we wrote, as far as is known."""
    if row.live is not None:
        return row.catalog_id_in_file or recorded
    return row.foreign_catalog_id if row.foreign_catalog_id == recorded else None
