"""What the answer to a change says of it: whether its outcome is known, and what is to be looked at. Pure.

| status        | the intent      | the table                                                                        |
|---------------|-----------------|----------------------------------------------------------------------------------|
| 2xx           | closed          | is looked at now                                                                 |
| 400, 401, 403 | closed          | nothing was done                                                                 |
| 404           | closed          | is looked at now: a balancer's second try turns a drop that was done into a 404   |
| any other     | stays open      | is looked at by and by: a 409 may say that the first try still runs              |
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import assert_never

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.gateway.recognise import CatalogChange, ChangeKind

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def is_outcome_known(status: int) -> bool:
    """Whether an answer says what became of the change."""
    return needs_check(status) or status in _REFUSED


def is_success(status: int) -> bool:
    """Whether the change was made."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def needs_check(status: int) -> bool:
    """Whether its tables are to be looked at because of it."""
    return is_success(status) or status == HTTPStatus.NOT_FOUND


def notifications_of(
    change: CatalogChange,
    tables: Sequence[TableIdentifier],
    catalog: str,
    sender: str,
    metadata_location: str | None,
    summary: bytes,
) -> list[Notification]:
    """What an answer that is news tells.

    Args:
        change: what was asked for.
        tables: its tables, as of `naming.tables`; none where they can't be told.
        catalog: our name of the catalog.
        sender: the gateway.
        metadata_location: metadata location in the answer.
        summary: for whoever asks what was told of a table last.
    """
    # Several readings of one path; the bodies of renames and transactions name tables level by level.
    is_guessed = len(tables) > 1 and change.kind not in {ChangeKind.RENAME, ChangeKind.TRANSACTION}
    if not tables:
        return [Notification(CatalogName(catalog), sender, body=summary)]
    match change.kind:
        case ChangeKind.CREATE | ChangeKind.REGISTER:
            origin = TableOrigin.CREATE if change.kind is ChangeKind.CREATE else TableOrigin.REGISTER
            return [
                Notification(
                    name,
                    sender,
                    min_metadata_location=metadata_location,
                    origin=origin,
                    is_guessed=is_guessed,
                    body=summary,
                )
                for name in tables
            ]
        case ChangeKind.DROP | ChangeKind.UNREGISTER:
            return [
                Notification(name, sender, drop=True, purge=change.purge, is_guessed=is_guessed, body=summary)
                for name in tables
            ]
        case ChangeKind.RENAME:
            old, new = tables[0], tables[-1]
            return [
                Notification(old, sender, renamed_to=new, body=summary),
                Notification(new, sender, renamed_from=old, body=summary),
            ]
        case (
            ChangeKind.COMMIT
            | ChangeKind.TRANSACTION
            | ChangeKind.NAMESPACE
            | ChangeKind.NOTIFICATION
            | ChangeKind.RESTORE
        ):
            return [
                Notification(name, sender, min_metadata_location=metadata_location, is_guessed=is_guessed, body=summary)
                for name in tables
            ]
    assert_never(change.kind)
