"""The grants of a catalog's tables: asked for when they are needed, kept in memory until they end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from sfn.catalogs import CatalogRequestFailed
from sfn.catalogs.metadata import LAST_MILLISECOND, decode_json, needed_members
from sfn.catalogs.partial_json import extract
from sfn.catalogs.rest.auth import Expiring, ExpiringCache
from sfn.catalogs.rest.client import CatalogRequests, OptionalParameter
from sfn.catalogs.rest.errors import CatalogReply, failure_of_status, is_missing_table, sent_at
from sfn.domain.catalog_answer import NoSuchTable, VendedCredential
from sfn.domain.identifiers import TableIdentifier
from sfn.sfnfile.locations import canonical

# ── vended: Storage credentials in the bodies of Iceberg's REST API

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_CREDENTIAL: Final = re.compile(
    r"s3\.(?:access-key-id|secret-access-key|session-token)"
    r"|gcs\.oauth2\.token"
    r"|adls\.(?:(?:sas-token|connection-string)(?:\..+)?|token|account-key|client-secret|auth\.shared-key\.account\.key)"
)
"""What opens a store: without any such key a configuration says no more than where it is."""
_EXPIRY: Final = re.compile(
    r"s3\.session-token-expires-at-ms"
    r"|gcs\.oauth2\.token-expires-at"
    r"|adls\.sas-token-expires-at-ms(?:\..+)?"
    r"|expiration-time"
)
"""When it ends, Unix milliseconds; the last is Lakekeeper's, for all stores."""
_STORE_PREFIXES: Final = ("s3.", "gcs.", "adls.", "client.", "expiration-time")
"""How the keys of a load's `config` begin that are about stores; another one is a token for the catalog."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class _CredentialBody(msgspec.Struct):
    prefix: str
    config: dict[str, Any]


class _CredentialsBody(msgspec.Struct, rename="kebab"):
    storage_credentials: list[_CredentialBody] | None = None
    config: dict[str, Any] | None = None


_CREDENTIAL_MEMBERS: Final = needed_members(_CredentialsBody)


def read_credentials(body: bytes | bytearray) -> tuple[VendedCredential, ...]:
    """The grants of a `LoadCredentialsResponse` or a `LoadTableResult`, none where no store is opened by them.

    The `config` of a load counts only where there are no `storage-credentials` (REST specification, "Storage
    Credentials").

    Raises:
        Unintelligible: any other body.
    """
    vended = decode_json(body, _CredentialsBody)
    given = [(_prefix(one.prefix), _texts(one.config)) for one in vended.storage_credentials or ()]
    if not any(map(_has_secret, (config for _, config in given))):
        of_stores = {key: value for key, value in (vended.config or {}).items() if key.startswith(_STORE_PREFIXES)}
        given = [("", _texts(of_stores))]
    # Lakekeeper once sent entries that only say where the store is.
    return tuple(
        VendedCredential(prefix, config, _expires_at(config)) for prefix, config in given if _has_secret(config)
    )


async def extract_credentials(start: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """A body of which `read_grants` makes the same as of the whole; see `excerpt`."""
    return await extract(start, parts, _CREDENTIAL_MEMBERS)


def secrets_in(credentials: Iterable[VendedCredential]) -> tuple[str, ...]:
    """What of grants must not show in any message."""
    return tuple(value for grant in credentials for key, value in grant.config.items() if _CREDENTIAL.fullmatch(key))


def _has_secret(config: Mapping[str, str]) -> bool:
    return any(value and _CREDENTIAL.fullmatch(key) for key, value in config.items())


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration as the specification has it; numbers as text, as some write them the other way."""
    values = {
        key: value for key, value in config.items() if isinstance(value, str | int) and not isinstance(value, bool)
    }
    return {key: str(value) for key, value in values.items()}


def _prefix(prefix: str) -> str:
    # Java's clients compare texts: `s3` alone is good for all that begins with it.
    return canonical(f"{prefix}://" if _SCHEME.fullmatch(prefix) else prefix)


def _expires_at(config: Mapping[str, str]) -> datetime | None:
    """The first moment at which a part of it is no good any more."""
    values = [value for key, value in config.items() if _EXPIRY.fullmatch(key) and re.fullmatch("[0-9]{1,15}", value)]
    ends = [end for end in map(int, values) if 0 < end <= LAST_MILLISECOND]
    return _EPOCH + timedelta(milliseconds=min(ends)) if ends else None


# ── grants: The grants of a catalog's tables

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
