"""The grants of a catalog's tables: asked for when they are needed, kept in memory until they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from sfn.catalog.refusal import CatalogRequestFailed
from sfn.catalog.rest.asking import CatalogRequests, OptionalParameter
from sfn.catalog.rest.kept import Expiring, ExpiringCache
from sfn.catalog.rest.refusals import CatalogReply, failure_of_status, is_missing_table, sent_at
from sfn.catalog.rest.vended import extract_credentials, read_credentials, secrets_in
from sfn.domain.catalog_answer import NoSuchTable, VendedCredential
from sfn.domain.identifiers import TableIdentifier

MAX_TABLES: Final = 4096
"""Tables whose grants are kept, some kilobytes each; the least recently used go."""
DEFAULT_LIFETIME: Final = 300.0
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


class _NoSuchTable(CatalogRequestFailed):
    """The catalog has no such table."""


class CredentialCache:
    """The grants of one catalog's tables.

    Args:
        asking: asks the catalog.
        refs: whether the catalog takes `snapshots=refs`.
        is_gone: whether a reply says that there is no such table.
    """

    def __init__(
        self,
        requests: CatalogRequests,
        refs_parameter: OptionalParameter,
        is_gone: Callable[[CatalogReply, TableIdentifier], Awaitable[bool]],
    ) -> None:
        self._requests, self._refs_parameter, self._is_gone = requests, refs_parameter, is_gone
        self._by_load = False
        self._tables: dict[TableIdentifier, ExpiringCache[tuple[VendedCredential, ...]]] = {}

    async def get(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        """As `CredentialVendor.grants` promises; raises Refused."""
        try:
            return await self._entry(table).current()
        except _NoSuchTable:
            return NoSuchTable()

    async def renew(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """As `CredentialVendor.renewed` promises; raises Refused."""
        entry = self._entry(table)
        current = entry.valid_value
        try:
            return current if current not in (None, tuple(rejected)) else await entry.refresh()
        except _NoSuchTable:
            self._tables.pop(table, None)
            return NoSuchTable()

    def secrets(self, table: TableIdentifier) -> tuple[str, ...]:
        """What of those that are kept must not show in any message."""
        entry = self._tables.get(table)
        return secrets_in(entry.valid_value or ()) if entry is not None else ()

    def _entry(self, table: TableIdentifier) -> ExpiringCache[tuple[VendedCredential, ...]]:
        entry = self._tables.pop(table, None) or ExpiringCache(partial(self._fetch, table), DEFAULT_LIFETIME)
        self._tables[table] = entry
        if len(self._tables) > MAX_TABLES:
            del self._tables[next(iter(self._tables))]
        return entry

    async def _fetch(self, table: TableIdentifier) -> Expiring[tuple[VendedCredential, ...]]:
        lists = (await self._requests.route()).has_credentials_endpoint
        if lists is not False and not self._by_load:
            reply = await self._requests.get(lambda paths: f"{paths.table(table)}/credentials")
            if reply.status == HTTPStatus.OK and (found := await self._read(reply)).value:
                return found
            if reply.status != HTTPStatus.OK and (lists or is_missing_table(reply) or reply.status not in _NO_ENDPOINT):
                raise await self._refused(reply, table)
            self._by_load = True
        reply = await self._refs_parameter.request(
            lambda: self._delegated(table, "?snapshots=refs"), lambda: self._delegated(table, "")
        )
        if reply.status != HTTPStatus.OK:
            raise await self._refused(reply, table)
        return await self._read(reply)

    async def _delegated(self, table: TableIdentifier, query: str) -> CatalogReply:
        return await self._requests.get(
            lambda paths: f"{paths.table(table)}{query}", headers=_DELEGATION, cut=extract_credentials
        )

    async def _read(self, reply: CatalogReply) -> Expiring[tuple[VendedCredential, ...]]:
        grants = await self._requests.parse(reply, read_credentials, _EXPECTED)
        # By the clock of who says when they end, wherever ours stands.
        left = [(grant.expires_at - sent_at(reply)).total_seconds() for grant in grants if grant.expires_at is not None]
        return Expiring(grants, min(left, default=None))

    async def _refused(self, reply: CatalogReply, table: TableIdentifier) -> CatalogRequestFailed:
        failure = failure_of_status(reply, expected=_EXPECTED, quoting=False)
        if await self._is_gone(reply, table):
            return _NoSuchTable(failure)
        # As of a load: a grant that was revoked by mistake must not send every table to the dead letters.
        return CatalogRequestFailed(
            replace(failure, permanent=False) if reply.status == HTTPStatus.FORBIDDEN else failure
        )
