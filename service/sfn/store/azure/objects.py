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
from sfn.store.azure.places import Place, place_of
from sfn.store.azure.terms import AccessToken, AccountKey, Application, AzureTerms, Chain, SharedSignature
from sfn.store.azure.tokens import Tokens
from sfn.store.azure.transport import Transport
from sfn.store.content import media_type
from sfn.store.objects import Found, Kind, Page, Refused
from sfn.store.pool import Pool

MADE_UP: Final = f'"0x{"0" * 15}"'
"""An entity tag that no blob has: they are made of the time."""
_VERSION: Final = "2021-12-02"
"""Of the protocol: it has all that we ask for. The SDK's own is newer than what emulators and private clouds know."""
_MARK: Final = "sfnwrite"
"""Metadata is named as things are in C#."""
_TAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")
_FOLDER: Final = "hdi_isfolder"
"""What marks a directory: one of Data Lake, and one that Hadoop or a portal makes up."""
_SILENT: Final = logging.getLogger(f"{__name__}.requests")
"""Where the SDK tells of each request: nowhere, for the service counts them."""
_SILENT.setLevel(logging.CRITICAL)

_T = TypeVar("_T")


class AzureObjects:
    """Implements `Objects`; keys are canonical: `abfss://container@account.dfs.core.windows.net/…`.

    Args:
        terms: where, as whom.
        pool: what requests are sent over; shared with others.
    """

    def __init__(self, terms: AzureTerms, pool: Pool) -> None:
        self._terms, self._transport = terms, Transport(pool)
        self._tokens = Tokens(terms.identity) if isinstance(terms.identity, AccessToken | Application | Chain) else None
        self._accounts: dict[tuple[str, str], BlobServiceClient] = {}

    async def get(self, key: str, most: int) -> Found:
        return await _answered(_whole(self._blob(key), most))

    async def part(self, key: str, start: int, most: int) -> bytes:
        found = await _answered(_part(self._blob(key), start, most))
        return b"" if found is None else found.body

    async def put(self, key: str, body: bytes, replacing: str | None, mark: str) -> str:
        written = await _answered(
            self._blob(key).upload_blob(
                body,
                length=len(body),
                metadata={_MARK: mark},
                content_settings=ContentSettings(content_type=media_type(key), cache_control="no-store"),
                overwrite=replacing is not None,
                **({} if replacing is None else _only(replacing)),
            )
        )
        return _tagged(written.get("etag"))

    async def delete(self, key: str, expected: str | None) -> None:
        await _answered(self._blob(key).delete_blob(**({} if expected is None else _only(expected))))

    async def page(self, prefix: str, most: int, begin: str | None) -> Page:
        place = place_of(prefix, self._terms)
        container = self._account(place).get_container_client(place.container)
        listing = container.walk_blobs(place.path, include=["metadata"], delimiter="/", results_per_page=most)
        return await _answered(_page(listing, begin, place.home))

    async def close(self) -> None:
        if self._tokens is not None:
            await self._tokens.close()

    def _blob(self, key: str) -> BlobClient:
        place = place_of(key, self._terms)
        return self._account(place).get_blob_client(place.container, place.path)

    def _account(self, place: Place) -> BlobServiceClient:
        account = self._accounts.get((place.url, place.account))
        if account is None:
            account = self._accounts[place.url, place.account] = BlobServiceClient(
                place.url,
                self._credential(place),
                transport=self._transport,
                api_version=_VERSION,
                # What failed is tried again by who knows what it was for.
                retry_total=0,
                # What opens the account is for nobody else.
                permit_redirects=False,
                # However long a part is, it is one request.
                max_single_get_size=sys.maxsize,
                user_agent="iceberg-sfn",
                logger=_SILENT,
            )
        return account

    def _credential(self, place: Place) -> AzureNamedKeyCredential | AzureSasCredential | Tokens | None:
        if self._tokens is not None and not place.url.startswith("https:"):
            found = "access tokens, which are not shown where there is no TLS"
            raise Refused(Kind.UNKNOWN, found, "set an https: endpoint, or use other credentials")
        match self._terms.identity:
            case AccountKey(key):
                return AzureNamedKeyCredential(place.account, key)
            case SharedSignature(token):
                return AzureSasCredential(token)
            case _:
                return self._tokens


async def _answered(asked: Awaitable[_T]) -> _T:
    """What the SDK makes of an answer.

    Raises:
        Refused: it is another than was asked for.
    """
    try:
        return await asked
    except AzureError as error:
        raise answers.refused(error) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # What the SDK meets in answers that are not Blob Storage's.
        raise answers.nonsense(error) from error


async def _whole(blob: BlobClient, most: int) -> Found:
    """A blob from its beginning on. An empty one takes two requests: of nothing there is no part that could be had."""
    found = await _part(blob, 0, most)
    if found is None:
        properties = await blob.get_blob_properties()
        if properties.size:
            raise Refused(Kind.MOVED, "a blob that was empty a moment ago")
        found = _found(b"", properties)
    return found


async def _part(blob: BlobClient, start: int, most: int) -> Found | None:
    """None where a blob ends before that."""
    try:
        part = await blob.download_blob(offset=start, length=most, most=most)
    except AzureError as error:
        if answers.is_beyond(error):
            return None
        raise
    return _found(await part.read(), part.properties)


def _found(body: bytes, properties: BlobProperties) -> Found:
    if _is_folder(properties):
        raise Refused(Kind.UNFIT, "a directory, where a file belongs")
    return Found(body, _tagged(properties.etag), properties.metadata.get(_MARK))


async def _page(listing: AsyncItemPaged[BlobProperties | BlobPrefix], begin: str | None, home: str) -> Page:
    pages = listing.by_page(begin)
    items = [item async for item in await anext(pages)]
    # Folders without a blob of their own come as something else.
    names = [item.name for item in items if isinstance(item, BlobProperties) and not _is_folder(item)]
    # Of its own pages alone does the SDK tell what comes after.
    more = pages.continuation_token if isinstance(pages, AsyncPageIterator) else None
    return Page(tuple(home + name for name in names), more)


def _is_folder(properties: BlobProperties) -> bool:
    marks = {name.lower(): str(value).lower() for name, value in (properties.metadata or {}).items()}
    return marks.get(_FOLDER) == "true" or properties.name.endswith("/")


def _only(tag: str) -> Mapping[str, Any]:
    """The condition that a blob has this tag; a star would be that it has any, and the SDK takes nothing for none."""
    if _TAG.fullmatch(tag) is None:
        raise Refused(Kind.MOVED, f"a tag that is no entity tag ({len(tag)} characters)")
    return {"etag": tag, "match_condition": MatchConditions.IfNotModified}


def _tagged(tag: object) -> str:
    if not isinstance(tag, str):
        raise Refused(Kind.TAGLESS, "an answer that has no ETag")
    return tag
