"""Due jobs by concurrency group, so that a group without capacity is never read."""

from __future__ import annotations

from datetime import datetime

from sfn.domain.jobs import Capacity, ConcurrencyGroup
from sfn.inbox.codec import from_micros, to_micros
from sfn.inbox.scheduling import fair_order, rotate
from sfn.inbox.sqlite.rows import SqliteJobs


class DueRows:
    """What waits in the lanes of one connection: read only."""

    def __init__(self, rows: SqliteJobs) -> None:
        self._rows = rows
        self._turn = 0

    def due(self, slots: Capacity, now: datetime) -> list[tuple[ConcurrencyGroup, str]]:
        """Keys of due rows, in turn over the lanes, within the slots."""
        query = (
            "SELECT key FROM subject WHERE lane = ? AND state = 'queued' AND due_at <= ? ORDER BY due_at, key LIMIT ?"
        )
        lanes = self._rows.lanes()
        self._turn = (self._turn + 1) % max(1, len(lanes))
        waiting = [
            (lane, self._rows.select(query, (lanes[lane], to_micros(now), free)))
            for lane in rotate(lanes, self._turn)
            if (free := slots.available_in(lane))
        ]
        return [(lane, key) for lane, (key,) in fair_order(waiting, slots)]

    def oldest(self, now: datetime) -> dict[str, datetime]:
        queries = (
            "SELECT min(due_at) FROM subject WHERE lane = ? AND state = 'queued'",
            "SELECT min(waits_since) FROM subject WHERE lane = ? AND waits_since IS NOT NULL",
        )
        oldest: dict[str, datetime] = {}
        lanes = [(lane, number) for lane, number in self._rows.lanes().items() if lane.is_event_driven]
        for query in queries:
            for lane, number in lanes:
                ((at,),) = self._rows.select(query, (number,))
                if at is not None and at <= to_micros(now):
                    oldest[lane.catalog] = min(from_micros(at), oldest.get(lane.catalog, now))
        return oldest

    def run_out(self, now: datetime | None) -> list[str]:
        """Return the keys of jobs with an expired lease; of every leased job for None."""
        if now is None:
            found = self._rows.select("SELECT key FROM subject WHERE state = 'leased'")
        else:
            query = "SELECT key FROM subject WHERE state = 'leased' AND lease_until <= ?"
            found = self._rows.select(query, (to_micros(now),))
        return [key for (key,) in found]

    def next(self, slots: Capacity) -> datetime | None:
        """When the next row falls due in a lane that has slots, or a lease runs out."""
        query = "SELECT min(due_at) FROM subject WHERE lane = ? AND state = 'queued'"
        found = [
            self._rows.select(query, (number,))
            for lane, number in self._rows.lanes().items()
            if slots.available_in(lane)
        ]
        found.append(self._rows.select("SELECT min(lease_until) FROM subject WHERE state = 'leased'"))
        moments = [at for ((at,),) in found if at is not None]
        return from_micros(min(moments)) if moments else None
