"""Blob Storage's requests for one blob: written, signed and read by Azure's SDK, sent over one pool of connections."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

from azure.core import MatchConditions
from azure.core.async_paging import AsyncItemPaged, AsyncPageIterator
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobProperties, ContentSettings
from azure.storage.blob.aio import BlobClient, BlobPrefix, BlobServiceClient

from sfn.store.azure import answers
from sfn.store.azure.places import BlobAddress, blob_address
from sfn.store.azure.terms import (
    AccessToken,
    AccountKey,
    AzureOptions,
    DefaultCredentialChain,
    EntraApplication,
    SharedSignature,
)
from sfn.store.azure.tokens import EntraTokens
from sfn.store.azure.transport import PoolTransport
from sfn.store.content import media_type
from sfn.store.objects import ErrorKind, FetchedObject, ObjectPage, RequestFailed
from sfn.store.pool import HttpPool

IMPOSSIBLE_ETAG: Final = f'"0x{"0" * 15}"'
"""An entity tag that no blob has: they are made of the time."""
_VERSION: Final = "2021-12-02"
"""Of the protocol: it has all that we ask for. The SDK's own is newer than what emulators and private clouds know."""
_WRITE_ID: Final = "sfnwrite"
"""Metadata is named as things are in C#."""
_ETAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")
_FOLDER: Final = "hdi_isfolder"
"""What marks a directory: one of Data Lake, and one that Hadoop or a portal makes up."""
_NO_LOG: Final = logging.getLogger(f"{__name__}.requests")
"""Where the SDK tells of each request: nowhere, for the service counts them."""
_NO_LOG.setLevel(logging.CRITICAL)

_T = TypeVar("_T")


class AzureClient:
    """Implements `ObjectClient`; keys are canonical: `abfss://container@account.dfs.core.windows.net/…`.

    Args:
        terms: where, as whom.
        pool: what requests are sent over; shared with others.
    """

    def __init__(self, options: AzureOptions, pool: HttpPool) -> None:
        self._options, self._transport = options, PoolTransport(pool)
        self._tokens = (
            EntraTokens(options.identity)
            if isinstance(options.identity, AccessToken | EntraApplication | DefaultCredentialChain)
            else None
        )
        self._accounts: dict[tuple[str, str], BlobServiceClient] = {}

    async def get(self, key: str, limit: int) -> FetchedObject:
        return await _map_errors(_fetch_whole(self._blob(key), limit))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        found = await _map_errors(_fetch_range(self._blob(key), start, length))
        return b"" if found is None else found.body

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        written = await _map_errors(
            self._blob(key).upload_blob(
                body,
                length=len(body),
                metadata={_WRITE_ID: write_id},
                content_settings=ContentSettings(content_type=media_type(key), cache_control="no-store"),
                overwrite=replacing is not None,
                **({} if replacing is None else _if_match(replacing)),
            )
        )
        return _checked_etag(written.get("etag"))

    async def delete(self, key: str, expected: str | None) -> None:
        await _map_errors(self._blob(key).delete_blob(**({} if expected is None else _if_match(expected))))

    async def list_page(self, prefix: str, limit: int, continuation: str | None) -> ObjectPage:
        address = blob_address(prefix, self._options)
        container = self._account(address).get_container_client(address.container)
        listing = container.walk_blobs(address.path, include=["metadata"], delimiter="/", results_per_page=limit)
        return await _map_errors(_fetch_page(listing, continuation, address.prefix))

    async def close(self) -> None:
        if self._tokens is not None:
            await self._tokens.close()

    def _blob(self, key: str) -> BlobClient:
        address = blob_address(key, self._options)
        return self._account(address).get_blob_client(address.container, address.path)

    def _account(self, address: BlobAddress) -> BlobServiceClient:
        account = self._accounts.get((address.url, address.account))
        if account is None:
            account = self._accounts[address.url, address.account] = BlobServiceClient(
                address.url,
                self._credential(address),
                transport=self._transport,
                api_version=_VERSION,
                # What failed is tried again by who knows what it was for.
                retry_total=0,
                # What opens the account is for nobody else.
                permit_redirects=False,
                # However long a part is, it is one request.
                max_single_get_size=sys.maxsize,
                user_agent="iceberg-sfn",
                logger=_NO_LOG,
            )
        return account

    def _credential(self, address: BlobAddress) -> AzureNamedKeyCredential | AzureSasCredential | EntraTokens | None:
        if self._tokens is not None and not address.url.startswith("https:"):
            found = "access tokens, which are not shown where there is no TLS"
            raise RequestFailed(ErrorKind.UNAUTHENTICATED, found, "set an https: endpoint, or use other credentials")
        match self._options.identity:
            case AccountKey(key):
                return AzureNamedKeyCredential(address.account, key)
            case SharedSignature(token):
                return AzureSasCredential(token)
            case _:
                return self._tokens


