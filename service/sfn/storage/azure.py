"""Files on Azure Blob Storage, with a hierarchical namespace (Data Lake Gen2) or without."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import anyio
from anyio import to_thread
from azure.core import MatchConditions, credentials
from azure.core.async_paging import AsyncItemPaged, AsyncPageIterator
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline import AsyncPipeline
from azure.core.pipeline.transport import AsyncHttpResponse, AsyncHttpTransport, HttpRequest
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
from azure.storage.blob import BlobProperties, ContentSettings
from azure.storage.blob.aio import BlobClient, BlobPrefix, BlobServiceClient
from multidict import CIMultiDict
from typing_extensions import override

from sfn.errors import SfnError
from sfn.storage import ErrorKind, FetchedObject, ObjectPage, RequestFailed, media_type
from sfn.storage.object_store import BODY_LIMIT, HttpPool, HttpReply

# ── terms: What an adapter to Azure is told

_SUFFIX: Final = "core.windows.net"


@dataclass(frozen=True, slots=True)
class AccountKey:
    """Either key of a storage account."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SharedSignature:
    """A shared access signature: of an account, a container or a folder; with `?` before it or without."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """One of Microsoft Entra, which somebody else renews."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class EntraApplication:
    """One of Microsoft Entra, with its secret."""

    tenant_id: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DefaultCredentialChain:
    """Whoever Azure's own tools find: environment, workload identity, managed identity, command line.

    Attributes:
        client_id: of one of several managed identities; None for the one that there is.
    """

    client_id: str | None = None


AzureIdentity: TypeAlias = AccountKey | SharedSignature | AccessToken | EntraApplication | DefaultCredentialChain


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Where the containers are, and as whom they are asked.

    Attributes:
        identity: who asks; None for nobody.
        endpoint: URL of one account's blobs, other than Azure's own: all that comes before a container's name. None for
            where the host of each key leads.
        account: the only one that is asked; None for whichever a key names.
    """

    identity: AzureIdentity | None = DefaultCredentialChain()
    endpoint: str | None = None
    account: str | None = None


def options_from_connection_string(connection: str) -> AzureOptions:
    """The terms of a connection string, as a storage account shows it.

    Raises:
        SfnError: it makes no sense.
    """
    parts = (part.partition("=") for part in connection.split(";"))
    values = {name.strip().lower(): value.strip() for name, _, value in parts}
    account, endpoint = values.get("accountname", "").lower(), values.get("blobendpoint")
    if not account and not endpoint:
        raise SfnError(
            "connection string",
            expected="one of an Azure storage account",
            found="one that has neither AccountName nor BlobEndpoint",
            remedy="copy it from the account's page of access keys",
        )
    protocol, suffix = values.get("defaultendpointsprotocol") or "https", values.get("endpointsuffix") or _SUFFIX
    identity: AzureIdentity | None = None
    if values.get("accountkey"):
        identity = AccountKey(values["accountkey"])
    elif values.get("sharedaccesssignature"):
        identity = SharedSignature(values["sharedaccesssignature"])
    return AzureOptions(
        identity=identity, endpoint=endpoint or f"{protocol}://{account}.blob.{suffix}", account=account or None
    )


# ── places: Where a key leads

_KEY: Final = re.compile(r"(abfss://([^/@]+)@([^/@]+)/)(.*)", re.DOTALL)
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9-]+)(?P<zone>(?:\.z[0-9]+)?)\.(?:dfs|blob)\."
    r"(?P<suffix>core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net"
    r"|storage\.azure\.net|fabric\.microsoft\.com)",
)
"""Azure's own, and no other's: what is shown there opens the account. The last is OneLake's."""


@dataclass(frozen=True, slots=True)
class BlobAddress:
    """Where a key leads.

    Attributes:
        prefix: how all keys of the container begin.
        account: its name.
        url: of the account's blobs.
        container: its name.
        path: of the blob, or how its name begins.
    """

    prefix: str
    account: str
    url: str
    container: str
    path: str


