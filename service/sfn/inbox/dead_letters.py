"""Stored dead letters: how a transaction opens and closes them, and how they are found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Final

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import (
    MAX_UNDECODABLE_PER_SENDER,
    AdminCommand,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    NewDeadLetter,
)
from sfn.inbox.schema import (
    LETTER,
    UNDECODABLE,
    decode_subject,
    encode_key,
    encode_subject,
    from_micros,
    to_micros,
    to_micros_or_none,
)
from sfn.inbox.transaction import Change, Row, Run, Transaction, Upsert, draw

_UPDATE_OPEN: Final = (
    "(key) WHERE status = 'open' AND key IS NOT NULL DO UPDATE SET reason = excluded.reason, "
    "detail = excluded.detail, attempts = excluded.attempts, changed_at = excluded.changed_at"
)


class LetterChanges:
    """The changes of dead letters in one transaction."""

    def __init__(self) -> None:
        self._opened: dict[JobKey, tuple[NewDeadLetter, datetime]] = {}
        self._closed: dict[tuple[DeadLetterStatus, str | None], dict[JobKey, datetime]] = defaultdict(dict)
        self._requests: list[tuple[UndecodableRequest, datetime]] = []

    def open(self, letter: NewDeadLetter, now: datetime) -> None:
        """Open a letter, or update the open letter of the subject."""
        self._opened[letter.subject] = letter, now

    def close(self, subject: JobKey, status: DeadLetterStatus, now: datetime, actor: str | None = None) -> None:
        """Close a subject's open letter, if it has one."""
        self._closed[status, actor][subject] = now

    def keep(self, request: UndecodableRequest, now: datetime) -> None:
        """Open a letter for an undecodable request; a sender with too many loses the oldest one."""
        self._requests.append((request, now))

    async def changes(self, transaction: Transaction) -> list[Change]:
        """Return what to write."""
        changes: list[Change] = []
        if self._opened or self._requests:
            first = await draw(transaction, "dead_letter", len(self._opened) + len(self._requests))
            changes += self._letters_of_requests(first + len(self._opened))
            rows = [
                (
                    *(number, encode_key(one.subject), encode_subject(one.subject), one.subject.catalog, None),
                    *(one.reason.value, one.detail, one.attempts, "open", to_micros(now), to_micros(now), None),
                )
                for number, (one, now) in enumerate(self._opened.values(), start=first)
            ]
            if rows:
                changes.append(Upsert(LETTER, rows, conflict=_UPDATE_OPEN))
        for (status, actor), subjects in self._closed.items():
            at = to_micros(max(subjects.values()))
            changes.append(
                Run(
                    "UPDATE sfn.dead_letter SET status = $1, changed_at = $2, actor = $3 "
                    "WHERE status = 'open' AND key = ANY($4::text[])",
                    (status.value, at, actor, [encode_key(subject) for subject in subjects]),
                )
            )
        return changes

    def _letters_of_requests(self, first: int) -> list[Change]:
        """Return the letters of undecodable requests, numbered from `first`."""
        if not self._requests:
            return []
        by_sender = defaultdict[str, list[tuple[int, UndecodableRequest, int]]](list)
        for number, (request, now) in enumerate(self._requests, start=first):
            by_sender[request.sender].append((number, request, to_micros(now)))
        changes: list[Change] = []
        letters: list[Row] = []
        bodies: list[Row] = []
        reason = DeadLetterReason.UNDECODABLE.value
        for sender, requests in by_sender.items():
            stored = requests[-MAX_UNDECODABLE_PER_SENDER:]
            for number, one, at in stored:
                letters.append((number, None, None, None, sender, reason, one.detail, 0, "open", at, at, None))
                bodies.append((number, one.path, one.content_type, one.size, one.body))
            # The statements of one transaction do not see each other's rows in PostgreSQL.
            old = (
                "(SELECT id FROM sfn.dead_letter WHERE sender = $1 AND id < $2 AND id <= (SELECT id FROM "
                "sfn.dead_letter WHERE sender = $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3::int))"
            )
            values = (sender, requests[0][0], MAX_UNDECODABLE_PER_SENDER - len(stored))
            changes.append(Run(f"DELETE FROM sfn.undecodable WHERE letter IN {old}", values))
            changes.append(Run(f"DELETE FROM sfn.dead_letter WHERE id IN {old}", values))
        return [*changes, Upsert(LETTER, letters), Upsert(UNDECODABLE, bodies)]


