"""What an operator can do about a dead letter, with the commands."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLetterReason

if TYPE_CHECKING:
    from sfn.admin.schemas import DeadLetterModel


def adopt_command(catalog: str | None, foreign_id: str | None, table: str = "") -> str:
    """Return the command that takes over files of another `catalog_id`, with a placeholder if that is unknown."""
    # The id comes from a foreign file and is pasted into a shell.
    source = "CATALOG_ID" if foreign_id is None else quote(foreign_id)
    return f"sfn adopt {catalog} --from {source} {table}".rstrip()


def remedy_for(letter: DeadLetterModel, foreign_id: str | None = None) -> str:
    """Return what an operator can do about a dead letter, with the commands.

    Args:
        letter: the dead letter.
        foreign_id: the `catalog_id` in the foreign file at the table's place; None if unknown.
    """
    replay = f"`sfn dead-letters replay {letter.id}`"
    catalog, table = letter.catalog, encode_identifier(letter.namespace or [], letter.name or "")
    match letter.reason:
        case DeadLetterReason.HELD_DROP:
            return (
                f"if {catalog} lost the table, restore it there; if it was dropped on purpose, {replay} drops "
                f"this one, and `sfn release {catalog}` all held ones"
            )
        case DeadLetterReason.FOREIGN_CATALOG:
            adopt = f"`{adopt_command(catalog, foreign_id, table)}`"
            return (
                f"{adopt} if the file is this catalog's, or set catalogs.{catalog}.catalog_id, "
                "or move one of the two tables"
            )
        case DeadLetterReason.FOREIGN_FILE:
            return f"inspect the file, then move or delete it; then {replay}"
        case DeadLetterReason.LOCATION_REFUSED:
            settings = f"stores.NAME.prefix or catalogs.{catalog}.allowed_locations"
            return f"set {settings}, or exclude the table; restart the service, then {replay}"
        case DeadLetterReason.PERMANENT:
            return f"fix the problem in the detail, then {replay}"
        case DeadLetterReason.EXHAUSTED:
            return f"fix the last error, which the detail shows, then {replay}"
        case DeadLetterReason.POISON:
            see = "see the detail and the service's log for why its attempts failed or ended the process"
            return f"{see}; then {replay}. A table that ended the process is tried again after 8 h in any case"
        case DeadLetterReason.UNDECODABLE:
            return f"fix the sender, or upgrade the service, then {replay}: the request is decoded again"
        case _:
            return "use the `sfn` of the service's own version: this one does not know the reason"