def blob_address(key: str, options: AzureOptions) -> BlobAddress:
    """Where a key leads.

    Data Lake's own protocol knows no more of files than the blobs' does, so `dfs` and `blob` are one to us.

    Raises:
        Refused: nowhere that credentials may be shown.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise RequestFailed(ErrorKind.INVALID_OBJECT, "a key that names no container before an @")
    prefix, container, host, path = match.groups()
    if options.endpoint is not None:
        account, url = host.partition(".")[0].lower(), options.endpoint.rstrip("/")
    else:
        own = _HOST.fullmatch(host.lower())
        if own is None:
            raise RequestFailed(
                ErrorKind.NO_BUCKET,
                f"the host {host!r}, which is none of Azure's",
                "correct the table's location, or set `stores.NAME.endpoint`",
            )
        account, url = own["account"], f"https://{own['account']}{own['zone']}.blob.{own['suffix']}"
    if options.account not in {None, account}:
        raise RequestFailed(
            ErrorKind.NO_BUCKET,
            f"the account {account!r}, and credentials for {options.account!r}",
            "correct either of them",
        )
    return BlobAddress(prefix, account, url, container, path)


# ── tokens: Access tokens of Microsoft Entra

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


# ── transport: The SDK's requests


class PoolTransport(AsyncHttpTransport[HttpRequest, "AzureResponse"]):
    """Sends over a pool, which stays open when this is closed.

    A body is whole before the SDK sees any of it: so the SDK has nothing to fetch again, as it would on its own account
    where one breaks off. What goes wrong on the way is a `Refused`, which the SDK lets pass.
    """

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool

    @override
    async def send(self, request: HttpRequest, *, most: int = BODY_LIMIT, **_: object) -> AzureResponse:
        """One request and its answer.

        Args:
            most: as of `Pool.exchange`: what the SDK does not know of the options given to it comes here.
        """
        body = request.data if isinstance(request.data, bytes) else b""
        reply = await self._pool.exchange(request.method, request.url, request.headers, body, most)
        return AzureResponse(request, reply)

    @override
    async def open(self) -> None:
        """The pool opens itself."""

    @override
    async def close(self) -> None:
        """The pool is somebody else's."""

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()


class AzureResponse(AsyncHttpResponse):
    """An answer in the form that the SDK reads.

    It shows the SDK no more of a refusal than its status and its headers: those name the error
    (https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2), and what else answers at an address
    may say what it likes.
    """

    def __init__(self, request: HttpRequest, reply: HttpReply) -> None:
        super().__init__(request, reply)
        self._body = reply.body if reply.status < HTTPStatus.MULTIPLE_CHOICES else b""
        self.status_code = reply.status
        self.headers = CIMultiDict(reply.headers)
        self.content_type = reply.headers.get("Content-Type")
        self.reason = f"status {reply.status}"

    @override
    def body(self) -> bytes:
        return self._body

    async def read(self) -> bytes:
        """As of the answers that the SDK's own transports give."""
        return self._body

    @override
    def stream_download(
        self, pipeline: AsyncPipeline[HttpRequest, AsyncHttpResponse], *, decompress: bool = True, **_: object
    ) -> AzureBody:
        return AzureBody(self)


class AzureBody(AsyncIterator[bytes]):
    """A body that is there already.

    Attributes:
        response: whose it is.
        content_length: bytes.
    """

    def __init__(self, response: AzureResponse) -> None:
        self.response = response
        self.content_length = len(response.body())
        self._left = [response.body()]

    @override
    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


# ── answers: What Blob Storage answers

