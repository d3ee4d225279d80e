"""Values of the inbox to and from what a database's columns hold: the same in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress
from json import dumps, loads
from operator import is_not
from typing import Any

import msgspec
from msgspec.structs import astuple

from sfn.inbox.row import LastSweep, Row, State, is_renamed, missing_since
from sfn.inbox.standing import Said
from sfn.words import CatalogName, Known, Memo, Reason, Step, Story, Subject, TableName, Wish

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
_texts = msgspec.json.Decoder(frozenset[str]).decode
_EMPTY_WISH, _EMPTY_STORY, _EMPTY_MEMO = Wish(), Story(), Memo()
_NO_WISH = encode(_EMPTY_WISH)


def micros(at: datetime) -> int:
    """Unix microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def micros_or_none(at: datetime | None) -> int | None:
    """Unix microseconds of a moment that may be missing."""
    return (at - _EPOCH) // _MICROSECOND if at is not None else None


def sweep_of(began: int, withheld: str | None) -> LastSweep:
    """The sweep that a catalog's columns tell of."""
    return LastSweep(moment(began), frozenset(loads(withheld)) if withheld is not None else frozenset())


def withheld_text(namespaces: frozenset[str]) -> str | None:
    """What a column holds of the namespaces that a sweep could not list; None for none."""
    return dumps(sorted(namespaces)) if namespaces else None


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


def step_text(subject: Subject, step: Step) -> str:
    """By what a step is known that got the brake's leave."""
    return repr((key_of(subject), step.kind.value, step.uuid, step.pointer))


FIELDS = (
    "state, due_at, not_before, seq, done_seq, told_seq, token, lease_until, attempt, crashes, failing_since, "
    "waits_since, reason, said, wish, story"
)
"""The columns of `parse_row` but for the last one, the memo."""

COUNTED_AS = (
    "CASE WHEN state = 'leased' THEN 'leased' WHEN reason = 'held-drop' THEN 'held' "
    "WHEN reason IS NOT NULL THEN 'dead' WHEN attempt > 0 THEN 'retrying' "
    "WHEN seq > done_seq THEN 'due' ELSE 'scheduled' END"
)
"""`counted_as`, in SQL."""


def parse_row(key: str, columns: tuple[Any, ...], locations: frozenset[str]) -> Row:
    """The row of `FIELDS` and its memo."""
    state, due, before, seq, done, told, token, lease, attempt, crashes, *rest = columns
    since, waits, reason, said, wish, story, memo = rest
    return Row(
        subject=subject_of(key),
        due_at=moment(due),
        state=State(state),
        not_before=moment_or_none(before),
        seq=seq,
        done_seq=done,
        told_seq=told,
        token=token,
        lease_until=moment_or_none(lease),
        attempt=attempt,
        crashes=crashes,
        failing_since=moment_or_none(since),
        waits_since=moment_or_none(waits),
        reason=Reason(reason) if reason is not None else None,
        said=_said(said) if said is not None else None,
        wish=parse_wish(wish),
        locations=locations,
        story=parse_story(story),
        memo=parse_memo(memo),
    )


def parse_wish(column: bytes | None) -> Wish:
    """The wish of its column."""
    return _wish(column) if column is not None else _EMPTY_WISH


def parse_story(column: bytes | None) -> Story:
    """The story of its column."""
    return _story(column) if column is not None else _EMPTY_STORY


def parse_memo(column: bytes | None) -> Memo:
    """The memo of its column."""
    return _memo(column) if column is not None else _EMPTY_MEMO


def parse_etag(column: bytes | None) -> str | None:
    """The entity tag in a memo's column."""
    return _tagged(column).etag if column is not None else None


def parse_known(
    table: TableName, reason: str | None, wish: bytes | None, story: bytes | None, memo: bytes | None
) -> Known:
    """What the roster tells of a row."""
    why = Reason(reason) if reason is not None else None
    now, told = parse_story(story), parse_wish(wish)
    missing, renamed = frozenset(now.absent), told.renamed_to not in {None, table}
    return Known(table, now.live, parse_etag(memo), why, told.floor, now.foreign_id, told.adopts, missing, renamed)


def wish_column(wish: Wish) -> bytes | None:
    """A wish, None for an empty one."""
    encoded = encode(wish)
    return encoded if encoded != _NO_WISH else None


def story_column(story: Story) -> bytes | None:
    """A story, None for an empty one."""
    return encode(story) if story != _EMPTY_STORY else None


def said_column(said: Said | None) -> bytes | None:
    """How a claim ended, None for a row that had none."""
    return encode(said) if said is not None else None


def texts_column(texts: frozenset[str]) -> bytes | None:
    """A set of texts, None for an empty one."""
    return encode(sorted(texts)) if texts else None


def parse_texts(column: bytes | None) -> frozenset[str]:
    """The set of its column."""
    return _texts(column) if column is not None else frozenset()


def memo_column(memo: Memo) -> bytes | None:
    """A memo, None for an empty one."""
    return encode(memo) if memo != _EMPTY_MEMO else None


_ENCODED: Mapping[str, Callable[[Any], Any]] = {
    "state": str,
    "due_at": micros,
    "not_before": micros_or_none,
    "seq": int,
    "done_seq": int,
    "told_seq": lambda seq: seq,
    "token": int,
    "lease_until": micros_or_none,
    "attempt": int,
    "crashes": int,
    "failing_since": micros_or_none,
    "waits_since": micros_or_none,
    "reason": lambda reason: reason.value if reason is not None else None,
    "said": said_column,
    "wish": wish_column,
    "story": story_column,
}
"""How a field of a row is stored in the column of its name."""


def column(row: Row, name: str) -> object:
    """What is stored of a row in the column of that name, which is one of `FIELDS`."""
    return _ENCODED[name](getattr(row, name))


_FIELDS = tuple((name, _ENCODED.get(name)) for name in Row.__struct_fields__)


def columns(row: Row, before: Row | None) -> dict[str, Any]:
    """What to store of a row, by column, but for its key, lane, memo and locations.

    Args:
        before: as it is stored: only what differs is told; None for a row that is not.
    """
    if before is None:
        changed = {name: encoded(getattr(row, name)) for name, encoded in _ENCODED.items()}
    else:
        now, was = astuple(row), astuple(before)
        # Most of it is the very same object, which takes no time to see.
        others = compress(zip(_FIELDS, now, was, strict=True), map(is_not, now, was))
        changed = {name: encoded(new) for (name, encoded), new, old in others if encoded is not None and new != old}
    live = row.story.live
    if before is None or is_renamed(row) != is_renamed(before):
        changed["renamed"] = is_renamed(row) or None
    if "story" in changed:
        changed["missing_since"] = micros_or_none(missing_since(row.story))
    if before is None or (row.story is not before.story and live != before.story.live):
        changed["live_uuid"], changed["live_location"] = (
            (live.uuid, live.location) if live is not None else (None, None)
        )
    return changed
