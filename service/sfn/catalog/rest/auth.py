"""How a catalog is told who asks: as the settings say. No `repr` of anything here shows a secret."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sfn.catalog.rest.files import Renewed
from sfn.catalog.rest.oauth2 import ClientCredentials, Post
from sfn.catalog.rest.proof import Auth, Request, bearer, newest, secret_in
from sfn.catalog.rest.settings import RestSettings
from sfn.errors import SfnError

_EXTRAS: Final = {"sigv4": "s3", "google": "gcs"}
"""What brings the packages of a way."""


class Fixed:
    """Nothing, or the same value of the header Authorization always."""

    def __init__(self, value: str | None, *secrets: str) -> None:
        self._headers = {} if value is None else {"authorization": value}
        self._secrets = secrets

    async def headers(self, request: Request) -> Mapping[str, str]:
        return self._headers

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        return refused != self._headers

    async def doubted(self, refused: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return self._secrets


class TokenFile:
    """A bearer token in a file that somebody else renews: a mounted secret, a sidecar's token."""

    def __init__(self, catalog: str, file: Path) -> None:
        self._token = Renewed(catalog, "token_file", file, "token", secret_in)
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: Request) -> Mapping[str, str]:
        return self._shown(await self._token.current())

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        return self._shown(await self._token.anew()) != refused

    async def doubted(self, refused: Mapping[str, str]) -> bool:
        return await self.headers(Request("GET", "")) != refused

    def secrets(self) -> tuple[str, ...]:
        return self._recent

    def _shown(self, token: str) -> Mapping[str, str]:
        self._recent = newest(self._recent, token)
        return bearer(token)


def auth_of(settings: RestSettings, post: Post) -> Auth:
    """The one way of showing who asks that the settings want.

    Args:
        settings: of the catalog.
        post: how tokens are asked for.

    Raises:
        SfnError: it needs what is not installed.
    """
    return _of_a_cloud(settings) or _plain(settings, post)


def check(settings: RestSettings) -> None:
    """See whether all is installed that showing who asks needs; raises as `auth_of`."""
    _of_a_cloud(settings)


def _of_a_cloud(settings: RestSettings) -> Auth | None:
    """By what an extra brings, which takes half a second to be imported."""
    try:
        match settings.auth:
            case "sigv4":
                from sfn.catalog.rest.sigv4 import SigV4

                return SigV4(settings)
            case "google":
                from sfn.catalog.rest.google import GoogleTokens

                return GoogleTokens(settings)
            case None:
                return None
    except ImportError as error:
        raise _not_installed(settings, error) from None


def _not_installed(settings: RestSettings, error: ImportError) -> SfnError:
    extra = _EXTRAS.get(settings.auth or "", "")
    return SfnError(
        f"catalogs.{settings.name}.auth",
        expected=f"what {settings.auth} needs",
        found=f"no module {(error.name or '').partition('.')[0]}",
        remedy=f"pip install '.[{extra}]'",
    )


def _plain(settings: RestSettings, post: Post) -> Auth:
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
