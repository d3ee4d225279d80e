"""Values of the inbox to and from what SQLite's columns hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from sfn.inbox.row import Row, State
from sfn.inbox.standing import Said
from sfn.words import CatalogName, Memo, Published, Reason, Story, Subject, TableName, Wish

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Tagged:
    """Of a memo, the entity tag alone: the rest is skipped, not decoded."""

    etag: str | None = None


encode = msgspec.json.Encoder(order="deterministic").encode
_wish = msgspec.json.Decoder(Wish).decode
_story = msgspec.json.Decoder(Story).decode
_said = msgspec.json.Decoder(Said).decode
_memo = msgspec.json.Decoder(Memo).decode
_tagged = msgspec.json.Decoder(_Tagged).decode
_key = msgspec.json.Decoder(list[str]).decode
_EMPTY_WISH, _EMPTY_STORY, _EMPTY_MEMO = Wish(), Story(), Memo()


def micros(at: datetime) -> int:
    """Unix microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def micros_or_none(at: datetime | None) -> int | None:
    """Unix microseconds of a moment that may be missing."""
    return (at - _EPOCH) // _MICROSECOND if at is not None else None


def moment(at: int) -> datetime:
    """The moment of Unix microseconds."""
    return _EPOCH + timedelta(microseconds=at)


def moment_or_none(at: int | None) -> datetime | None:
    """The moment of Unix microseconds that may be missing."""
    return _EPOCH + timedelta(microseconds=at) if at is not None else None


def key_of(subject: Subject) -> str:
    """A subject's key: a JSON array of catalog, levels and name; of the catalog alone for a catalog."""
    if isinstance(subject, CatalogName):
        return encode([subject.catalog]).decode()
    return encode([subject.catalog, *subject.namespace, subject.name]).decode()


def subject_of(key: str) -> Subject:
    """The subject of a key."""
    catalog, *rest = _key(key)
    return TableName(catalog, tuple(rest[:-1]), rest[-1]) if rest else CatalogName(catalog)


def keys_of_tables(catalog: str) -> tuple[str, str]:
    """The keys of a catalog's tables lie between these two."""
    start = encode([catalog]).decode().removesuffix("]")
    return f"{start},", f"{start}-"


ROW = (
    "state, due_at, not_before, seq, done_seq, token, lease_until, attempt, crashes, failing_since, reason, "
    "said, wish, story, (SELECT memo FROM memo WHERE memo.key = subject.key)"
)
"""The columns of `parse_row`."""


def parse_row(key: str, columns: tuple[Any, ...], locations: frozenset[str]) -> Row:
    """The row of `ROW`."""
    state, due, before, seq, done, token, lease, attempt, crashes, since, reason, said, wish, story, memo = columns
    return Row(
        subject=subject_of(key),
        due_at=moment(due),
        state=State(state),
        not_before=moment_or_none(before),
        seq=seq,
        done_seq=done,
        token=token,
        lease_until=moment_or_none(lease),
        attempt=attempt,
        crashes=crashes,
        failing_since=moment_or_none(since),
        reason=Reason(reason) if reason is not None else None,
        said=_said(said) if said is not None else None,
        wish=parse_wish(wish),
        locations=locations,
        story=parse_story(story),
        memo=_memo(memo) if memo is not None else _EMPTY_MEMO,
    )


def parse_wish(column: bytes | None) -> Wish:
    """The wish of its column."""
    return _wish(column) if column is not None else _EMPTY_WISH


def parse_story(column: bytes | None) -> Story:
    """The story of its column."""
    return _story(column) if column is not None else _EMPTY_STORY


def parse_etag(column: bytes | None) -> str | None:
    """The entity tag in a memo's column."""
    return _tagged(column).etag if column is not None else None


def plain_columns(row: Row) -> list[Any]:
    """What no index holds: `not_before, seq, done_seq, token, attempt, crashes, failing_since`."""
    before, since = micros_or_none(row.not_before), micros_or_none(row.failing_since)
    return [before, row.seq, row.done_seq, row.token, row.attempt, row.crashes, since]


def state_columns(row: Row) -> list[Any]:
    """`state, due_at, lease_until, reason`."""
    reason = row.reason.value if row.reason is not None else None
    return [row.state.value, micros(row.due_at), micros_or_none(row.lease_until), reason]


def live_columns(live: Published | None) -> list[Any]:
    """`live_uuid, live_location`."""
    return [live.uuid, live.location] if live is not None else [None, None]


def wish_column(wish: Wish) -> bytes | None:
    """A wish, None for an empty one."""
    return encode(wish) if wish != _EMPTY_WISH else None


def story_column(story: Story) -> bytes | None:
    """A story, None for an empty one."""
    return encode(story) if story != _EMPTY_STORY else None


def said_column(said: Said | None) -> bytes | None:
    """How a claim ended, None for a row that had none."""
    return encode(said) if said is not None else None


def memo_column(memo: Memo) -> bytes | None:
    """A memo, None for an empty one."""
    return encode(memo) if memo != _EMPTY_MEMO else None
