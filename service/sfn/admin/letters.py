"""Dead letters as operators see them, as JSON; times are RFC 3339, in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from sfn.admin.answer import Answer, Identified
from sfn.inbox.letters import Audited, DeadLetter
from sfn.words import Reason, Undecodable


class Letter(Identified):
    """A dead letter."""

    id: int
    status: str
    reason: Reason
    sender: str | None
    detail: str
    cause: str = Field(description="what is wrong, without the table: letters of one outage have one cause")
    attempts: int
    opened_at: datetime
    changed_at: datetime
    actor: str | None = Field(description="who replayed or discarded it")

    @classmethod
    def of(cls, letter: DeadLetter) -> Letter:
        """The answer of a letter."""
        return cls.model_validate(_letter(letter))


class Request(Answer):
    """A request that nobody understood."""

    path: str
    content_type: str | None
    size: int = Field(description="bytes of the whole body; at most the first 65,536 are kept")
    body: str


class LetterInFull(Letter):
    """A dead letter, with the request that it is about."""

    event: Request | None
    foreign_id: str | None = Field(description="the catalog_id of the file that keeps ours from the table's place now")

    @classmethod
    def with_event(cls, letter: DeadLetter, event: Undecodable | None, foreign_id: str | None) -> LetterInFull:
        """The answer of a letter, its request, and what its table's row knows."""
        request = None
        if event is not None:
            body = event.body.decode(errors="replace")
            request = Request(path=event.path, content_type=event.content_type, size=event.size, body=body)
        return cls.model_validate({**_letter(letter), "event": request, "foreign_id": foreign_id})


class Letters(Answer):
    """A page of dead letters, by id."""

    dead_letters: Sequence[Letter]
    next: int | None = Field(description="`after` of the next page; null at the end")


class Unreplayed(Answer):
    """A letter that could not be replayed."""

    id: int
    why: str


class Replayed(Answer):
    """What became of a batch of replays."""

    replayed: int
    failed: Sequence[Unreplayed]
    passed: Sequence[int] = Field(description="of the ids that were named, those that are no open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class Discarded(Answer):
    """What became of a batch of letters."""

    discarded: int
    passed: Sequence[int] = Field(description="of the ids that were named, those that are no open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class Entry(Answer):
    """An order that was carried out."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    count: int

    @classmethod
    def of(cls, entry: Audited) -> Entry:
        """The answer of an entry."""
        return cls(
            id=entry.id, at=entry.at, actor=entry.actor, action=entry.action, subject=entry.about, count=entry.count
        )


class Audit(Answer):
    """A page of the audit log, the newest first."""

    entries: Sequence[Entry]
    next: int | None = Field(description="`before` of the next page; null at the end")


def _letter(letter: DeadLetter) -> dict[str, object]:
    return {
        **Identified.fields(letter.subject),
        "id": letter.id,
        "status": letter.status.value,
        "reason": letter.reason,
        "sender": letter.sender,
        "detail": letter.detail,
        "cause": letter.cause,
        "attempts": letter.attempts,
        "opened_at": letter.opened_at,
        "changed_at": letter.changed_at,
        "actor": letter.actor,
    }
