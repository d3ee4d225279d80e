"""The grants of a catalog's tables: asked for when they are needed, kept in memory until they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from sfn.catalog.refusal import Refused
from sfn.catalog.rest.asking import Asking, Optional
from sfn.catalog.rest.kept import Kept, Lasting
from sfn.catalog.rest.refusals import Reply, is_no_table, of_status, sent
from sfn.catalog.rest.vended import cut_grants, read_grants, secrets_in
from sfn.words import Grant, Missing, TableName

MOST: Final = 4096
"""Tables whose grants are kept, some kilobytes each; the least recently used go."""
UNSAID: Final = 300.0
"""Seconds after which grants are asked for again that do not say when they end. The shortest session that STS gives
lasts 15 minutes, and catalogs give each from a cache until half of it is over (Lakekeeper, Polaris)."""

_EXPECTED: Final = "the table's storage credentials, or a 404 in Iceberg's error shape"
_DELEGATION: Final = {"x-iceberg-access-delegation": "vended-credentials"}
_NO_ENDPOINT: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)
"""How catalogs answer at a path that they do not know; Iceberg's own test server with the first."""


class _NoTable(Refused):
    """The catalog has no such table."""


class Grants:
    """The grants of one catalog's tables.

    Args:
        asking: asks the catalog.
        refs: whether the catalog takes `snapshots=refs`.
        is_gone: whether a reply says that there is no such table.
    """

    def __init__(self, asking: Asking, refs: Optional, is_gone: Callable[[Reply, TableName], Awaitable[bool]]) -> None:
        self._asking, self._refs, self._is_gone = asking, refs, is_gone
        self._by_load = False
        self._tables: dict[TableName, Kept[tuple[Grant, ...]]] = {}

    async def of(self, table: TableName) -> tuple[Grant, ...] | Missing:
        """As `Vendor.grants` promises; raises Refused."""
        try:
            return await self._kept(table).current()
        except _NoTable:
            return Missing()

    async def renewed(self, table: TableName, refused: Sequence[Grant]) -> tuple[Grant, ...] | Missing:
        """As `Vendor.renewed` promises; raises Refused."""
        kept = self._kept(table)
        held = kept.held
        try:
            return held if held not in (None, tuple(refused)) else await kept.anew()
        except _NoTable:
            self._tables.pop(table, None)
            return Missing()

    def secrets(self, table: TableName) -> tuple[str, ...]:
        """What of those that are kept must not show in any message."""
        kept = self._tables.get(table)
        return secrets_in(kept.held or ()) if kept is not None else ()

    def _kept(self, table: TableName) -> Kept[tuple[Grant, ...]]:
        kept = self._tables.pop(table, None) or Kept(partial(self._asked, table), UNSAID)
        self._tables[table] = kept
        if len(self._tables) > MOST:
            del self._tables[next(iter(self._tables))]
        return kept

    async def _asked(self, table: TableName) -> Lasting[tuple[Grant, ...]]:
        lists = (await self._asking.route()).vends
        if lists is not False and not self._by_load:
            reply = await self._asking.get(lambda paths: f"{paths.table(table)}/credentials")
            if reply.status == HTTPStatus.OK and (found := await self._read(reply)).value:
                return found
            if reply.status != HTTPStatus.OK and (lists or is_no_table(reply) or reply.status not in _NO_ENDPOINT):
                raise await self._refused(reply, table)
            self._by_load = True
        reply = await self._refs.asked(
            lambda: self._delegated(table, "?snapshots=refs"), lambda: self._delegated(table, "")
        )
        if reply.status != HTTPStatus.OK:
            raise await self._refused(reply, table)
        return await self._read(reply)

    async def _delegated(self, table: TableName, query: str) -> Reply:
        return await self._asking.get(lambda paths: f"{paths.table(table)}{query}", headers=_DELEGATION, cut=cut_grants)

    async def _read(self, reply: Reply) -> Lasting[tuple[Grant, ...]]:
        grants = await self._asking.parsed(reply, read_grants, _EXPECTED)
        # By the clock of who says when they end, wherever ours stands.
        left = [(grant.expires_at - sent(reply)).total_seconds() for grant in grants if grant.expires_at is not None]
        return Lasting(grants, min(left, default=None))

    async def _refused(self, reply: Reply, table: TableName) -> Refused:
        refusal = of_status(reply, expected=_EXPECTED, quoting=False)
        if await self._is_gone(reply, table):
            return _NoTable(refusal)
        # As of a load: a grant that was revoked by mistake must not send every table to the dead letters.
        return Refused(replace(refusal, permanent=False) if reply.status == HTTPStatus.FORBIDDEN else refusal)
