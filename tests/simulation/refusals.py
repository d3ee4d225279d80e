"""Whoever found a table by its name finds it, until the catalog was asked and said that it is not there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sfn.errors import Dropped, NotFound, Unreadable
from sfn.reader.resolve import Resolved

if TYPE_CHECKING:
    from tests.simulation.checker import Checker

REPLICA_LAG = timedelta(seconds=6)


@dataclass(frozen=True, slots=True)
class Cause:
    """What was written just before readers look.

    Attributes:
        asked: when the catalog was asked whose answer was written, if one was.
        by: the identifier whose row wrote it.
    """

    asked: datetime | None = None
    by: tuple[str, ...] | None = None


def check_refusal(
    checker: Checker, reader: tuple[str, tuple[str, ...]], found: Resolved | Unreadable, cause: Cause
) -> None:
    """See that nobody is refused who need not be.

    An answer may be as old as the replicas' lag, and one that is written late older. What was told of alone, and what a
    second catalog has, may be elsewhere than this knows. Where another name's row says what became of a table, the one
    that has its name now is found once its own row was looked at. Where nothing is swept, a table that was renamed and
    of which nobody said so counts as gone by its old name if its new one is not published in time: that is stated.

    Args:
        reader: (place, identifier) of one that reads by name.
        found: what it found.
    """
    place, identifier = reader
    if isinstance(found, Resolved):
        checker.found[reader] = found.document.guid
    elif isinstance(found, Dropped | NotFound) and reader in checker.found:
        uuid = checker.found.pop(reader)
        if cause.by != identifier and not checker.is_live(checker.catalogs[0], identifier, uuid):
            return
        since = checker.there_since(identifier, place)
        is_known = cause.asked is not None and since is not None and cause.asked - since >= REPLICA_LAG
        if is_known and cause.by != identifier and not checker.policies[-1].is_swept:
            checker.stated += 1
        elif is_known and not checker.told and len(checker.catalogs) == 1:
            checker.blame_for_now("refused: name", f"{reader} there since {since}: {found}")


def is_stated(reader: tuple[str, ...], at: datetime, back: datetime) -> bool:
    """The case that can't be promised: the catalog stepped back, and an answer that arrived within the replicas' lag
    still named the abandoned pointer; or a writer of the hint slept across the step.
    """
    return (back <= at and at - back <= REPLICA_LAG) or (reader[0] == "hint" and at <= back)
