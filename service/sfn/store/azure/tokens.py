"""Access tokens of Microsoft Entra, found as Azure's own tools find them."""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Final, Self

import anyio
from anyio import to_thread
from azure.core import credentials
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
from typing_extensions import override

from sfn.store.azure.terms import AccessToken, DefaultCredentialChain, EntraApplication
from sfn.store.objects import ErrorKind, RequestFailed

TOKEN_TIMEOUT: Final = 30.0
"""Seconds: the chain asks several who may have one, also programs."""
RETRY_AFTER_FAILURE: Final = 5.0
"""Seconds until one is asked for again where none was to be had: whoever waits meanwhile is told the same."""
_STORAGE_SCOPE: Final = "https://storage.azure.com/.default"
"""What tokens are good for: not what a service that refuses one wants another to be good for."""
_ENTRA_CODE: Final = re.compile(r"AADSTS[0-9]+")
_LOGIN_REMEDY: Final = (
    "check the tenant, the client and its secret, or give this workload an identity "
    "(`az account get-access-token --resource https://storage.azure.com` shows what is found)"
)
_REACH_REMEDY: Final = "see whether Microsoft Entra can be reached from here, or the instance's metadata service"


class EntraTokens(AsyncTokenCredential):
    """The tokens of one identity, as the SDK asks for them; it keeps each until shortly before its end.

    Args:
        identity: whose.
        limit: seconds that may pass until one is found.
    """

    def __init__(
        self, identity: AccessToken | EntraApplication | DefaultCredentialChain, *, limit: float = TOKEN_TIMEOUT
    ) -> None:
        self._identity, self._limit = identity, limit
        self._source: AsyncTokenCredential | None = None
        self._making = anyio.Lock()
        self._failed: tuple[float, RequestFailed] | None = None

    @override
    async def get_token(
        self,
        *scopes: str,
        claims: str | None = None,
        tenant_id: str | None = None,
        enable_cae: bool = False,
        **options: object,
    ) -> credentials.AccessToken:
        """A token for storage.

        Raises:
            Refused: none is to be had.
        """
        if isinstance(self._identity, AccessToken):
            # Nobody tells us its end, before which the SDK would ask for another one.
            return credentials.AccessToken(self._identity.token, sys.maxsize)
        if self._failed is not None and anyio.current_time() < self._failed[0]:
            raise RequestFailed(*self._failed[1].args)
        try:
            with anyio.fail_after(self._limit):
                source = self._source or await self._make_source(self._identity)
                return await source.get_token(_STORAGE_SCOPE, claims=claims, tenant_id=tenant_id, enable_cae=enable_cae)
        except (AzureError, TimeoutError, ValueError) as error:
            refused = self._failure(error)
            self._failed = anyio.current_time() + RETRY_AFTER_FAILURE, refused
            raise refused from error

    @override
    async def close(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            await source.close()

    @override
    async def __aenter__(self) -> Self:
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()

    async def _make_source(self, identity: EntraApplication | DefaultCredentialChain) -> AsyncTokenCredential:
        """What gives the tokens. It looks into files, and takes a third of a second to make: for a thread."""
        async with self._making:
            if self._source is None:
                self._source = await to_thread.run_sync(_source, identity)
            return self._source

    def _failure(self, error: Exception) -> RequestFailed:
        """Without what others say: only its code helps, and all else may repeat what it was asked with."""
        if isinstance(error, TimeoutError):
            return RequestFailed(ErrorKind.UNAUTHENTICATED, f"no access token within {self._limit:g} s", _LOGIN_REMEDY)
        if isinstance(error, ServiceRequestError | ServiceResponseError):
            return RequestFailed(
                ErrorKind.UNREACHABLE,
                f"no answer of who gives out access tokens ({type(error).__name__})",
                _REACH_REMEDY,
            )
        code = _ENTRA_CODE.search(str(error))
        found = type(error).__name__ + (f", {code[0]}" if code else "")
        return RequestFailed(ErrorKind.UNAUTHENTICATED, f"no access token ({found})", _LOGIN_REMEDY)


def _source(identity: EntraApplication | DefaultCredentialChain) -> AsyncTokenCredential:
    if isinstance(identity, EntraApplication):
        # Whoever asks for a token asks again; what the chain asks is known to need it.
        return ClientSecretCredential(identity.tenant_id, identity.client_id, identity.client_secret, retry_total=0)
    # Without one, it is the environment's.
    named = {} if identity.client_id is None else {"managed_identity_client_id": identity.client_id}
    return DefaultAzureCredential(**named)
