"""OAuth2 client credentials (RFC 6749, 4.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from math import inf
from typing import Final

import anyio

from sfn.catalog.metadata import UnreadableDocument
from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.files import RenewedFile
from sfn.catalog.rest.kept import Expiring, ExpiringCache
from sfn.catalog.rest.proof import AuthRequest, bearer_header, read_secret, recent_secrets
from sfn.catalog.rest.refusals import CatalogReply, retry_after
from sfn.catalog.rest.settings import RestSettings, is_valid_header
from sfn.catalog.rest.unheard import failure_of_transport
from sfn.errors import ErrorScope

PostForm = Callable[[str, Mapping[str, str]], Awaitable[CatalogReply]]
"""Posts a form to a URL without authorization and gives the reply, whatever its status; raises Refused for none."""

DENIED_RENEWAL_INTERVAL: Final = 30.0
"""Seconds between two renewals of a token after a 403: where we may not, each request would ask for a token."""
_PERMANENT_STATUSES = frozenset({400, 401, 403, 404})


class ClientCredentials:
    """Shows a token, which is had anew before its end, and once when the catalog refuses it.

    A 403 mostly means that we may not. Only a token of unknown lifetime is renewed then, and seldom.

    One question for one is asked at a time. It may take as long as `/v1/config`, which it stands before.

    Args:
        settings: with `credential` or `credential_file`.
        post: how the token is asked for.
    """

    def __init__(self, settings: RestSettings, post: PostForm) -> None:
        self._settings = settings
        self._post = post
        self._url = settings.oauth2_uri or f"{paths.base_url(settings.uri)}/v1/oauth/tokens"
        name, file = settings.name, settings.credential_file
        self._file = None if file is None else RenewedFile(name, "credential_file", file, "credential", read_secret)
        self._cache = ExpiringCache(self._token)
        self._credentials: tuple[str, ...] = ()
        self._tokens: tuple[str, ...] = ()
        self._lifetime: float | None = None
        self._renewing: Mapping[str, str] | None = None
        self._next_denied_renewal = -inf

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        return bearer_header(await self._cache.current())

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        # Another request may have met the same refusal and have a new token already.
        token = self._cache.valid_value
        if token is None or bearer_header(token) == rejected:
            token = await self._cache.refresh()
        return bearer_header(token) != rejected

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        token = self._cache.valid_value
        if token is not None and bearer_header(token) != rejected:
            return True
        if self._lifetime is not None:
            return False
        now = anyio.current_time()
        is_shared = self._renewing == rejected
        if not is_shared:
            if now < self._next_denied_renewal:
                return False
            self._next_denied_renewal, self._renewing = now + DENIED_RENEWAL_INTERVAL, rejected
        try:
            # Requests with the same token share the renewal.
            return bearer_header(await self._cache.refresh()) != rejected
        except CatalogRequestFailed:
            return False
        finally:
            if not is_shared:
                self._renewing = None

    def secrets(self) -> tuple[str, ...]:
        return (*self._credentials, *self._tokens)

    async def _token(self) -> Expiring[str]:
        try:
            credential = await self._credential()
            client, colon, secret = credential.partition(":")
            if not colon:
                client, secret = "", credential
            self._credentials = recent_secrets(self._credentials, credential, secret)
            form = {"grant_type": "client_credentials", "scope": self._settings.scope, "client_secret": secret}
            token = self._parse_token(await self._reply(form | ({"client_id": client} if client else {})))
        except CatalogRequestFailed as refused:
            raise CatalogRequestFailed(replace(refused.failure, scope=ErrorScope.CATALOG)) from None
        self._tokens, self._lifetime = recent_secrets(self._tokens, token.value), token.lifetime
        return Expiring(token.value, token.lifetime)

    async def _reply(self, form: Mapping[str, str]) -> CatalogReply:
        seconds = self._settings.config_timeout
        with anyio.move_on_after(seconds):
            return await self._post(self._url, form)
        where = f"catalog {self._settings.name}: POST {paths.base_url(self._url)}"
        raise CatalogRequestFailed(failure_of_transport(where, TimeoutError(), seconds))

    async def _credential(self) -> str:
        return self._settings.credential or "" if self._file is None else await self._file.refresh()

    def _parse_token(self, reply: CatalogReply) -> answers.BearerToken:
        found = answers.read_token_error(reply.body) or "without an OAuth2 error code"
        if reply.status == HTTPStatus.OK:
            try:
                token = answers.read_token(reply.body)
            except UnreadableDocument as error:
                found = str(error)
            else:
                if is_valid_header("Authorization", token.value):
                    return token
                found = "a token that no header can carry"
        raise CatalogRequestFailed(
            CatalogFailure(
                reply.where,
                expected="an OAuth2 access token",
                found=f"status {reply.status}, {found}",
                remedy=f"check catalogs.{self._settings.name}.credential, oauth2_uri and scope",
                permanent=reply.status in _PERMANENT_STATUSES,
                scope=ErrorScope.CATALOG,
                retry_after=retry_after(reply),
            )
        )
