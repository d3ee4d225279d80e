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

from sfn.gateway.recognise import Change, Kind
from sfn.words import Birth, CatalogName, Hint, TableName

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def is_known(status: int) -> bool:
    """Whether an answer says what became of the change."""
    return is_news(status) or status in _REFUSED


def is_done(status: int) -> bool:
    """Whether the change was made."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def is_news(status: int) -> bool:
    """Whether its tables are to be looked at because of it."""
    return is_done(status) or status == HTTPStatus.NOT_FOUND


def hints(
    change: Change, named: Sequence[TableName], catalog: str, sender: str, floor: str | None, said: bytes
) -> list[Hint]:
    """What an answer that is news tells.

    Args:
        change: what was asked for.
        named: its tables, as of `naming.tables`; none where they can't be told.
        catalog: our name of the catalog.
        sender: the gateway.
        floor: metadata location in the answer.
        said: for whoever asks what was told of a table last.
    """
    # Several readings of one path; the bodies of renames and transactions name tables level by level.
    guessed = len(named) > 1 and change.kind not in {Kind.RENAME, Kind.TRANSACTION}
    if not named:
        return [Hint(CatalogName(catalog), sender, body=said)]
    match change.kind:
        case Kind.CREATE | Kind.REGISTER:
            birth = Birth.CREATE if change.kind is Kind.CREATE else Birth.REGISTER
            return [Hint(name, sender, floor=floor, birth=birth, guessed=guessed, body=said) for name in named]
        case Kind.DROP | Kind.UNREGISTER:
            return [Hint(name, sender, drop=True, purge=change.purge, guessed=guessed, body=said) for name in named]
        case Kind.RENAME:
            old, new = named[0], named[-1]
            return [Hint(old, sender, renamed_to=new, body=said), Hint(new, sender, renamed_from=old, body=said)]
        case Kind.COMMIT | Kind.TRANSACTION | Kind.NAMESPACE | Kind.NOTIFICATION | Kind.RESTORE:
            return [Hint(name, sender, floor=floor, guessed=guessed, body=said) for name in named]
    assert_never(change.kind)
