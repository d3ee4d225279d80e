"""`AzureClient`: blobs on Azure Blob Storage, with a hierarchical namespace (Data Lake Gen2) or without."""

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
from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply

_SUFFIX: Final = "core.windows.net"


@dataclass(frozen=True, slots=True)
class AccountKey:
    """One of the two keys of a storage account."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SharedSignature:
    """A shared access signature of an account, a container or a folder, with or without a leading `?`."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token of Microsoft Entra, which another program renews."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class EntraApplication:
    """An application of Microsoft Entra, with its secret."""

    tenant_id: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DefaultCredentialChain:
    """The identity that Azure's own tools find: environment, workload identity, managed identity, command line.

    Attributes:
        client_id: id of one of several managed identities; None for the only one.
    """

    client_id: str | None = None


AzureIdentity: TypeAlias = AccountKey | SharedSignature | AccessToken | EntraApplication | DefaultCredentialChain


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Address and identity of Blob Storage.

    Attributes:
        identity: identity of the requests; None for anonymous requests.
        endpoint: URL of one account's blobs, other than Azure's own: everything before a container's name. None for the
            host of each key.
        account: the only account that is accessed; None for the account of each key.
    """

    identity: AzureIdentity | None = DefaultCredentialChain()
    endpoint: str | None = None
    account: str | None = None


def options_from_connection_string(connection: str) -> AzureOptions:
    """Return the options of a connection string, as a storage account shows it.

    Raises:
        SfnError: the string is invalid.
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


_KEY: Final = re.compile(r"(abfss://([^/@]+)@([^/@]+)/)(.*)", re.DOTALL)
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9-]+)(?P<zone>(?:\.z[0-9]+)?)\.(?:dfs|blob)\."
    r"(?P<suffix>core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net"
    r"|storage\.azure\.net|fabric\.microsoft\.com)",
)
"""Azure's own hosts only, as a request's credentials open the account. The last one is OneLake's."""


@dataclass(frozen=True, slots=True)
class BlobAddress:
    """The address of a blob.

    Attributes:
        prefix: common prefix of all keys of the container.
        account: name of the account.
        url: URL of the account's blobs.
        container: name of the container.
        path: name of the blob, or its beginning.
    """

    prefix: str
    account: str
    url: str
    container: str
    path: str


def blob_address(key: str, options: AzureOptions) -> BlobAddress:
    """Return the address of a key.

    Data Lake's own protocol offers no more for files than the blobs' does, so `dfs` and `blob` are equivalent here.

    Raises:
        RequestFailed: the host must not receive credentials, or the key names no container.
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


TOKEN_TIMEOUT: Final = 30.0
"""Seconds for a new token: the chain tries several sources, some of them programs."""
RETRY_AFTER_FAILURE: Final = 5.0
"""Seconds until the next attempt after a failure; callers get the same error meanwhile."""
_STORAGE_SCOPE: Final = "https://storage.azure.com/.default"
"""Scope of the tokens. A scope that a server's refusal asks for is ignored."""
_ENTRA_CODE: Final = re.compile(r"AADSTS[0-9]+")
_LOGIN_REMEDY: Final = (
    "check the tenant, the client and its secret, or give this workload an identity "
    "(`az account get-access-token --resource https://storage.azure.com` shows what is found)"
)
_REACH_REMEDY: Final = "check whether Microsoft Entra can be reached from here, or the instance's metadata service"


class EntraTokens(AsyncTokenCredential):
    """The tokens of one identity, in the SDK's interface. The SDK caches each until shortly before its expiry.

    Args:
        identity: the identity.
        limit: seconds for a new token.
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
        """Return a token for storage.

        Raises:
            RequestFailed: there is no token.
        """
        if isinstance(self._identity, AccessToken):
            # Its expiry is unknown. With an earlier expiry the SDK would ask for another token.
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
        """Return the source of tokens, built on a thread: that reads files and takes a third of a second."""
        async with self._making:
            if self._source is None:
                self._source = await to_thread.run_sync(_source, identity)
            return self._source

    def _failure(self, error: Exception) -> RequestFailed:
        """Return the failure with its code only: the rest of the message may repeat the request's secrets."""
        if isinstance(error, TimeoutError):
            return RequestFailed(ErrorKind.UNAUTHENTICATED, f"no access token within {self._limit:g} s", _LOGIN_REMEDY)
        if isinstance(error, ServiceRequestError | ServiceResponseError):
            return RequestFailed(
                ErrorKind.UNREACHABLE,
                f"no answer of the server that issues access tokens ({type(error).__name__})",
                _REACH_REMEDY,
            )
        code = _ENTRA_CODE.search(str(error))
        found = type(error).__name__ + (f", {code[0]}" if code else "")
        return RequestFailed(ErrorKind.UNAUTHENTICATED, f"no access token ({found})", _LOGIN_REMEDY)


