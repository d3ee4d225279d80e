"""The concurrency groups in PostgreSQL, each with a number that never changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sfn.domain.jobs import ConcurrencyGroup, Priority
from sfn.inbox.postgres.tables.values import Sql


class KnownGroups:
    """The committed groups that the transactions of a process have read."""

    def __init__(self) -> None:
        self.numbers: dict[ConcurrencyGroup, int] = {}

    def forget(self) -> None:
        """Forget the numbers: another server may answer now, and lack some of them."""
        self.numbers = {}


class GroupNumbers:
    """The groups as one transaction sees them.

    Args:
        common: the known groups; `keep` adds to them.
    """

    def __init__(self, common: KnownGroups) -> None:
        self._common = common.numbers
        self.known: dict[ConcurrencyGroup, int] = dict(common.numbers)
        self._names: dict[int, ConcurrencyGroup] = {}

    def of(self, number: int) -> ConcurrencyGroup:
        if number not in self._names:
            self._names = {number: lane for lane, number in self.known.items()}
        return self._names[number]

    def learn(self, found: Iterable[tuple[int, str, str, str]]) -> bool:
        """Add groups by their numbers; return whether there were any."""
        learnt = {
            ConcurrencyGroup(catalog, store, Priority(urgency)): number for number, catalog, store, urgency in found
        }
        self.known |= learnt
        return bool(learnt)

    async def numbered(self, sql: Sql, lanes: Collection[ConcurrencyGroup]) -> dict[ConcurrencyGroup, int]:
        """Return the numbers of groups; insert missing groups."""
        missing = sorted(lane for lane in lanes if lane not in self.known)
        if missing:
            await sql.execute(
                "INSERT INTO sfn.lane(catalog, store, urgency) "
                "SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) "
                "ON CONFLICT DO NOTHING",
                [lane.catalog for lane in missing],
                [lane.store for lane in missing],
                [lane.priority.value for lane in missing],
            )
            found = await sql.fetch(
                "SELECT id, catalog, store, urgency FROM sfn.lane WHERE NOT id = ANY($1)", list(self.known.values())
            )
            self.learn((number, *lane) for number, *lane in found)
        return {lane: self.known[lane] for lane in lanes}

    def keep(self) -> None:
        """Add the groups to the known ones, because the transaction is committed."""
        self._common |= self.known