async def _map_errors(request: Awaitable[_T]) -> _T:
    """What the SDK makes of an answer.

    Raises:
        Refused: it is another than was asked for.
    """
    try:
        return await request
    except AzureError as error:
        raise answers.failure_of(error) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # What the SDK meets in answers that are not Blob Storage's.
        raise answers.failure_of_unreadable(error) from error


async def _fetch_whole(blob: BlobClient, limit: int) -> FetchedObject:
    """A blob from its beginning on. An empty one takes two requests: of nothing there is no part that could be had."""
    found = await _fetch_range(blob, 0, limit)
    if found is None:
        properties = await blob.get_blob_properties()
        if properties.size:
            raise RequestFailed(ErrorKind.PRECONDITION_FAILED, "a blob that was empty a moment ago")
        found = _to_fetched(b"", properties)
    return found


async def _fetch_range(blob: BlobClient, start: int, length: int) -> FetchedObject | None:
    """None where a blob ends before that."""
    try:
        part = await blob.download_blob(offset=start, length=length, most=length)
    except AzureError as error:
        if answers.is_past_end(error):
            return None
        raise
    return _to_fetched(await part.read(), part.properties)


def _to_fetched(body: bytes, properties: BlobProperties) -> FetchedObject:
    if _is_folder(properties):
        raise RequestFailed(ErrorKind.INVALID_OBJECT, "a directory, where a file belongs")
    return FetchedObject(body, _checked_etag(properties.etag), properties.metadata.get(_WRITE_ID))


async def _fetch_page(
    listing: AsyncItemPaged[BlobProperties | BlobPrefix], continuation: str | None, prefix: str
) -> ObjectPage:
    pages = listing.by_page(continuation)
    items = [item async for item in await anext(pages)]
    # Folders without a blob of their own come as something else.
    names = [item.name for item in items if isinstance(item, BlobProperties) and not _is_folder(item)]
    # Of its own pages alone does the SDK tell what comes after.
    more = pages.continuation_token if isinstance(pages, AsyncPageIterator) else None
    return ObjectPage(tuple(prefix + name for name in names), more)


def _is_folder(properties: BlobProperties) -> bool:
    marks = {name.lower(): str(value).lower() for name, value in (properties.metadata or {}).items()}
    return marks.get(_FOLDER) == "true" or properties.name.endswith("/")


def _if_match(etag: str) -> Mapping[str, Any]:
    """The condition that a blob has this tag; a star would be that it has any, and the SDK takes nothing for none."""
    if _ETAG.fullmatch(etag) is None:
        raise RequestFailed(ErrorKind.PRECONDITION_FAILED, f"a tag that is no entity tag ({len(etag)} characters)")
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _checked_etag(etag: object) -> str:
    if not isinstance(etag, str):
        raise RequestFailed(ErrorKind.NO_ETAG, "an answer that has no ETag")
    return etag
