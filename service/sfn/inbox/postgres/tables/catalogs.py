"""The state of whole catalogs in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from hashlib import sha256

from sfn.inbox.codec import decode_key, encode_key, namespaces_column, parse_sweep, to_micros
from sfn.inbox.model import LastSweep
from sfn.inbox.postgres.tables.values import Sql, text_or_none
from sfn.inbox.statistics import NamedTable


class CatalogTable:
    """Implements `CatalogStore`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def lock(self, catalog: str) -> None:
        await self._sql.execute("INSERT INTO sfn.catalog(name) VALUES($1) ON CONFLICT DO NOTHING", catalog)
        await self._sql.fetch("SELECT FROM sfn.catalog WHERE name = $1 FOR UPDATE", catalog)

    async def tripped(self) -> frozenset[str]:
        found = await self._sql.fetch("SELECT name FROM sfn.catalog WHERE tripped")
        return frozenset(name for (name,) in found)

    async def trip(self, catalog: str, *, tripped: bool) -> None:
        await self._note("tripped", catalog, tripped)

    async def has_step(self, catalog: str, text: str, since: datetime) -> bool:
        found = await self._sql.fetch(
            "SELECT FROM sfn.permit WHERE catalog = $1 AND step = $2 AND at > $3",
            catalog,
            _digest(text),
            to_micros(since),
        )
        return bool(found)

    async def count_steps(self, catalog: str, since: datetime) -> int:
        ((count,),) = await self._sql.fetch(
            "SELECT count(*) FROM sfn.permit WHERE catalog = $1 AND at > $2", catalog, to_micros(since)
        )
        return int(count)

    async def drops(self, catalog: str, since: datetime) -> list[NamedTable]:
        found = await self._sql.fetch(
            "SELECT dropped, uuid, renamed FROM sfn.permit WHERE catalog = $1 AND at > $2 AND dropped IS NOT NULL",
            catalog,
            to_micros(since),
        )
        return [NamedTable(decode_key(key), uuid, bool(renamed)) for key, uuid, renamed in found]

    async def add_step(self, catalog: str, step: str, now: datetime, drop: NamedTable | None) -> None:
        await self._sql.execute(
            "INSERT INTO sfn.permit(catalog, step, at, dropped, uuid, renamed) VALUES($1, $2, $3, $4, $5, $6)",
            catalog,
            _digest(step),
            to_micros(now),
            encode_key(drop.name) if drop is not None else None,
            text_or_none(drop.uuid) if drop is not None else None,
            drop.is_renamed if drop is not None else None,
        )

    async def forget_steps(self, catalog: str, until: datetime | None = None) -> None:
        last = 2**63 - 1 if until is None else to_micros(until)
        await self._sql.execute("DELETE FROM sfn.permit WHERE catalog = $1 AND at <= $2", catalog, last)

    async def swept_at(self, catalogs: Collection[str]) -> dict[str, LastSweep]:
        found = await self._sql.fetch(
            "SELECT name, swept_at, withheld FROM sfn.catalog WHERE name = ANY($1) AND swept_at IS NOT NULL",
            list(catalogs),
        )
        return {name: parse_sweep(began, withheld) for name, began, withheld in found}

    async def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        await self._note("swept_at", catalog, to_micros(sweep.started_at))
        await self._note("withheld", catalog, namespaces_column(sweep.unlisted_namespaces))

    async def retire(self, catalog: str, *, retired: bool) -> None:
        await self._note("retired", catalog, retired)

    async def retired_catalogs(self) -> frozenset[str]:
        found = await self._sql.fetch("SELECT name FROM sfn.catalog WHERE retired")
        return frozenset(name for (name,) in found)

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        await self._note("catalog_id", catalog, catalog_id)

    async def owner_id(self, catalog: str) -> str | None:
        found = await self._sql.fetch("SELECT catalog_id FROM sfn.catalog WHERE name = $1", catalog)
        return next((catalog_id for (catalog_id,) in found), None)

    async def _note(self, column: str, catalog: str, value: object) -> None:
        await self._sql.execute(
            f"INSERT INTO sfn.catalog(name, {column}) VALUES($1, $2) "
            f"ON CONFLICT (name) DO UPDATE SET {column} = excluded.{column}",
            catalog,
            value,
        )


def _digest(step: str) -> bytes:
    """Return the digest of a step, because the text of a step is too long for an index."""
    return sha256(step.encode(errors="replace")).digest()