def _source(identity: EntraApplication | DefaultCredentialChain) -> AsyncTokenCredential:
    if isinstance(identity, EntraApplication):
        # Callers retry themselves; the sources in the default chain need their own retries.
        return ClientSecretCredential(identity.tenant_id, identity.client_id, identity.client_secret, retry_total=0)
    # Without an explicit client id, the SDK takes the environment's.
    named = {} if identity.client_id is None else {"managed_identity_client_id": identity.client_id}
    return DefaultAzureCredential(**named)


class PoolTransport(AsyncHttpTransport[HttpRequest, "AzureResponse"]):
    """The SDK's transport over a pool, which stays open when the transport is closed.

    A body is complete before the SDK sees any of it, so the SDK never repeats a request because its body broke off.
    Failures are `RequestFailed`, which the SDK passes through.
    """

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool

    @override
    async def send(self, request: HttpRequest, *, most: int = BODY_LIMIT, **_: object) -> AzureResponse:
        """Send a request and return its answer.

        Args:
            most: see `HttpPool.exchange`; the SDK passes options that it does not know to this method.
        """
        body = request.data if isinstance(request.data, bytes) else b""
        reply = await self._pool.exchange(request.method, request.url, request.headers, body, most)
        return AzureResponse(request, reply)

    @override
    async def open(self) -> None:
        """Do nothing: the pool opens itself."""

    @override
    async def close(self) -> None:
        """Do nothing: the pool has another owner."""

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

    The SDK sees only status and headers of a refusal. They contain the error
    (https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2), and the body may be another
    server's.
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
        """Return the body, as the answers of the SDK's own transports do."""
        return self._body

    @override
    def stream_download(
        self, pipeline: AsyncPipeline[HttpRequest, AsyncHttpResponse], *, decompress: bool = True, **_: object
    ) -> AzureBody:
        return AzureBody(self)


class AzureBody(AsyncIterator[bytes]):
    """A body that is already complete.

    Attributes:
        response: the answer that the body belongs to.
        content_length: length in bytes.
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


_KIND_BY_CODE: Final = {
    "BlobNotFound": ErrorKind.MISSING,
    "AccountIsDisabled": ErrorKind.NO_BUCKET,
    "ContainerBeingDeleted": ErrorKind.NO_BUCKET,
    "ContainerDisabled": ErrorKind.NO_BUCKET,
    "BlobAlreadyExists": ErrorKind.PRECONDITION_FAILED,
    "BlobImmutableDueToLegalHold": ErrorKind.DENIED,
    "BlobImmutableDueToPolicy": ErrorKind.DENIED,
    "PublicAccessNotPermitted": ErrorKind.DENIED,
    # The answer to anonymous requests to a container that is not public.
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
"""Meaning of codes that differ from their status."""
_LEASE: Final = "end the lease that another program has on this blob"
_RETAINED: Final = "lift the immutability policy or the legal hold: it forbids to replace and to delete these files"
_NAMELESS: Final = "give the store credentials: requests have none, and the container accepts no anonymous requests"
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
    "ResourceTypeMismatch": "check what the path is: perhaps a directory, or a file in a directory's place",
    "SnapshotsPresent": "delete the blob's snapshots: a blob with snapshots cannot be deleted",
}
_KIND_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.NOT_FOUND: ErrorKind.NO_BUCKET,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    # Another program works on the blob or the account; dozens of codes say so.
    HTTPStatus.CONFLICT: ErrorKind.CHANGED_TOO_OFTEN,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
    HTTPStatus.NOT_IMPLEMENTED: ErrorKind.UNSUPPORTED,
}
_WAIT: Final = "wait until the other operation on this blob has ended; the code is in Azure's documentation"
_CODE_HEADER: Final = "x-ms-error-code"
_CODE_SHAPE: Final = re.compile(r"[A-Za-z0-9]{1,64}")


def failure_of(error: AzureError) -> RequestFailed:
    """Return the failure that an error of the SDK means."""
    response = error.response if isinstance(error, HttpResponseError) else None
    if response is None and isinstance(error, ClientAuthenticationError):
        # The request was not sent, because it could not be signed.
        return RequestFailed(
            ErrorKind.UNAUTHENTICATED, "an account key that is not valid", "copy it from the account's page"
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
    """Return the failure for an answer that the SDK cannot read."""
    return RequestFailed(ErrorKind.NO_ANSWER, f"an answer that cannot be read ({type(error).__name__})")


def is_past_end(error: AzureError) -> bool:
    """Return True if the requested part begins after the end of the blob: any part of an empty blob does."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def _kind_of(status: int) -> ErrorKind:
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    # A lower status is a redirect, which may lead anywhere.
    return ErrorKind.REJECTED if status >= HTTPStatus.BAD_REQUEST else ErrorKind.NO_BUCKET


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None


