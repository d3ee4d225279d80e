"""The catalog port over Iceberg's REST API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from sfn.catalog import Skip, Withheld
from sfn.catalog.refusal import Refused
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.asking import Asking, Optional
from sfn.catalog.rest.grants import Grants
from sfn.catalog.rest.listing import Listings
from sfn.catalog.rest.refusals import Reply, is_absence, is_no_table, of_status
from sfn.catalog.rest.settings import RestSettings
from sfn.catalog.rest.vended import secrets_in
from sfn.clock import Clock, SystemClock
from sfn.errors import Scope, Trouble
from sfn.words import Answer, Grant, Loaded, Missing, NotModified, TableName, Told, Unwritten

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
        self._asking = Asking(settings, clock or SystemClock())
        self._listings = Listings(self._asking, settings.name, settings.page_size)
        self._refs = Optional()
        self._grants = Grants(self._asking, self._refs, self._is_gone)

    async def load(self, table: TableName, known: str | None, told: Told | None = None) -> Answer:
        """As the port promises.

        Asks for the snapshots that a branch or tag names and no others, and once more for all where that answer lacks
        the metadata's location (Polaris issue 4656), or where the catalog refuses the question.

        A 404 of a type that is not Iceberg's for a missing table counts once the table's namespace does not list it.
        """
        return await self._asking.told(self._load(table, known))

    async def listed(self, table: TableName) -> bool:
        """As the port promises."""
        return await self._listings.lists(table)

    async def tables(self, skip: Skip | None = None) -> AsyncGenerator[TableName | Withheld]:
        """As the port promises."""
        async with aclosing(self._listings.walk(skip)) as found:
            async for one in found:
                yield one

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """As `Divided` promises."""
        async with aclosing(self._listings.items(self._listings.namespaces(parent))) as found:
            async for one in found:
                yield one

    async def within(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableName]:
        """As `Divided` promises."""
        async with aclosing(self._listings.items(self._listings.tables(namespace))) as found:
            async for levels, name in found:
                yield TableName(self._settings.name, levels, name)

    async def grants(self, table: TableName) -> tuple[Grant, ...] | Missing:
        """As `Vendor` promises."""
        return await self._asking.told(self._grants.of(table), lambda: self._grants.secrets(table))

    async def renewed(self, table: TableName, refused: Sequence[Grant]) -> tuple[Grant, ...] | Missing:
        """As `Vendor` promises."""
        secrets = secrets_in(refused)
        return await self._asking.told(
            self._grants.renewed(table, refused), lambda: (*secrets, *self._grants.secrets(table))
        )

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files (behaviour.md, "catalog_id").

        Raises:
            Transient, Permanent: scope catalog; its configuration cannot be had.
        """
        if self._settings.catalog_id is not None:
            return self._settings.catalog_id
        route = await self._asking.told(self._asking.route())
        words = (paths.base(self._settings.uri), self._settings.warehouse or "", route.prefix)
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    async def advertised(self) -> Mapping[str, str]:
        """As `Advertiser` promises."""
        return (await self._asking.told(self._asking.route())).told

    async def advertised_coding(self) -> str:
        """As `Advertiser` promises."""
        return (await self._asking.told(self._asking.route())).coding

    async def close(self) -> None:
        """Close all connections."""
        await self._asking.close()

    async def _load(self, table: TableName, known: str | None) -> Answer:
        reply = await self._refs.asked(
            lambda: self._reply(table, known, "?snapshots=refs"), lambda: self._reply(table, known, "")
        )
        answer = await self._answer(table, known, reply)
        if isinstance(answer, Unwritten):
            return await self._answer(table, known, await self._reply(table, known, ""))
        return answer

    async def _reply(self, table: TableName, known: str | None, query: str) -> Reply:
        return await self._asking.get(lambda paths: paths.table(table) + query, known, answers.cut_table)

    async def _answer(self, table: TableName, known: str | None, reply: Reply) -> Answer:
        if reply.status == HTTPStatus.OK:
            found = await self._asking.parsed(reply, answers.read_table, _EXPECTED)
            return Unwritten() if found is None else Loaded(found, _etag(reply))
        if reply.status == HTTPStatus.NOT_MODIFIED and known is not None:
            return NotModified()
        why = await self._why_not_gone(reply, table)
        if why is None:
            return Missing()
        refusal = of_status(reply, expected=_EXPECTED)
        refusal = replace(refusal, found=f"{refusal.found}; {why}" if why else refusal.found)
        if reply.status == HTTPStatus.FORBIDDEN:
            # A grant that was revoked by mistake must not send every table to the dead letters.
            refusal = replace(refusal, permanent=False)
        raise Refused(refusal)

    async def _is_gone(self, reply: Reply, table: TableName) -> bool:
        return await self._why_not_gone(reply, table) is None

    async def _why_not_gone(self, reply: Reply, table: TableName) -> str | None:
        """Return why a table may be there though a reply does not have it; None where it is gone.

        Where the type of the error does not say so, the table's namespace must not list it.
        """
        if is_no_table(reply):
            return None
        if not is_absence(reply):
            return ""
        try:
            is_listed = await self._listings.lists(table)
        except Trouble as trouble:
            if trouble.scope is not Scope.TABLE:
                raise
            return f"and its namespace cannot be listed: {trouble.found}"
        return "and its namespace lists it" if is_listed else None


def _etag(reply: Reply) -> str | None:
    """The entity tag to send back: without the suffix of a compressing Jetty, with which it never matches.

    None also for what can't be stored or sent back safely: a load without a tag is only slower.
    """
    tag = reply.headers.get("ETag", "").strip().removesuffix("--gzip").replace('--gzip"', '"')
    return tag if re.fullmatch(r"[\x21-\x7e]{1,256}", tag) else None
