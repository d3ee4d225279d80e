"""`CredentialCache`: the vended credentials of a catalog's tables, fetched on demand and cached until they expire."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from sfn.catalogs import CatalogRequestFailed, NoSuchTable, VendedCredential
from sfn.catalogs.metadata import LAST_MILLISECOND, decode_json, needed_members
from sfn.catalogs.partial_json import extract
from sfn.catalogs.rest.auth import Expiring, ExpiringCache
from sfn.catalogs.rest.client import CatalogRequests, OptionalParameter
from sfn.catalogs.rest.errors import CatalogReply, failure_of_status, is_missing_table, sent_at
from sfn.domain.identifiers import TableIdentifier
from sfn.sfnfile.locations import canonical

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_CREDENTIAL: Final = re.compile(
    r"s3\.(?:access-key-id|secret-access-key|session-token)"
    r"|gcs\.oauth2\.token"
    r"|adls\.(?:(?:sas-token|connection-string)(?:\..+)?|token|account-key|client-secret|auth\.shared-key\.account\.key)"
)
"""Keys that give access to a store; a configuration without any of them only describes the store."""
_EXPIRY: Final = re.compile(
    r"s3\.session-token-expires-at-ms"
    r"|gcs\.oauth2\.token-expires-at"
    r"|adls\.sas-token-expires-at-ms(?:\..+)?"
    r"|expiration-time"
)
"""Keys with the time of expiry in Unix milliseconds; the last is Lakekeeper's, for all stores."""
_STORE_PREFIXES: Final = ("s3.", "gcs.", "adls.", "client.", "expiration-time")
"""Prefixes of the keys in a table's `config` that concern stores; other keys are for the catalog."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class _CredentialBody(msgspec.Struct):
    prefix: str
    config: dict[str, Any]


class _CredentialsBody(msgspec.Struct, rename="kebab"):
    storage_credentials: list[_CredentialBody] | None = None
    config: dict[str, Any] | None = None


_CREDENTIAL_MEMBERS: Final = needed_members(_CredentialsBody)


def read_credentials(body: bytes | bytearray) -> tuple[VendedCredential, ...]:
    """Return the credentials of a `LoadCredentialsResponse` or a `LoadTableResult`, none if they give no access.

    The `config` of a `LoadTableResult` counts only without `storage-credentials` (REST specification, "Storage
    Credentials").

    Raises:
        UnreadableDocument: any other body.
    """
    vended = decode_json(body, _CredentialsBody)
    given = [(_prefix(one.prefix), _texts(one.config)) for one in vended.storage_credentials or ()]
    if not any(map(_has_secret, (config for _, config in given))):
        of_stores = {key: value for key, value in (vended.config or {}).items() if key.startswith(_STORE_PREFIXES)}
        given = [("", _texts(of_stores))]
    # Lakekeeper once sent entries that only describe the store.
    return tuple(
        VendedCredential(prefix, config, _expires_at(config)) for prefix, config in given if _has_secret(config)
    )


async def extract_credentials(start: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """Return an excerpt that `read_credentials` reads like the whole body; see `partial_json.extract`."""
    return await extract(start, parts, _CREDENTIAL_MEMBERS)


def secrets_in(credentials: Iterable[VendedCredential]) -> tuple[str, ...]:
    """Return the values of credentials that messages must not contain."""
    return tuple(value for grant in credentials for key, value in grant.config.items() if _CREDENTIAL.fullmatch(key))


def _has_secret(config: Mapping[str, str]) -> bool:
    return any(value and _CREDENTIAL.fullmatch(key) for key, value in config.items())


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration with strings as values, as the specification says; some servers send numbers."""
    values = {
        key: value for key, value in config.items() if isinstance(value, str | int) and not isinstance(value, bool)
    }
    return {key: str(value) for key, value in values.items()}


def _prefix(prefix: str) -> str:
    # Java's clients compare strings: `s3` matches every location that begins with it.
    return canonical(f"{prefix}://" if _SCHEME.fullmatch(prefix) else prefix)


def _expires_at(config: Mapping[str, str]) -> datetime | None:
    """Return the first time at which a part of the credentials expires."""
    values = [value for key, value in config.items() if _EXPIRY.fullmatch(key) and re.fullmatch("[0-9]{1,15}", value)]
    ends = [end for end in map(int, values) if 0 < end <= LAST_MILLISECOND]
    return _EPOCH + timedelta(milliseconds=min(ends)) if ends else None


MAX_TABLES: Final = 4096
"""Tables with cached credentials, some kilobytes each; the least recently used are evicted."""
DEFAULT_LIFETIME: Final = 300.0
"""Seconds after which credentials of unknown lifetime are fetched again. The shortest session of STS lasts 15 minutes,
and catalogs return it from a cache until half of it is over (Lakekeeper, Polaris)."""

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
"""Answers of catalogs at an unknown path; the first one is that of Iceberg's own test server."""


class _NoSuchTable(CatalogRequestFailed):
    """The failure if the catalog has no such table."""


class CredentialCache:
    """The credentials of one catalog's tables.

    Args:
        requests: sends requests to the catalog.
        refs_parameter: whether the catalog supports `snapshots=refs`.
        is_gone: returns True if a reply says that there is no such table.
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
        """Return what `CredentialVendor.vended_credentials` returns; raise CatalogRequestFailed."""
        try:
            return await self._entry(table).current()
        except _NoSuchTable:
            return NoSuchTable()

    async def renew(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """Return what `CredentialVendor.renew_credentials` returns; raise CatalogRequestFailed."""
        entry = self._entry(table)
        current = entry.valid_value
        try:
            return current if current not in (None, tuple(rejected)) else await entry.refresh()
        except _NoSuchTable:
            self._tables.pop(table, None)
            return NoSuchTable()

    def secrets(self, table: TableIdentifier) -> tuple[str, ...]:
        """Return the values of a table's cached credentials that messages must not contain."""
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
        # Lifetimes by the server's clock, whatever the difference to ours.
        left = [(grant.expires_at - sent_at(reply)).total_seconds() for grant in grants if grant.expires_at is not None]
        return Expiring(grants, min(left, default=None))

    async def _refused(self, reply: CatalogReply, table: TableIdentifier) -> CatalogRequestFailed:
        failure = failure_of_status(reply, expected=_EXPECTED, quoting=False)
        if await self._is_gone(reply, table):
            return _NoSuchTable(failure)
        # As in a load: a grant that was revoked by mistake must not turn every table into a dead letter.
        return CatalogRequestFailed(
            replace(failure, permanent=False) if reply.status == HTTPStatus.FORBIDDEN else failure
        )
