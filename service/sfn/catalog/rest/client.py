"""HTTP to one catalog: requests, their limits, and every foreign error turned into a refusal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeAlias

import aiohttp
import anyio
from yarl import URL

from sfn.catalog.refusal import Refusal, Refused
from sfn.catalog.rest.auth import auth_of
from sfn.catalog.rest.proof import Auth, Request
from sfn.catalog.rest.refusals import Reply, is_denial, is_disbelief
from sfn.catalog.rest.settings import RestSettings
from sfn.catalog.rest.trust import Trust
from sfn.catalog.rest.unheard import unheard
from sfn.clock import Clock
from sfn.errors import Scope

Cut: TypeAlias = Callable[[bytearray, AsyncIterator[bytes]], Awaitable[bytearray]]
"""Makes a body of the beginning of a large one and of the rest of it, as it arrives; may leave the rest unread."""

_ERROR_LIMIT: Final = 2**20
"""Bytes of an error body that are read: Iceberg's carry a Java stack."""

_SMALL: Final = 2**18
"""Bytes of a body that is taken as it comes: of nearly every table's."""
_LARGE: Final = 8 * 2**20
_LARGE_AT_ONCE: Final = 2
"""Of bodies above so many bytes so many are read at once: every request in flight at its limit would be gigabytes."""


class Client:
    """One pool of connections. Follows no redirect, trusts no proxy of the environment, keeps no cookie.

    Args:
        settings: where, as whom, how long.
        clock: stamps the replies.
    """

    def __init__(self, settings: RestSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._auth: Auth = auth_of(settings, self._post)
        self._trust = Trust(settings.name, settings.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._large = anyio.Semaphore(_LARGE_AT_ONCE)
        self._limit = self._limited(settings.request_timeout)

    def secrets(self) -> tuple[str, ...]:
        """What must not show in any message: our tokens, and the values of configured headers."""
        return (*self._auth.secrets(), *self._settings.headers.values())

    async def get(
        self, url: str, headers: Mapping[str, str], *, within: float | None = None, cut: Cut | None = None
    ) -> Reply:
        """One GET that shows who asks; asked again once with a new proof if that is not believed, or may have expired.

        Args:
            url: absolute and encoded; sent byte for byte.
            headers: sent along, names in lower case; ours win.
            within: seconds for the whole request, None for the configured.
            cut: what to make of a large body, None to take it whole.

        Returns:
            The reply, whatever its status.

        Raises:
            Refused: there was none, or not the whole of one, or it is too long.
        """
        reply, shown = await self._authorized(url, headers, within, cut)
        renew = self._auth.renewed if is_disbelief(reply) else self._auth.doubted if is_denial(reply) else None
        if renew is not None and await renew(shown):
            reply, _ = await self._authorized(url, headers, within, cut)
        return reply

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _authorized(
        self, url: str, headers: Mapping[str, str], within: float | None, cut: Cut | None
    ) -> tuple[Reply, Mapping[str, str]]:
        shown = await self._auth.headers(Request("GET", url))
        # Unasked, Jetty compresses and gives an entity tag that never matches again: `b7a04183--gzip` (facts/jvm.md).
        ours = {"accept": "application/json", "accept-encoding": "identity", **shown}
        reply = await self._exchange("GET", URL(url, encoded=True), {**headers, **ours}, within=within, cut=cut)
        return reply, shown

    async def _post(self, url: str, form: Mapping[str, str]) -> Reply:
        return await self._exchange("POST", URL(url), {"accept": "application/json"}, form=form)

    async def _exchange(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        *,
        form: Mapping[str, str] | None = None,
        within: float | None = None,
        cut: Cut | None = None,
    ) -> Reply:
        where = f"catalog {self._settings.name}: {method} {_shown(str(url))}"
        limit = self._limit if within is None else self._limited(within)
        trust = await self._trust.current()
        session = self._opened()
        try:
            async with session.request(
                method, url, headers=headers, data=form, timeout=limit, allow_redirects=False, ssl=trust
            ) as response:
                began = self._clock.now()
                body = await self._read(where, response, cut)
                return Reply(where, response.status, began, response.headers, body)
        except (aiohttp.ClientError, OSError) as error:
            raise Refused(unheard(where, error, within or self._settings.request_timeout)) from error

    async def _read(self, where: str, response: aiohttp.ClientResponse, cut: Cut | None) -> bytes | bytearray:
        """The whole body, or of a large one what is cut from it, or of a long error its beginning."""
        most = min(_SMALL, self._settings.body_limit)
        if (response.content_length or most + 1) <= most and "Content-Encoding" not in response.headers:
            return await response.read()
        body = bytearray()
        async with aclosing(self._parts(where, response)) as parts:
            async for part in parts:
                body += part
                if len(body) > _LARGE:
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
            raise Refused(self._too_long(where))
        length = 0
        async for part in response.content.iter_any():
            length += len(part)
            if length > limit and response.ok:
                raise Refused(self._too_long(where))
            yield part
            if length > limit:
                return

    def _limited(self, total: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=total, sock_connect=self._settings.connect_timeout)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._settings.max_in_flight),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "iceberg-sfn"},
                trust_env=False,
            )
        return self._session

    def _too_long(self, where: str) -> Refusal:
        return Refusal(
            where,
            expected=f"at most {self._settings.body_limit} bytes",
            found="a longer answer",
            remedy="expire the table's snapshots and shorten its metadata-log, or exclude it",
            permanent=True,
            reach=Scope.TABLE,
        )


def _shown(url: str) -> str:
    """A URL without what may be secret in it: user information, query and fragment."""
    shown = url.partition("#")[0].partition("?")[0]
    return str(URL(shown, encoded=True).with_user(None)) if "@" in shown else shown
