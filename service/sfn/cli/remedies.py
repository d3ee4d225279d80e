"""What to do about a dead letter, by its reason."""

from __future__ import annotations

from shlex import quote

from sfn.admin.schemas import DeadLetterModel
from sfn.cli.pages import escape
from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLetterReason


def adopt_command(catalog: str | None, foreign_id: str | None, table: str = "") -> str:
    """The command that takes over the files of another `catalog_id`; where it is not known it is to be filled in."""
    # It is read from a file that somebody else wrote, and pasted into a shell.
    source = "CATALOG_ID" if foreign_id is None else quote(escape(foreign_id))
    return f"sfn adopt {catalog} --from {source} {table}".rstrip()


def remedy_for(letter: DeadLetterModel, foreign_id: str | None = None) -> str:
    """What somebody should do, with the commands to type.

    Args:
        foreign_id: the `catalog_id` in the file that keeps ours from the letter's table.
    """
    replay = f"`sfn dead-letters replay {letter.id}`"
    catalog, table = letter.catalog, encode_identifier(letter.namespace or [], letter.name or "")
    match letter.reason:
        case DeadLetterReason.HELD_DROP:
            return f"look at the catalog; where it is right: `sfn release {catalog}`, or {replay} for this table alone"
        case DeadLetterReason.FOREIGN_CATALOG:
            adopt = f"`{adopt_command(catalog, foreign_id, table)}`"
            return f"{adopt} if the file is ours, or set catalogs.{catalog}.catalog_id, or move one of the two tables"
        case DeadLetterReason.FOREIGN_FILE:
            return f"move the file away, then {replay}"
        case DeadLetterReason.LOCATION_REFUSED:
            settings = f"stores.NAME.prefix or catalogs.{catalog}.allowed_locations"
            return f"set {settings}, or exclude the table; restart the service, then {replay}"
        case DeadLetterReason.PERMANENT:
            return f"mend what the detail says, then {replay}"
        case DeadLetterReason.EXHAUSTED:
            return f"see its last error in the detail and mend that, then {replay}"
        case DeadLetterReason.POISON:
            see = "see the detail and the service's log for why its attempts ended the process, or failed"
            return f"{see}; then {replay}. What ended the process is tried again after 8 h anyway"
        case DeadLetterReason.UNDECODABLE:
            return f"mend the sender, or upgrade the service, then {replay}: the request is decoded again"
        case _:
            return "use the `sfn` of the service's own version: this one does not know the reason"
