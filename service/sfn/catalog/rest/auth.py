"""How a catalog is told who asks: as the settings say. No `repr` of anything here shows a secret."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sfn.catalog.rest.files import RenewedFile
from sfn.catalog.rest.oauth2 import ClientCredentials, PostForm
from sfn.catalog.rest.proof import Auth, AuthRequest, bearer_header, read_secret, recent_secrets
from sfn.catalog.rest.settings import RestSettings
from sfn.errors import SfnError

_EXTRAS: Final = {"sigv4": "s3", "google": "gcs"}
"""What brings the packages of a way."""


class FixedAuth:
    """Nothing, or the same value of the header Authorization always."""

    def __init__(self, value: str | None, *secrets: str) -> None:
        self._headers = {} if value is None else {"authorization": value}
        self._secrets = secrets

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        return self._headers

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return rejected != self._headers

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return self._secrets


class TokenFileAuth:
    """A bearer token in a file that somebody else renews: a mounted secret, a sidecar's token."""

    def __init__(self, catalog: str, file: Path) -> None:
        self._token = RenewedFile(catalog, "token_file", file, "token", read_secret)
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        return self._headers_for(await self._token.current())

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return self._headers_for(await self._token.refresh()) != rejected

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return await self.headers(AuthRequest("GET", "")) != rejected

    def secrets(self) -> tuple[str, ...]:
        return self._recent

    def _headers_for(self, token: str) -> Mapping[str, str]:
        self._recent = recent_secrets(self._recent, token)
        return bearer_header(token)


def build_auth(settings: RestSettings, post: PostForm) -> Auth:
    """The one way of showing who asks that the settings want.

    Args:
        settings: of the catalog.
        post: how tokens are asked for.

    Raises:
        SfnError: it needs what is not installed.
    """
    return _cloud_auth(settings) or _plain_auth(settings, post)


def check_installed(settings: RestSettings) -> None:
    """See whether all is installed that showing who asks needs; raises as `auth_of`."""
    _cloud_auth(settings)


def _cloud_auth(settings: RestSettings) -> Auth | None:
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


def _plain_auth(settings: RestSettings, post: PostForm) -> Auth:
    if settings.token_file is not None:
        return TokenFileAuth(settings.name, settings.token_file)
    if settings.credential is not None or settings.credential_file is not None:
        return ClientCredentials(settings, post)
    if settings.token is not None:
        return FixedAuth(f"Bearer {settings.token}", settings.token)
    parts = urlsplit(settings.uri)
    if parts.username is None:
        return FixedAuth(None)
    password = unquote(parts.password or "")
    pair = f"{unquote(parts.username)}:{password}"
    basic = b64encode(pair.encode()).decode()
    return FixedAuth(f"Basic {basic}", basic, password)
