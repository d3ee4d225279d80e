"""How a catalog is told who asks. No `repr` of anything here shows a secret."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import anyio

from sfn.catalog.metadata import Unintelligible
from sfn.catalog.refusal import Refusal, Refused
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.files import Renewed
from sfn.catalog.rest.refusals import Reply, retry_after
from sfn.catalog.rest.settings import RestSettings, sendable
from sfn.catalog.rest.unheard import unheard
from sfn.errors import Scope, SfnError

Post = Callable[[str, Mapping[str, str]], Awaitable[Reply]]
"""Posts a form to a URL without authorization and gives the reply, whatever its status; raises Refused for none."""

EARLY = 60.0
"""Seconds before its end at which a token is renewed, at most a fifth of its life: more than one request lasts."""

_SECRETS_KEPT = 4
_REFUSED_FOR_GOOD = frozenset({400, 401, 403, 404})


class Auth(Protocol):
    """The source of the Authorization header; its verbs raise `Refused` with scope catalog."""

    async def authorization(self) -> str | None:
        """The header's value now, None for none."""
        ...

    async def renewed(self, refused: str | None) -> bool:
        """Whether there is another value to try than the one that was just answered with 401."""
        ...

    def secrets(self) -> tuple[str, ...]:
        """What must not show in any message."""
        ...


class Fixed:
    """Nothing, or the same value always."""

    def __init__(self, value: str | None, *secrets: str) -> None:
        self._value = value
        self._secrets = secrets

    async def authorization(self) -> str | None:
        return self._value

    async def renewed(self, refused: str | None) -> bool:
        return refused != self._value

    def secrets(self) -> tuple[str, ...]:
        return self._secrets


class TokenFile:
    """A bearer token in a file that somebody else renews: a mounted secret, a sidecar's token."""

    def __init__(self, catalog: str, file: Path) -> None:
        self._token = Renewed(catalog, "token_file", file, "token", secret_in)
        self._recent: tuple[str, ...] = ()

    async def authorization(self) -> str | None:
        return self._shown(await self._token.current())

    async def renewed(self, refused: str | None) -> bool:
        return self._shown(await self._token.anew()) != refused

    def secrets(self) -> tuple[str, ...]:
        return self._recent

    def _shown(self, token: str) -> str:
        self._recent = _newest(self._recent, token)
        return f"Bearer {token}"


class ClientCredentials:
    """OAuth2 client credentials (RFC 6749, 4.4), one request for a token at a time.

    A token is renewed before its end, and once when the catalog refuses it. Whoever waits for a request shares its
    outcome, good or bad. It may take as long as `/v1/config`, which it stands before.

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
        self._asking = anyio.Lock()
        self._asked = 0
        self._refusal: Refusal | None = None
        self._value: str | None = None
        self._until: float | None = None
        self._credentials: tuple[str, ...] = ()
        self._tokens: tuple[str, ...] = ()

    async def authorization(self) -> str | None:
        if not self._fresh():
            await self._anew()
        return self._value

    async def renewed(self, refused: str | None) -> bool:
        # Another request may have met the same refusal and have a new token already.
        if self._value == refused:
            await self._anew()
        return self._value != refused

    def secrets(self) -> tuple[str, ...]:
        return (*self._credentials, *self._tokens)

    def _fresh(self) -> bool:
        return self._value is not None and (self._until is None or anyio.current_time() < self._until)

    async def _anew(self) -> None:
        """Have a token by a request that ended after this call; raises Refused for none."""
        before = self._asked
        async with self._asking:
            # Without sharing, the last of many that wait on a dead server would wait for all their failures in turn.
            if self._asked == before:
                self._refusal = await self._renew()
                self._asked += 1
            refusal = self._refusal
        if refusal is not None:
            raise Refused(refusal)

    async def _renew(self) -> Refusal | None:
        """Ask for a token and keep it, or say why there is none."""
        try:
            credential = await self._credential()
            client, colon, secret = credential.partition(":")
            if not colon:
                client, secret = "", credential
            self._credentials = _newest(self._credentials, credential, secret)
            form = {"grant_type": "client_credentials", "scope": self._settings.scope, "client_secret": secret}
            asked = anyio.current_time()
            token = self._granted(await self._reply(form | ({"client_id": client} if client else {})))
        except Refused as refused:
            return replace(refused.refusal, reach=Scope.CATALOG)
        self._tokens = _newest(self._tokens, token.value)
        self._value = f"Bearer {token.value}"
        self._until = None
        if token.lasts is not None:
            self._until = asked + token.lasts - min(EARLY, token.lasts / 5)
        return None

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


def auth_of(settings: RestSettings, post: Post) -> Auth:
    """The one way of authorization that the settings ask for."""
    if settings.token_file is not None:
        return TokenFile(settings.name, settings.token_file)
    if settings.credential is not None or settings.credential_file is not None:
        return ClientCredentials(settings, post)
    if settings.token is not None:
        return Fixed(f"Bearer {settings.token}", settings.token)
    parts = urlsplit(settings.uri)
    if parts.username is None:
        return Fixed(None)
    password = unquote(parts.password or "")
    pair = f"{unquote(parts.username)}:{password}"
    basic = b64encode(pair.encode()).decode()
    return Fixed(f"Basic {basic}", basic, password)


def _newest(kept: tuple[str, ...], *secrets: str) -> tuple[str, ...]:
    """The secrets in use first, then as many as are kept of those before, which a late reply may repeat."""
    return tuple(dict.fromkeys((*secrets, *kept)))[:_SECRETS_KEPT]


def secret_in(file: Path) -> str:
    """The content of a file that holds one secret, without the space around it.

    Raises:
        SfnError: it cannot be read, is empty, or no header can carry it.
    """
    try:
        secret = file.read_text("utf-8").strip()
    except OSError as error:
        found = type(error).__name__
    except UnicodeDecodeError:
        found = "bytes that are no UTF-8"
    else:
        if re.fullmatch(r"[\x21-\x7e]+", secret):
            return secret
        found = "spaces or control characters in it" if secret else "an empty file"
    raise SfnError(str(file), expected="one secret in a readable file", found=found)
