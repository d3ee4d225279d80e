"""Authentication with Google's access tokens. Needs the extra `gcs`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.catalogs.rest.auth import AuthRequest, CloudCredentials, bearer_header, recent_secrets
from sfn.catalogs.rest.settings import RestSettings
from sfn.google_auth import GoogleCredentialChain, GoogleIdentity


class GoogleTokens:
    """Tokens of a service account, or of the application default credentials.

    Args:
        settings: settings with `scope`.
    """

    def __init__(self, settings: RestSettings) -> None:
        identity, limit = GoogleIdentity(file=settings.google_credentials_file), settings.config_timeout
        scopes = settings.scope.split()
        self._tokens = CloudCredentials(
            settings.name,
            limit,
            lambda: GoogleCredentialChain(identity, scopes, limit=limit),
            GoogleCredentialChain.token,
        )
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        token = await self._tokens.current()
        self._recent = recent_secrets(self._recent, token)
        return bearer_header(token)

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return await self._tokens.renew(lambda token: bearer_header(token) == rejected)

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return self._recent