IMPOSSIBLE_ETAG: Final = f'"0x{"0" * 15}"'
"""An etag that no blob has: etags are times."""
_VERSION: Final = "2021-12-02"
"""Version of the protocol. It is enough for us, and emulators and private clouds do not know the SDK's newer one."""
_WRITE_ID: Final = "sfnwrite"
"""Name of the metadata; Azure requires a valid C# identifier."""
_ETAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")
_FOLDER: Final = "hdi_isfolder"
"""Metadata of a directory, both of Data Lake and of Hadoop or a portal."""
_NO_LOG: Final = logging.getLogger(f"{__name__}.requests")
"""Logger for the SDK's requests; it is silent, as the service has metrics for them."""
_NO_LOG.setLevel(logging.CRITICAL)

_T = TypeVar("_T")


class AzureClient:
    """An `ObjectClient` for canonical keys: `abfss://container@account.dfs.core.windows.net/…`.

    Args:
        options: address and identity.
        pool: connections, shared with other clients.
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
                # The caller retries, as only it knows the purpose of a request.
                retry_total=0,
                # Credentials must not go to another server.
                permit_redirects=False,
                # A part of any length is one request.
                max_single_get_size=sys.maxsize,
                user_agent="iceberg-sfn",
                logger=_NO_LOG,
            )
        return account

    def _credential(self, address: BlobAddress) -> AzureNamedKeyCredential | AzureSasCredential | EntraTokens | None:
        if self._tokens is not None and not address.url.startswith("https:"):
            found = "access tokens, which must not be sent without TLS"
            raise RequestFailed(ErrorKind.UNAUTHENTICATED, found, "set an https: endpoint, or use other credentials")
        match self._options.identity:
            case AccountKey(key):
                return AzureNamedKeyCredential(address.account, key)
            case SharedSignature(token):
                return AzureSasCredential(token)
            case _:
                return self._tokens


async def _map_errors(request: Awaitable[_T]) -> _T:
    """Return the result of an SDK call.

    Raises:
        RequestFailed: the call failed.
    """
    try:
        return await request
    except AzureError as error:
        raise failure_of(error) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Errors of the SDK on answers that are not Blob Storage's.
        raise failure_of_unreadable(error) from error


async def _fetch_whole(blob: BlobClient, limit: int) -> FetchedObject:
    """Return the beginning of a blob. An empty blob takes two requests, as it has no part that could be requested."""
    found = await _fetch_range(blob, 0, limit)
    if found is None:
        properties = await blob.get_blob_properties()
        if properties.size:
            raise RequestFailed(ErrorKind.PRECONDITION_FAILED, "a blob that was empty a moment ago")
        found = _to_fetched(b"", properties)
    return found


async def _fetch_range(blob: BlobClient, start: int, length: int) -> FetchedObject | None:
    """Return a part of a blob, None if the blob ends before `start`."""
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
    # Folders without a blob of their own have another class.
    names = [item.name for item in items if isinstance(item, BlobProperties) and not _is_folder(item)]
    # The SDK declares the continuation token on its own page class only.
    more = pages.continuation_token if isinstance(pages, AsyncPageIterator) else None
    return ObjectPage(tuple(prefix + name for name in names), more)


def _is_folder(properties: BlobProperties) -> bool:
    marks = {name.lower(): str(value).lower() for name, value in (properties.metadata or {}).items()}
    return marks.get(_FOLDER) == "true" or properties.name.endswith("/")


def _if_match(etag: str) -> Mapping[str, Any]:
    """Return the condition for an etag. `*` would match any version, and the SDK ignores an empty one."""
    if _ETAG.fullmatch(etag) is None:
        raise RequestFailed(ErrorKind.PRECONDITION_FAILED, f"an invalid etag ({len(etag)} characters)")
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _checked_etag(etag: object) -> str:
    if not isinstance(etag, str):
        raise RequestFailed(ErrorKind.NO_ETAG, "an answer that has no ETag")
    return etag
