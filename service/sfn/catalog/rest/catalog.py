"""The catalog port over Iceberg's REST API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from sfn.catalog import SkipNamespace, UnlistedNamespace
from sfn.catalog.refusal import CatalogRequestFailed
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.asking import CatalogRequests, OptionalParameter
from sfn.catalog.rest.grants import CredentialCache
from sfn.catalog.rest.listing import CatalogListings
from sfn.catalog.rest.refusals import CatalogReply, failure_of_status, is_missing_table, may_be_missing
from sfn.catalog.rest.settings import RestSettings
from sfn.catalog.rest.vended import secrets_in
from sfn.clock import Clock, SystemClock
from sfn.domain.catalog_answer import Loaded, LoadResult, NoSuchTable, NotModified, StagedCreate, VendedCredential
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError

_EXPECTED: Final = "the table, or a 404 in Iceberg's error shape"


class RestCatalog:
    """A catalog behind Iceberg's REST API.

    Scope of trouble: as in behaviour.md; where one reply cannot tell, one `GET /v1/config` decides. In `tables` scope
    table means that the walk has that trouble while the catalog answers other questions.

    Args:
        settings: where, as whom, how long.
        clock: for a Retry-After that names a date.
    """

    def __init__(self, settings: RestSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._requests = CatalogRequests(settings, clock or SystemClock())
        self._listings = CatalogListings(self._requests, settings.name, settings.page_size)
        self._refs_parameter = OptionalParameter()
        self._credentials = CredentialCache(self._requests, self._refs_parameter, self._is_gone)

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        """As the port promises.

        Asks for the snapshots that a branch or tag names and no others, and once more for all where that answer lacks
        the metadata's location (Polaris issue 4656), or where the catalog refuses the question.

        A 404 of a type that is not Iceberg's for a missing table counts once the table's namespace does not list it.
        """
        return await self._requests.map_errors(self._load(table, known_etag))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """As the port promises."""
        return await self._listings.is_listed(table)

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """As the port promises."""
        async with aclosing(self._listings.walk(skip)) as found:
            async for one in found:
                yield one

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """As `NamespaceLister` promises."""
        async with aclosing(self._listings.items(self._listings.namespaces(parent))) as found:
            async for one in found:
                yield one

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        """As `NamespaceLister` promises."""
        async with aclosing(self._listings.items(self._listings.tables(namespace))) as found:
            async for levels, name in found:
                yield TableIdentifier(self._settings.name, levels, name)

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        """As `CredentialVendor` promises."""
        return await self._requests.map_errors(self._credentials.get(table), lambda: self._credentials.secrets(table))

    async def renew_credentials(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """As `CredentialVendor` promises."""
        secrets = secrets_in(rejected)
        return await self._requests.map_errors(
            self._credentials.renew(table, rejected), lambda: (*secrets, *self._credentials.secrets(table))
        )

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files (behaviour.md, "catalog_id").

        Raises:
            Transient, Permanent: scope catalog; its configuration cannot be had.
        """
        if self._settings.catalog_id is not None:
            return self._settings.catalog_id
        route = await self._requests.map_errors(self._requests.route())
        words = (paths.base_url(self._settings.uri), self._settings.warehouse or "", route.prefix)
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    async def advertised_config(self) -> Mapping[str, str]:
        """As `ConfigAdvertiser` promises."""
        return (await self._requests.map_errors(self._requests.route())).settings

    async def advertised_encoding(self) -> str:
        """As `ConfigAdvertiser` promises."""
        return (await self._requests.map_errors(self._requests.route())).encoding

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.close()

    async def _load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        reply = await self._refs_parameter.request(
            lambda: self._reply(table, known_etag, "?snapshots=refs"), lambda: self._reply(table, known_etag, "")
        )
        answer = await self._answer(table, known_etag, reply)
        if isinstance(answer, StagedCreate):
            return await self._answer(table, known_etag, await self._reply(table, known_etag, ""))
        return answer

    async def _reply(self, table: TableIdentifier, known_etag: str | None, query: str) -> CatalogReply:
        return await self._requests.get(lambda paths: paths.table(table) + query, known_etag, answers.extract_table)

    async def _answer(self, table: TableIdentifier, known_etag: str | None, reply: CatalogReply) -> LoadResult:
        if reply.status == HTTPStatus.OK:
            found = await self._requests.parse(reply, answers.read_table, _EXPECTED)
            return StagedCreate() if found is None else Loaded(found, _etag(reply))
        if reply.status == HTTPStatus.NOT_MODIFIED and known_etag is not None:
            return NotModified()
        why = await self._why_not_gone(reply, table)
        if why is None:
            return NoSuchTable()
        failure = failure_of_status(reply, expected=_EXPECTED)
        failure = replace(failure, found=f"{failure.found}; {why}" if why else failure.found)
        if reply.status == HTTPStatus.FORBIDDEN:
            # A grant that was revoked by mistake must not send every table to the dead letters.
            failure = replace(failure, permanent=False)
        raise CatalogRequestFailed(failure)

    async def _is_gone(self, reply: CatalogReply, table: TableIdentifier) -> bool:
        return await self._why_not_gone(reply, table) is None

    async def _why_not_gone(self, reply: CatalogReply, table: TableIdentifier) -> str | None:
        """Return why a table may be there though a reply does not have it; None where it is gone.

        Where the type of the error does not say so, the table's namespace must not list it.
        """
        if is_missing_table(reply):
            return None
        if not may_be_missing(reply):
            return ""
        try:
            is_listed = await self._listings.is_listed(table)
        except ExternalError as trouble:
            if trouble.scope is not ErrorScope.TABLE:
                raise
            return f"and its namespace cannot be listed: {trouble.found}"
        return "and its namespace lists it" if is_listed else None


def _etag(reply: CatalogReply) -> str | None:
    """The entity tag to send back: without the suffix of a compressing Jetty, with which it never matches.

    None also for what can't be stored or sent back safely: a load without a tag is only slower.
    """
    etag = reply.headers.get("ETag", "").strip().removesuffix("--gzip").replace('--gzip"', '"')
    return etag if re.fullmatch(r"[\x21-\x7e]{1,256}", etag) else None
