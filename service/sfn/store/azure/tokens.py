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
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline.transport import AioHttpTransport
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
from typing_extensions import override

from sfn.store.azure.terms import AccessToken, Application, Chain
from sfn.store.objects import Kind, Refused

FOUND_WITHIN: Final = 30.0
"""Seconds: the chain asks several who may have one, also programs."""
AGAIN: Final = 5.0
"""Seconds until one is asked for again where none was to be had: whoever waits meanwhile is told the same."""
_STORAGE: Final = "https://storage.azure.com/.default"
"""What tokens are good for, whatever the one who asks for them names: https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory"""
_CODE: Final = re.compile(r"AADSTS[0-9]+")
_LOGIN: Final = "see that this workload has an identity (`az account get-access-token` shows what is found)"


class Tokens(AsyncTokenCredential):
    """The tokens of one identity, as the SDK asks for them; it keeps each until shortly before its end.

    Args:
        identity: whose.
        limit: seconds that may pass until one is found.
    """

    def __init__(self, identity: AccessToken | Application | Chain, *, limit: float = FOUND_WITHIN) -> None:
        self._identity, self._limit = identity, limit
        self._source: AsyncTokenCredential | None = None
        self._making = anyio.Lock()
        self._failed: tuple[float, Refused] | None = None

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
            # The SDK would ask for another one before this one's end, which nobody tells us.
            return credentials.AccessToken(self._identity.token, sys.maxsize)
        if self._failed is not None and anyio.current_time() < self._failed[0] + AGAIN:
            raise self._failed[1]
        try:
            with anyio.fail_after(self._limit):
                source = self._source or await self._made(self._identity)
                return await source.get_token(_STORAGE, claims=claims, tenant_id=tenant_id, enable_cae=enable_cae)
        except TimeoutError as error:
            refused = Refused(Kind.UNKNOWN, f"no token within {self._limit:g} s", _LOGIN)
            self._failed = anyio.current_time(), refused
            raise refused from error
        except (AzureError, ValueError) as error:
            refused = _refused(error)
            self._failed = anyio.current_time(), refused
            raise refused from error

    @override
    async def close(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            await source.close()

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

    async def _made(self, identity: Application | Chain) -> AsyncTokenCredential:
        """What gives the tokens. It looks into files, and takes a third of a second to make: for a thread."""
        async with self._making:
            if self._source is None:
                self._source = await to_thread.run_sync(_source, identity)
            return self._source
