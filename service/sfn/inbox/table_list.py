"""Lists of tables for operators: a page of the tables in some states, or of those that wait the longest.

A page takes about the same time among a hundred tables and among a million: each list follows an index, and a page ends
after `SCAN_SIZE` rows, whether or not it is full. It then says where the next one begins.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import msgspec

from sfn.domain.identifiers import TableIdentifier
from sfn.inbox.dead_letters import LETTER_COLUMNS, read_letter
from sfn.inbox.model import DeadLetter, Job
from sfn.inbox.schema import decode_job, table_key_range, to_micros
from sfn.inbox.transaction import Query, Row, Transaction

ALWAYS: Final = datetime.max.replace(tzinfo=UTC)
SCAN_SIZE: Final = 5_000
"""Most rows of an index that one page reads."""
MAX_PAGE: Final = 1_000
"""Most tables of a page."""

_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


_BY_NAME: Final = "SELECT 0, key, stat_state FROM sfn.job WHERE key > $1 AND key < $2{} ORDER BY key LIMIT $3"
_INDEXED: Final = " AND stat_state IN ('retrying', 'dead', 'held')"
"""In the words of the index `job_unwell`."""
INDEXED_STATES: Final = frozenset({"retrying", "dead", "held"})


class TableOrder(StrEnum):
    """The order of a list.

    name  by catalog, namespace and name
    lag   the longest wait first; only tables that wait
    """

    NAME = "name"
    LAG = "lag"


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Which tables a list has.

    Attributes:
        catalogs: their catalogs.
        order: the order of the list.
        states: their states, some of `sfn.inbox.STAT_STATES`; empty for all.
        waiting_since: in a list by lag, only tables that wait since then or longer.
        namespace: the first levels of their namespaces.
        matches: returns True for the names to list; None for all.
    """

    catalogs: tuple[str, ...]
    order: TableOrder = TableOrder.NAME
    states: frozenset[str] = frozenset()
    waiting_since: datetime = ALWAYS
    namespace: tuple[str, ...] = ()
    matches: Callable[[TableIdentifier], bool] | None = None


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ends.

    Attributes:
        key: key of the last row.
        waiting_since: of the last row, in Unix microseconds; in a list by lag.
    """

    key: str = ""
    waiting_since: int = 0


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table of a list.

    Attributes:
        job: its job, without the cache.
        letter: its open dead letter.
    """

    job: Job
    letter: DeadLetter | None = None


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of a list.

    Attributes:
        tables: the tables.
        next: where the next page begins; None at the end of the list.
    """

    tables: list[ListedTable]
    next: Position | None = None


async def list_tables(transaction: Transaction, query: TableQuery, after: Position, limit: int) -> TablePage:
    """Return the tables of a list after a position: at most `limit`, and those found in `SCAN_SIZE` rows."""
    keys: list[str] = []
    position, size, left = after, limit + 1, SCAN_SIZE
    while left:
        size = min(size, left)
        rows = await _rows(transaction, query, position, size)
        for waiting_since, key, state in rows:
            if len(keys) == limit:
                return TablePage(await _read(transaction, keys, query), position)
            position = Position(key, waiting_since)
            if _is_wanted(query, key, state):
                keys.append(key)
        if len(rows) < size:
            return TablePage(await _read(transaction, keys, query))
        left -= size
        size *= 4
    return TablePage(await _read(transaction, keys, query), position)


async def _rows(transaction: Transaction, query: TableQuery, after: Position, size: int) -> Sequence[Row]:
    """Return rows of the list's index after a position, at most `size`: the start of a wait, a key and a state."""
    if query.order is TableOrder.LAG:
        found = await transaction.fetch_all([_by_lag(catalog, query, after, size) for catalog in query.catalogs])
        return list(islice(heapq.merge(*map(_as_tuples, found)), size))
    rows: list[Row] = []
    has_index = query.states and query.states <= INDEXED_STATES
    text = _BY_NAME.format(_INDEXED if has_index else "")
    for start, end in sorted(table_key_range(catalog, query.namespace) for catalog in query.catalogs):
        if len(rows) < size and after.key < end:
            rows += await transaction.fetch(text, max(start, after.key), end, size - len(rows))
    return rows


def _by_lag(catalog: str, query: TableQuery, after: Position, size: int) -> Query:
    return Query(
        "SELECT waiting_since, key, stat_state FROM sfn.job WHERE catalog = $1 AND waiting_since IS NOT NULL "
        "AND waiting_since <= $2 AND (waiting_since, key) > ($3, $4) ORDER BY waiting_since, key LIMIT $5",
        (catalog, to_micros(query.waiting_since), after.waiting_since, after.key, size),
    )


def _as_tuples(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def _is_wanted(query: TableQuery, key: str, state: str) -> bool:
    if not state or (query.states and state not in query.states):
        return False
    if query.matches is None and not query.namespace:
        return True
    try:
        catalog, *namespace, name = _decode_names(key)
    except msgspec.DecodeError:
        # The key of a very long name is cut: its job has the name.
        return True
    table = TableIdentifier(catalog, tuple(namespace), name)
    return _has_name(query, table)


def _has_name(query: TableQuery, table: TableIdentifier) -> bool:
    inside = table.namespace[: len(query.namespace)] == query.namespace
    return inside and (query.matches is None or query.matches(table))


async def _read(transaction: Transaction, keys: Sequence[str], query: TableQuery) -> list[ListedTable]:
    """Return the tables with these keys, in their order, with their open letters."""
    jobs, letters = await transaction.fetch_all(
        [
            Query("SELECT key, record FROM sfn.job WHERE key = ANY($1::text[])", (list(keys),)),
            Query(
                f"SELECT key, {LETTER_COLUMNS} FROM sfn.dead_letter WHERE status = 'open' AND key = ANY($1::text[])",
                (list(keys),),
            ),
        ]
    )
    by_key = {key: decode_job(record) for key, record in jobs}
    letter_of = {key: read_letter(row) for key, *row in letters}
    found = [ListedTable(by_key[key], letter_of.get(key)) for key in keys if key in by_key]
    return [one for one in found if isinstance(one.job.subject, TableIdentifier) and _has_name(query, one.job.subject)]
