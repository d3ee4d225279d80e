"""A table's location changed, for which PyIceberg has no verb."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate, TableUpdate


def relocate(table: Table, location: str, *others: TableUpdate) -> None:
    """Commit another location; files stay where they are.

    Args:
        others: what is changed with it.
    """
    with table.transaction() as change:
        change._apply((SetLocationUpdate(location=location), *others))  # noqa: SLF001 - as `SET LOCATION` does it