LETTER_COLUMNS: Final = "id, subject, sender, reason, detail, attempts, status, opened_at, changed_at, actor"


async def close_letters(
    transaction: Transaction, ids: Collection[int], status: DeadLetterStatus, command: AdminCommand
) -> list[JobKey | None]:
    """Close the open ones of these letters; return their subjects, by id; None for an undecodable request."""
    found = await transaction.fetch(
        "SELECT id, subject FROM sfn.dead_letter WHERE id = ANY($1::bigint[]) AND status = 'open' ORDER BY id",
        sorted(set(ids)),
    )
    if found:
        await transaction.write(
            [
                Run(
                    "UPDATE sfn.dead_letter SET status = $1, changed_at = $2, actor = $3 WHERE id = ANY($4::bigint[])",
                    (status.value, to_micros(command.at), command.actor, [number for number, _ in found]),
                )
            ]
        )
    return [decode_subject(subject) if subject is not None else None for _, subject in found]


async def find_letters(
    transaction: Transaction, letter_filter: DeadLetterFilter, limit: int, after: int | None = None
) -> list[DeadLetter]:
    """Return at most `limit` matching letters: with ids above `after` by id, or the newest first for None."""
    one = letter_filter
    compared = {
        "status =": one.status.value if one.status is not None else None,
        "catalog =": one.catalog,
        "key =": encode_key(one.table) if one.table is not None else None,
        "reason =": one.reason.value if one.reason is not None else None,
        "sender =": one.sender,
        "opened_at <": to_micros_or_none(one.opened_before),
        "opened_at >=": to_micros_or_none(one.opened_since),
        "id >": after,
        "id <": one.id_below,
    }
    conditions = {text: value for text, value in compared.items() if value is not None}
    chosen = " AND ".join(f"{text} ${number}" for number, text in enumerate(conditions, start=2))
    query = (
        f"SELECT {LETTER_COLUMNS} FROM sfn.dead_letter {'WHERE ' * bool(chosen)}{chosen} "
        f"ORDER BY id{' DESC' * (after is None)} LIMIT $1::bigint"
    )
    return [read_letter(row) for row in await transaction.fetch(query, limit, *conditions.values())]


async def letters_with_ids(transaction: Transaction, ids: Collection[int]) -> list[DeadLetter]:
    """Return the dead letters with these ids, by id; unknown ids are ignored."""
    query = f"SELECT {LETTER_COLUMNS} FROM sfn.dead_letter WHERE id = ANY($1::bigint[]) ORDER BY id"
    return [read_letter(row) for row in await transaction.fetch(query, sorted(set(ids)))]


async def request_of(transaction: Transaction, letter_id: int) -> UndecodableRequest | None:
    """Return the undecodable request of a letter; None if there is none."""
    found = await transaction.fetch(
        "SELECT sender, path, content_type, body, size, detail FROM sfn.dead_letter JOIN sfn.undecodable "
        "ON letter = id WHERE id = $1",
        letter_id,
    )
    return UndecodableRequest(*found[0]) if found else None


def read_letter(row: Row) -> DeadLetter:
    """Return the dead letter of a row with `LETTER_COLUMNS`."""
    number, subject, sender, reason, detail, attempts, status, opened, changed, actor = row
    return DeadLetter(
        id=number,
        subject=decode_subject(subject) if subject is not None else None,
        sender=sender,
        reason=DeadLetterReason(reason),
        detail=detail,
        attempts=attempts,
        status=DeadLetterStatus(status),
        opened_at=from_micros(opened),
        changed_at=from_micros(changed),
        actor=actor,
    )


async def prune_letters(transaction: Transaction, before: datetime, most: int) -> int:
    """Delete at most `most` letters that were closed before a time; return their number."""
    found = await transaction.fetch(
        "SELECT id FROM sfn.dead_letter WHERE status <> 'open' AND changed_at < $1 LIMIT $2::bigint",
        to_micros(before),
        most,
    )
    ids = [number for (number,) in found]
    if ids:
        await transaction.write(
            [
                Run("DELETE FROM sfn.undecodable WHERE letter = ANY($1::bigint[])", (ids,)),
                Run("DELETE FROM sfn.dead_letter WHERE id = ANY($1::bigint[])", (ids,)),
            ]
        )
    return len(ids)
