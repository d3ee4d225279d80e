"""The table index in SQLite: queries over the jobs of all tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import IndexedTable
from sfn.inbox.codec import decode_key, from_micros, parse_indexed_table, table_key_range
from sfn.inbox.sqlite.jobs import SqliteJobs
from sfn.inbox.statistics import MissingTableStats
from sfn.sfnfile.naming import encoded_range, layout_location

_KNOWN = "SELECT key, reason, wish, story, (SELECT memo FROM memo WHERE memo.key = subject.key) AS memo FROM subject"

_OLD_NAMES = (
    "SELECT count(*) FROM subject AS row WHERE catalog = ? AND renamed AND live_uuid != '' AND EXISTS ("
    "SELECT 1 FROM subject AS other WHERE other.catalog = row.catalog AND other.live_uuid = row.live_uuid "
    "AND other.key != row.key AND (other.renamed IS NULL OR other.key < row.key))"
)
"""Number of live files under old names of renamed tables, by the rule of `statistics.without_old_names`."""


class IndexQueries:
    """Queries on one connection, see `sfn.inbox.TableIndex`."""

    def __init__(self, rows: SqliteJobs) -> None:
        self._rows = rows

    def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, IndexedTable]]:
        """Return a page of a catalog's tables with keys greater than `after`, in order, each with its key."""
        query = f"{_KNOWN} WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
        start, end = table_key_range(catalog)
        return _known(self._rows.select(query, (max(start, after), end, limit)))

    def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        """Return the tables with this uuid in their live file, by name."""
        query = f"{_KNOWN} WHERE catalog = ? AND live_uuid = ?"
        found = [known for _, known in _known(self._rows.select(query, (catalog, uuid)))]
        return sorted(found, key=lambda known: known.table)

    def live_at(self, catalog: str, site: str) -> list[tuple[TableIdentifier, str | None]]:
        """Return the tables with a live file at the location of a layout, each with its uuid."""
        query = "SELECT key, live_uuid FROM subject WHERE catalog = ? AND live_location = ? ORDER BY key"
        return [
            (subject, uuid)
            for key, uuid in self._rows.select(query, (catalog, layout_location(site)))
            if isinstance(subject := decode_key(key), TableIdentifier)
        ]

    def visitors(self, catalog: str, location: str) -> list[TableIdentifier]:
        """Return the tables that may have a file at a location, live or not."""
        query = (
            "SELECT DISTINCT l.key FROM location l JOIN subject s ON s.key = l.key "
            "WHERE (l.location = ? OR (l.location > ? AND l.location < ?)) AND s.catalog = ?"
        )
        return sorted(_names(self._rows.select(query, (location, *encoded_range(location), catalog))))

    def live_count(self, catalog: str, most: int | None = None) -> int:
        """Return how many tables have a live file, at most `most`, because counting many tables takes long."""
        ((old,),) = self._rows.select(_OLD_NAMES, (catalog,))
        query = "SELECT count(*) FROM (SELECT 1 FROM subject WHERE catalog = ? AND live_location IS NOT NULL LIMIT ?)"
        ((count,),) = self._rows.select(query, (catalog, -1 if most is None else most + old))
        return int(count - old)

    def without_file(self, keys: Collection[str]) -> int:
        """Return how many of these keys have no job with a live file."""
        marks = ", ".join("?" * len(keys))
        query = f"SELECT count(*) FROM subject WHERE key IN ({marks}) AND live_location IS NOT NULL"
        ((count,),) = self._rows.select(query, tuple(keys))
        return len(keys) - int(count)

    def missing(self) -> dict[str, MissingTableStats]:
        query = (
            "SELECT catalog, count(*), min(missing_since) FROM subject WHERE missing_since IS NOT NULL GROUP BY catalog"
        )
        return {
            catalog: MissingTableStats(count, from_micros(since)) for catalog, count, since in self._rows.select(query)
        }


def _known(found: Iterable[tuple[Any, ...]]) -> list[tuple[str, IndexedTable]]:
    pairs = [(key, decode_key(key), rest) for key, *rest in found]
    return [
        (key, parse_indexed_table(table, *rest)) for key, table, rest in pairs if isinstance(table, TableIdentifier)
    ]


def _names(keys: Iterable[tuple[Any, ...]]) -> list[TableIdentifier]:
    return [subject for (key,) in keys if isinstance(subject := decode_key(key), TableIdentifier)]
