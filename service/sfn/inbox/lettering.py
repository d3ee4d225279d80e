"""Dead letters to and from what a database's columns hold: the same in each."""

from __future__ import annotations

from typing import Any

from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.codec import decode_key, encode_key, from_micros, to_micros
from sfn.inbox.letters import DeadLetter, DeadLetterFilter, DeadLetterStatus

DEAD_LETTER_COLUMNS = "id, key, sender, reason, detail, attempts, status, opened_at, changed_at, actor"
"""The columns of `parse_letter`."""


def parse_dead_letter(columns: tuple[Any, ...]) -> DeadLetter:
    """The letter of `DEAD_LETTER_COLUMNS`."""
    number, key, sender, reason, detail, attempts, status, opened, changed, actor = columns
    return DeadLetter(
        id=number,
        subject=decode_key(key) if key is not None else None,
        sender=sender,
        reason=DeadLetterReason(reason),
        detail=detail,
        attempts=attempts,
        status=DeadLetterStatus(status),
        opened_at=from_micros(opened),
        changed_at=from_micros(changed),
        actor=actor,
    )


def dead_letter_conditions(letter_filter: DeadLetterFilter) -> dict[str, Any]:
    """What each column of a letter that is wanted is compared with, by the column and the operator."""
    all_of_them: dict[str, Any] = {
        "status =": letter_filter.status.value if letter_filter.status is not None else None,
        "catalog =": letter_filter.catalog,
        "key =": encode_key(letter_filter.table) if letter_filter.table is not None else None,
        "reason =": letter_filter.reason.value if letter_filter.reason is not None else None,
        "sender =": letter_filter.sender,
        "opened_at <": to_micros(letter_filter.opened_before) if letter_filter.opened_before is not None else None,
        "opened_at >=": to_micros(letter_filter.opened_since) if letter_filter.opened_since is not None else None,
    }
    return {compared: value for compared, value in all_of_them.items() if value is not None}
