"""Which of several live documents is the one that a reader was asked for. It never guesses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Final

from sfn.errors import Ambiguous
from sfn.reader.documents import FoundDocument, identifier_text

_MAX_NAMED: Final = 10


def disambiguate(where: str, found: Sequence[FoundDocument]) -> FoundDocument:
    """The one table of which all these documents speak.

    Of one table the newest answer of its catalog counts. So does it of one identifier in one catalog: a table that was
    dropped and made anew lies beside its successor for a moment where files are called by uuid.

    Args:
        where: the folder, for the message.
        found: one live document at least.

    Raises:
        Ambiguous: they speak of several.
    """
    tables = _newest(found, lambda one: one.identity)
    named_alike = _newest(tables, lambda one: (one.doc.namespace, one.doc.name, one.doc.catalog_id))
    if len(named_alike) == 1:
        return named_alike[0]
    names = sorted(_labels(named_alike))
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    raise Ambiguous(
        where,
        expected="one table, or to be told which",
        found=", ".join(names[:_MAX_NAMED]) + more,
        remedy="name the table, or give its uuid",
    )


def _newest(found: Sequence[FoundDocument], key: Callable[[FoundDocument], Hashable]) -> list[FoundDocument]:
    best: dict[Hashable, FoundDocument] = {}
    for one in found:
        if key(one) not in best or _rank(one) > _rank(best[key(one)]):
            best[key(one)] = one
    return list(best.values())


def _rank(found: FoundDocument) -> tuple[datetime, int]:
    """By which the greatest counts: the newest, and of those that led to it the shortest way."""
    return found.doc.as_of, -len(found.via)


def _labels(found: Sequence[FoundDocument]) -> list[str]:
    """Their names, and what else tells them apart where they have one name."""
    names = [identifier_text(one.doc) for one in found]
    if len(set(names)) == len(names):
        return names
    return [f"{identifier_text(one.doc)} ({one.doc.guid or 'no uuid'}, catalog {one.doc.catalog_id})" for one in found]
