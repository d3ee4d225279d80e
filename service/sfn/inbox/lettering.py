"""Dead letters to and from what a database's columns hold: the same in each."""

from __future__ import annotations

from typing import Any

from sfn.inbox.codec import key_of, micros, moment, subject_of
from sfn.inbox.letters import DeadLetter, Status, Wanted
from sfn.words import Reason

COLUMNS = "id, key, sender, reason, detail, attempts, status, opened_at, changed_at, actor"
"""The columns of `parse_letter`."""


def parse_letter(columns: tuple[Any, ...]) -> DeadLetter:
    """The letter of `COLUMNS`."""
    number, key, sender, reason, detail, attempts, status, opened, changed, actor = columns
    return DeadLetter(
        id=number,
        subject=subject_of(key) if key is not None else None,
        sender=sender,
        reason=Reason(reason),
        detail=detail,
        attempts=attempts,
        status=Status(status),
        opened_at=moment(opened),
        changed_at=moment(changed),
        actor=actor,
    )


def conditions(wanted: Wanted) -> dict[str, Any]:
    """What each column of a letter that is wanted is compared with, by the column and the operator."""
    all_of_them: dict[str, Any] = {
        "status =": wanted.status.value if wanted.status is not None else None,
        "catalog =": wanted.catalog,
        "key =": key_of(wanted.table) if wanted.table is not None else None,
        "reason =": wanted.reason.value if wanted.reason is not None else None,
        "sender =": wanted.sender,
        "opened_at <": micros(wanted.before) if wanted.before is not None else None,
        "opened_at >=": micros(wanted.since) if wanted.since is not None else None,
    }
    return {compared: value for compared, value in all_of_them.items() if value is not None}