_KIND_BY_CODE: Final = {
    "BlobNotFound": ErrorKind.MISSING,
    "AccountIsDisabled": ErrorKind.NO_BUCKET,
    "ContainerBeingDeleted": ErrorKind.NO_BUCKET,
    "ContainerDisabled": ErrorKind.NO_BUCKET,
    "BlobAlreadyExists": ErrorKind.PRECONDITION_FAILED,
    "BlobImmutableDueToLegalHold": ErrorKind.DENIED,
    "BlobImmutableDueToPolicy": ErrorKind.DENIED,
    "PublicAccessNotPermitted": ErrorKind.DENIED,
    # What nobody in particular is told of a container that is not public.
    "ResourceNotFound": ErrorKind.DENIED,
    "AuthenticationFailed": ErrorKind.UNAUTHENTICATED,
    "InvalidAuthenticationInfo": ErrorKind.UNAUTHENTICATED,
    "KeyBasedAuthenticationNotPermitted": ErrorKind.UNAUTHENTICATED,
    "ServerBusy": ErrorKind.THROTTLED,
    "LeaseIdMismatchWithBlobOperation": ErrorKind.CHANGED_TOO_OFTEN,
    "LeaseIdMissing": ErrorKind.CHANGED_TOO_OFTEN,
    "BlobArchived": ErrorKind.INVALID_OBJECT,
    "BlobBeingRehydrated": ErrorKind.INVALID_OBJECT,
    "InvalidBlobType": ErrorKind.INVALID_OBJECT,
    "InvalidResourceName": ErrorKind.INVALID_OBJECT,
    "InvalidUri": ErrorKind.INVALID_OBJECT,
    "OutOfRangeInput": ErrorKind.INVALID_OBJECT,
    "RequestBodyTooLarge": ErrorKind.INVALID_OBJECT,
    "ResourceTypeMismatch": ErrorKind.INVALID_OBJECT,
    "SnapshotsPresent": ErrorKind.INVALID_OBJECT,
    "ConditionHeadersNotSupported": ErrorKind.UNSUPPORTED,
    "MultipleConditionHeadersNotSupported": ErrorKind.UNSUPPORTED,
    "UnsupportedHeader": ErrorKind.UNSUPPORTED,
}
"""Of codes that mean something else than their status."""
_LEASE: Final = "end the lease that another program has on this blob"
_RETAINED: Final = "lift the immutability policy or the legal hold: it forbids to replace and to delete these files"
_NAMELESS: Final = "give the store credentials: it is asked without, and lets nobody do that"
_ARCHIVED: Final = "keep these files in a tier that is online"
_REMEDIES: Final = {
    "BlobImmutableDueToLegalHold": _RETAINED,
    "BlobImmutableDueToPolicy": _RETAINED,
    "PublicAccessNotPermitted": _NAMELESS,
    "ResourceNotFound": _NAMELESS,
    "NoAuthenticationInformation": _NAMELESS,
    "AuthenticationFailed": "renew or correct them; and set this machine's clock if it is more than 15 minutes off",
    "KeyBasedAuthenticationNotPermitted": "use an identity of Microsoft Entra: this account takes no keys",
    "AuthorizationFailure": "grant it to the service's principal, and let the account's firewall pass this machine",
    "AuthorizationProtocolMismatch": "set an https: endpoint: the signature is good for no other",
    "AuthorizationSourceIPMismatch": "have the signature made for this machine's address",
    "LeaseIdMismatchWithBlobOperation": _LEASE,
    "LeaseIdMissing": _LEASE,
    "PendingCopyOperation": "end the copy that another program makes to this blob",
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    "InvalidBlobType": "delete the blob: it is of another type than files are",
    "ResourceTypeMismatch": "see what lies there: a directory, perhaps, or a file in a directory's place",
    "SnapshotsPresent": "delete the blob's snapshots: without that nobody can delete it",
}
_KIND_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.NOT_FOUND: ErrorKind.NO_BUCKET,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    # Another program is at work on the blob or the account, whichever of dozens of codes says so.
    HTTPStatus.CONFLICT: ErrorKind.CHANGED_TOO_OFTEN,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
    HTTPStatus.NOT_IMPLEMENTED: ErrorKind.UNSUPPORTED,
}
_WAIT: Final = "wait until what else is done to this blob has ended; the code is in Azure's documentation"
_CODE_HEADER: Final = "x-ms-error-code"
_CODE_SHAPE: Final = re.compile(r"[A-Za-z0-9]{1,64}")


def failure_of(error: AzureError) -> RequestFailed:
    """Why a request came to nothing."""
    response = error.response if isinstance(error, HttpResponseError) else None
    if response is None and isinstance(error, ClientAuthenticationError):
        # It was not sent: there was nothing to sign it with.
        return RequestFailed(
            ErrorKind.UNAUTHENTICATED, "an account key that makes no sense", "copy it from the account's page"
        )
    if not isinstance(response, AzureResponse) or response.status_code < HTTPStatus.MULTIPLE_CHOICES:
        return failure_of_unreadable(error)
    status, code = response.status_code, response.headers.get(_CODE_HEADER, "")
    code = code if _CODE_SHAPE.fullmatch(code) else ""
    kind = _KIND_BY_CODE.get(code) or _kind_of(status)
    found = f"status {status}, {code or 'without an error of Blob Storage'}"
    remedy = _REMEDIES.get(code) or (_WAIT if kind is ErrorKind.CHANGED_TOO_OFTEN else "")
    return RequestFailed(kind, found, remedy, _seconds(response.headers.get("Retry-After")))


def failure_of_unreadable(error: Exception) -> RequestFailed:
    """What is said of an answer that the SDK can't read."""
    return RequestFailed(ErrorKind.NO_ANSWER, f"an answer that makes no sense ({type(error).__name__})")


def is_past_end(error: AzureError) -> bool:
    """Whether a part was asked for that begins behind the end: any part of an empty blob does."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def _kind_of(status: int) -> ErrorKind:
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    # Less is a redirect to who knows where.
    return ErrorKind.REJECTED if status >= HTTPStatus.BAD_REQUEST else ErrorKind.NO_BUCKET


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None


# ── objects: Blob Storage's requests for one blob

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
        raise failure_of(error) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # What the SDK meets in answers that are not Blob Storage's.
        raise failure_of_unreadable(error) from error


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
        if is_past_end(error):
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
