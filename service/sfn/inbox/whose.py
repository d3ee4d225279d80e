"""Whose a catalog's files are once its address has changed: what the rows say of it, remembered across starts."""

from __future__ import annotations

from sfn.inbox import Roster
from sfn.inbox.desk import Custody
from sfn.words import Known


async def owner_noted(catalog: str, catalog_id: str, custody: Custody, roster: Roster) -> str:
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
    before = await custody.owner(catalog)
    if before == catalog_id:
        return catalog_id
    owner = catalog_id
    async for known in roster.known(catalog):
        found = _written_for(known, before)
        if found not in {None, catalog_id, known.adopts}:
            owner = found or catalog_id
            break
    if owner != before:
        await custody.own(catalog, owner)
    return owner


def _written_for(known: Known, noted: str | None) -> str | None:
    """The `catalog_id` in a file that we wrote, as far as is known."""
    if known.live is not None:
        return known.carried or noted
    return known.foreign_id if known.foreign_id == noted else None
