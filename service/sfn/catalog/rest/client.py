"""HTTP to one catalog: requests, their limits, and every foreign error turned into a refusal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeAlias

import aiohttp
import anyio
from yarl import URL

from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.catalog.rest.auth import build_auth
from sfn.catalog.rest.proof import Auth, AuthRequest
from sfn.catalog.rest.refusals import CatalogReply, is_denied, is_unauthenticated
from sfn.catalog.rest.settings import RestSettings
from sfn.catalog.rest.trust import CatalogTrust
from sfn.catalog.rest.unheard import failure_of_transport
from sfn.clock import Clock
from sfn.errors import ErrorScope

ExtractBody: TypeAlias = Callable[[bytearray, AsyncIterator[bytes]], Awaitable[bytearray]]
"""Makes a body of the beginning of a large one and of the rest of it, as it arrives; may leave the rest unread."""

_ERROR_LIMIT: Final = 2**20
"""Bytes of an error body that are read: Iceberg's carry a Java stack."""

_SMALL_BYTES: Final = 2**18
"""Bytes of a body that is taken as it comes: of nearly every table's."""
_LARGE_BYTES: Final = 8 * 2**20
_MAX_LARGE_BODIES: Final = 2
"""Of bodies above so many bytes so many are read at once: every request in flight at its limit would be gigabytes."""


class CatalogHttpClient:
    """One pool of connections. Follows no redirect, trusts no proxy of the environment, keeps no cookie.

    Args:
        settings: where, as whom, how long.
        clock: stamps the replies.
    """

    def __init__(self, settings: RestSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._auth: Auth = build_auth(settings, self._post)
        self._authorities = CatalogTrust(settings.name, settings.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._large = anyio.Semaphore(_MAX_LARGE_BODIES)
        self._limit = self._timeout(settings.request_timeout)

    def secrets(self) -> tuple[str, ...]:
        """What must not show in any message: our tokens, and the values of configured headers."""
        return (*self._auth.secrets(), *self._settings.headers.values())

    async def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        request_timeout: float | None = None,
        cut: ExtractBody | None = None,
    ) -> CatalogReply:
        """One GET that shows who asks; asked again once with a new proof if that is not believed, or may have expired.

        Args:
            url: absolute and encoded; sent byte for byte.
            headers: sent along, names in lower case; ours win.
            request_timeout: seconds for the whole request, None for the configured.
            cut: what to make of a large body, None to take it whole.

        Returns:
            The reply, whatever its status.

        Raises:
            Refused: there was none, or not the whole of one, or it is too long.
        """
        reply, shown = await self._authorized(url, headers, request_timeout, cut)
        renew = (
            self._auth.renew
            if is_unauthenticated(reply)
            else self._auth.renew_after_denial
            if is_denied(reply)
            else None
        )
        if renew is not None and await renew(shown):
            reply, _ = await self._authorized(url, headers, request_timeout, cut)
        return reply

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _authorized(
        self, url: str, headers: Mapping[str, str], request_timeout: float | None, cut: ExtractBody | None
    ) -> tuple[CatalogReply, Mapping[str, str]]:
        shown = await self._auth.headers(AuthRequest("GET", url))
        # Unasked, Jetty compresses and gives an entity tag that never matches again: `b7a04183--gzip` (facts/jvm.md).
        ours = {"accept": "application/json", "accept-encoding": "identity", **shown}
        reply = await self._exchange(
            "GET", URL(url, encoded=True), {**headers, **ours}, request_timeout=request_timeout, cut=cut
        )
        return reply, shown

    async def _post(self, url: str, form: Mapping[str, str]) -> CatalogReply:
        return await self._exchange("POST", URL(url), {"accept": "application/json"}, form=form)

    async def _exchange(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        *,
        form: Mapping[str, str] | None = None,
        request_timeout: float | None = None,
        cut: ExtractBody | None = None,
    ) -> CatalogReply:
        where = f"catalog {self._settings.name}: {method} {_redacted(str(url))}"
        limit = self._limit if request_timeout is None else self._timeout(request_timeout)
        authorities = await self._authorities.current()
        session = self._open()
        try:
            async with session.request(
                method, url, headers=headers, data=form, timeout=limit, allow_redirects=False, ssl=authorities
            ) as response:
                began = self._clock.now()
                body = await self._read(where, response, cut)
                return CatalogReply(where, response.status, began, response.headers, body)
        except (aiohttp.ClientError, OSError) as error:
            raise CatalogRequestFailed(
                failure_of_transport(where, error, request_timeout or self._settings.request_timeout)
            ) from error

    async def _read(self, where: str, response: aiohttp.ClientResponse, cut: ExtractBody | None) -> bytes | bytearray:
        """The whole body, or of a large one what is cut from it, or of a long error its beginning."""
        most = min(_SMALL_BYTES, self._settings.body_limit)
        if (response.content_length or most + 1) <= most and "Content-Encoding" not in response.headers:
            return await response.read()
        body = bytearray()
        async with aclosing(self._parts(where, response)) as parts:
            async for part in parts:
                body += part
                if len(body) > _LARGE_BYTES:
                    break
            else:
                return body
            async with self._large:
                if cut is not None:
                    return await cut(body, parts)
                async for part in parts:
                    body += part
        return body

    async def _parts(self, where: str, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """A body as it arrives, as far as we read it."""
        limit = self._settings.body_limit if response.ok else _ERROR_LIMIT
        if response.ok and (response.content_length or 0) > limit:
            raise CatalogRequestFailed(self._too_long(where))
        length = 0
        async for part in response.content.iter_any():
            length += len(part)
            if length > limit and response.ok:
                raise CatalogRequestFailed(self._too_long(where))
            yield part
            if length > limit:
                return

    def _timeout(self, total: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=total, sock_connect=self._settings.connect_timeout)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._settings.max_in_flight),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "iceberg-sfn"},
                trust_env=False,
            )
        return self._session

    def _too_long(self, where: str) -> CatalogFailure:
        return CatalogFailure(
            where,
            expected=f"at most {self._settings.body_limit} bytes",
            found="a longer answer",
            remedy="expire the table's snapshots and shorten its metadata-log, or exclude it",
            permanent=True,
            scope=ErrorScope.TABLE,
        )


def _redacted(url: str) -> str:
    """A URL without what may be secret in it: user information, query and fragment."""
    shown = url.partition("#")[0].partition("?")[0]
    return str(URL(shown, encoded=True).with_user(None)) if "@" in shown else shown
