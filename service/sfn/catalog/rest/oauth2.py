"""OAuth2 client credentials (RFC 6749, 4.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from math import inf
from typing import Final

import anyio

from sfn.catalog.metadata import Unintelligible
from sfn.catalog.refusal import Refusal, Refused
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.files import Renewed
from sfn.catalog.rest.kept import Kept, Lasting
from sfn.catalog.rest.proof import Request, bearer, newest, secret_in
from sfn.catalog.rest.refusals import Reply, retry_after
from sfn.catalog.rest.settings import RestSettings, sendable
from sfn.catalog.rest.unheard import unheard
from sfn.errors import Scope

Post = Callable[[str, Mapping[str, str]], Awaitable[Reply]]
"""Posts a form to a URL without authorization and gives the reply, whatever its status; raises Refused for none."""

DOUBTED_EVERY: Final = 30.0
"""Seconds between two renewals of a token after a 403: where we may not, each request would ask for a token."""
_REFUSED_FOR_GOOD = frozenset({400, 401, 403, 404})


class ClientCredentials:
    """Shows a token, which is had anew before its end, and once when the catalog refuses it.

    A 403 mostly means that we may not. Only a token of unknown lifetime is renewed then, and seldom.

    One question for one is asked at a time. It may take as long as `/v1/config`, which it stands before.

    Args:
        settings: with `credential` or `credential_file`.
        post: how the token is asked for.
    """

    def __init__(self, settings: RestSettings, post: Post) -> None:
        self._settings = settings
        self._post = post
        self._url = settings.oauth2_uri or f"{paths.base(settings.uri)}/v1/oauth/tokens"
        name, file = settings.name, settings.credential_file
        self._file = None if file is None else Renewed(name, "credential_file", file, "credential", secret_in)
        self._kept = Kept(self._token)
        self._credentials: tuple[str, ...] = ()
        self._tokens: tuple[str, ...] = ()
        self._lasts: float | None = None
        self._renewing: Mapping[str, str] | None = None
        self._doubted_until = -inf

    async def headers(self, request: Request) -> Mapping[str, str]:
        return bearer(await self._kept.current())

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        # Another request may have met the same refusal and have a new token already.
        token = self._kept.held
        if token is None or bearer(token) == refused:
            token = await self._kept.anew()
        return bearer(token) != refused

    async def doubted(self, refused: Mapping[str, str]) -> bool:
        token = self._kept.held
        if token is not None and bearer(token) != refused:
            return True
        if self._lasts is not None:
            return False
        now = anyio.current_time()
        is_shared = self._renewing == refused
        if not is_shared:
            if now < self._doubted_until:
                return False
            self._doubted_until, self._renewing = now + DOUBTED_EVERY, refused
        try:
            # Requests with the same token share the renewal.
            return bearer(await self._kept.anew()) != refused
        except Refused:
            return False
        finally:
            if not is_shared:
                self._renewing = None

    def secrets(self) -> tuple[str, ...]:
        return (*self._credentials, *self._tokens)

    async def _token(self) -> Lasting[str]:
        try:
            credential = await self._credential()
            client, colon, secret = credential.partition(":")
            if not colon:
                client, secret = "", credential
            self._credentials = newest(self._credentials, credential, secret)
            form = {"grant_type": "client_credentials", "scope": self._settings.scope, "client_secret": secret}
            token = self._granted(await self._reply(form | ({"client_id": client} if client else {})))
        except Refused as refused:
            raise Refused(replace(refused.refusal, reach=Scope.CATALOG)) from None
        self._tokens, self._lasts = newest(self._tokens, token.value), token.lasts
        return Lasting(token.value, token.lasts)

    async def _reply(self, form: Mapping[str, str]) -> Reply:
        seconds = self._settings.config_timeout
        with anyio.move_on_after(seconds):
            return await self._post(self._url, form)
        where = f"catalog {self._settings.name}: POST {paths.base(self._url)}"
        raise Refused(unheard(where, TimeoutError(), seconds))

    async def _credential(self) -> str:
        return self._settings.credential or "" if self._file is None else await self._file.anew()

    def _granted(self, reply: Reply) -> answers.Token:
        found = answers.read_token_error(reply.body) or "without an OAuth2 error code"
        if reply.status == HTTPStatus.OK:
            try:
                token = answers.read_token(reply.body)
            except Unintelligible as error:
                found = str(error)
            else:
                if sendable("Authorization", token.value):
                    return token
                found = "a token that no header can carry"
        raise Refused(
            Refusal(
                reply.where,
                expected="an OAuth2 access token",
                found=f"status {reply.status}, {found}",
                remedy=f"check catalogs.{self._settings.name}.credential, oauth2_uri and scope",
                permanent=reply.status in _REFUSED_FOR_GOOD,
                reach=Scope.CATALOG,
                retry_after=retry_after(reply),
            )
        )
