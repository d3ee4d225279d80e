"""`RemoteStore`, the `ObjectStore` of every cloud: compare-and-swap with conditional requests.

The module also holds the HTTP connections.
"""

from __future__ import annotations

import secrets
import ssl
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final

import aiohttp
import anyio
from anyio import to_thread
from yarl import URL

from sfn.domain.jobs import StoredObject
from sfn.errors import (
    ErrorScope,
    ExternalError,
    ForbiddenForTable,
    OutcomeUnknown,
    Permanent,
    SfnError,
    Transient,
    Unauthenticated,
)
from sfn.storage import (
    ERROR_BY_REACH,
    HINT_FILE_NAME,
    MAX_READ_BYTES,
    Deleted,
    DenialReach,
    ErrorKind,
    FetchedObject,
    Guarantees,
    ObjectClient,
    ObjectPage,
    PermissionTracker,
    PreconditionFailed,
    RequestFailed,
    check_length,
)
from sfn.storage.probe import CLEANUP_TIMEOUT, PROBE_PREFIX, StoreProbes
from sfn.telemetry import tracing


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """The error class, scope and message that an `ErrorKind` becomes.

    Attributes:
        expected: first half of the message; `{}` stands for the operation.
        remedy: used where the service's answer suggests none.
    """

    error: type[Transient | Permanent]
    scope: ErrorScope
    expected: str
    remedy: str = ""


_VANISHED = ErrorMeaning(Transient, ErrorScope.TABLE, "an object that stays where it is")

ERROR_MAP: Final[Mapping[ErrorKind, ErrorMeaning]] = {
    ErrorKind.MISSING: _VANISHED,
    ErrorKind.PRECONDITION_FAILED: _VANISHED,
    ErrorKind.DENIED: ErrorMeaning(
        ForbiddenForTable, ErrorScope.TABLE, "permission to {} here", "grant it to the service's principal"
    ),
    ErrorKind.UNAUTHENTICATED: ErrorMeaning(
        Unauthenticated, ErrorScope.STORE, "credentials that the store accepts", "renew them"
    ),
    ErrorKind.NO_BUCKET: ErrorMeaning(
        Permanent, ErrorScope.STORE, "a bucket or container of that name", "create it, or correct `[stores.NAME]`"
    ),
    ErrorKind.NO_ENDPOINT: ErrorMeaning(Permanent, ErrorScope.STORE, "settings that say where the store is"),
    ErrorKind.THROTTLED: ErrorMeaning(Transient, ErrorScope.STORE, "a store with room for this request"),
    ErrorKind.CHANGED_TOO_OFTEN: ErrorMeaning(
        Transient, ErrorScope.TABLE, "an object that may be written again", "raise `min_publish_interval`"
    ),
    ErrorKind.UNREACHABLE: ErrorMeaning(
        Transient, ErrorScope.STORE, "a connection to the store", "check whether it can be reached from here"
    ),
    ErrorKind.NO_ANSWER: ErrorMeaning(
        Transient, ErrorScope.STORE, "an answer of the store", "check whether it is in trouble"
    ),
    ErrorKind.NO_ETAG: ErrorMeaning(
        Transient,
        ErrorScope.STORE,
        "an answer with the etag of the object",
        "let the proxies in front of the store pass the header ETag on, or use another store",
    ),
    ErrorKind.UNSUPPORTED: ErrorMeaning(
        Permanent, ErrorScope.STORE, "a store that supports conditional writes", "use another store"
    ),
    ErrorKind.INVALID_OBJECT: ErrorMeaning(Permanent, ErrorScope.TABLE, "a request that the store can carry out"),
    ErrorKind.REJECTED: ErrorMeaning(Permanent, ErrorScope.TABLE, "a request that the store can carry out"),
}
"""Meaning of each kind. A denied or rejected request may concern the whole store: `PermissionTracker` decides."""


_PER_OBJECT: Final = frozenset({ErrorKind.DENIED, ErrorKind.REJECTED})
"""Kinds that a service may return for one object (a policy, a KMS key, a quota) as well as for everything."""
PAGE_SIZE: Final = 1000
"""Keys per page of a listing: the most that all services return."""


class StoreService:
    """Knowledge about one service, shared by all stores on it, whatever their principals.

    Args:
        impossible_etag: an etag in the service's form that no object has.
        unsafe: the setting `unsafe_unconditional_writes`.
        seconds: a monotonic clock.

    Attributes:
        probes: which buckets honour conditions.
        permissions: the tracker for principals of one table each.
        impossible_etag, seconds: see Args.
    """

    def __init__(self, impossible_etag: str, *, unsafe: bool = False, seconds: Callable[[], float] = monotonic) -> None:
        self.impossible_etag, self.seconds = impossible_etag, seconds
        self.probes = StoreProbes(impossible_etag=impossible_etag, unsafe=unsafe)
        self.permissions = PermissionTracker(seconds)


class RemoteStore:
    """An `ObjectStore` on a service's requests.

    Each write carries an id of its own. If its condition does not hold, the id shows whether this very write came
    first: the transport sent it twice, and the first answer was lost.

    Args:
        client: the service's requests, as one principal.
        service: what is known about the service.
        of_one_table: the principal has access to one table's location only, so other folders cannot be witnesses.
    """

    def __init__(self, client: ObjectClient, service: StoreService, *, of_one_table: bool = False) -> None:
        self._client, self._probes = client, service.probes
        # What one principal may do says nothing about another, unless each has a single table.
        self._permissions = service.permissions if of_one_table else PermissionTracker(service.seconds)
        self._impossible_etag, self._of_one_table = service.impossible_etag, of_one_table
        self._process_id, self._writes = secrets.token_hex(8), count(1)
        self._unreadable: set[str] = set()

    async def read(self, key: str) -> StoredObject | None:
        found = await self._fetch(key)
        return None if found is None else StoredObject(found.body, found.etag)

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        try:
            part = await self._client.get_range(key, start, length)
        except RequestFailed as refused:
            if refused.kind is ErrorKind.MISSING or (
                refused.kind is ErrorKind.DENIED and await self._is_listed(key) is False
            ):
                return None
            raise await self._error("read", key, refused) from refused
        self._permissions.note_permitted("read", key)
        return part

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        check_length(key, body)
        self._probes.check_not_refused(key)
        write_id = f"{self._process_id}-{next(self._writes)}"
        try:
            condition = None if replacing is None else self._probes.etag_condition(key, replacing.etag)
            etag = await self._client.put(key, body, condition, write_id)
        except RequestFailed as refused:
            # Some services answer the replacement of a missing object with "no such object".
            if refused.kind in {ErrorKind.PRECONDITION_FAILED, ErrorKind.MISSING}:
                return await self._resolve_lost_answer(key, body, write_id, refused)
            raise await self._error("write", key, refused, changes=True) from refused
        self._permissions.note_permitted("write", key)
        self._unreadable.discard(key)
        return StoredObject(body, etag)

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        self._probes.check_not_refused(key)
        try:
            await self._client.delete(key, self._probes.etag_condition(key, expected.etag))
        except RequestFailed as refused:
            if refused.kind is ErrorKind.MISSING:
                return Deleted()
            if refused.kind is ErrorKind.PRECONDITION_FAILED:
                return Deleted() if await self._fetch(key) is None else PreconditionFailed()
            raise await self._error("delete", key, refused, changes=True) from refused
        self._permissions.note_permitted("delete", key)
        return Deleted()

    async def discard(self, key: str) -> None:
        """Delete a file of the probe, whatever its content. No other file may be deleted this way.

        Raises:
            ExternalError: as `delete`.
        """
        try:
            await self._client.delete(key, None)
        except RequestFailed as refused:
            if refused.kind is not ErrorKind.MISSING:
                raise await self._error("delete", key, refused, changes=True) from refused

    async def list(self, prefix: str, limit: int) -> list[str]:
        keys: dict[str, None] = {}
        continuation: str | None = None
        earlier: set[str | None] = set()
        while len(keys) < limit:
            try:
                page = await self._page(prefix, min(PAGE_SIZE, limit - len(keys)), continuation, earlier)
            except RequestFailed as refused:
                raise await self._error("list", prefix, refused) from refused
            self._permissions.note_permitted("list", prefix)
            # A console creates folders as empty objects that are named like the prefix itself. Some services ignore
            # the prefix or the delimiter.
            keys |= dict.fromkeys(key for key in page.keys if key.rpartition("/")[0] + "/" == prefix and key != prefix)
            continuation = page.next
            if continuation is None:
                break
        return sorted(keys)[:limit]

    async def probe(self, key: str) -> Guarantees:
        return await self._probes.guarantees(self, key)

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def _page(self, prefix: str, limit: int, continuation: str | None, earlier: set[str | None]) -> ObjectPage:
        """Return a page of a listing.

        Args:
            earlier: the tokens of all pages before; the token of this page is added.

        Raises:
            RequestFailed: the listing does not go on.
        """
        if continuation == "" or continuation in earlier:
            raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that has more pages, but no token for the next one")
        earlier.add(continuation)
        return await self._client.list_page(prefix, limit, continuation)

    async def _fetch(self, key: str) -> FetchedObject | None:
        """Return the object at a key, None if there is none.

        A principal that may not list a bucket is denied the read of a missing object. A listing of the one key shows
        whether it exists. If the listing is denied, too, the object counts as missing until its creation fails.
        """
        try:
            found = await self._client.get(key, MAX_READ_BYTES)
        except RequestFailed as refused:
            if refused.kind is ErrorKind.MISSING or (
                refused.kind is ErrorKind.DENIED and await self._may_be_absent(key)
            ):
                return None
            raise await self._error("read", key, refused) from refused
        self._permissions.note_permitted("read", key)
        return found

    async def _may_be_absent(self, key: str) -> bool:
        """Return True if an unreadable key may be missing, as far as a listing shows."""
        listed = await self._is_listed(key)
        if listed is None:
            self._unreadable.add(key)
        return not listed

    async def _is_listed(self, key: str) -> bool | None:
        """Return True if a listing shows a key, None if listings are denied."""
        try:
            page = await self._client.list_page(key, 1, None)
        except RequestFailed as refused:
            if refused.kind is not ErrorKind.DENIED:
                raise await self._error("list", key, refused) from refused
            return None
        return key in page.keys

    async def _resolve_lost_answer(
        self, key: str, body: bytes, write_id: str, refused: RequestFailed
    ) -> StoredObject | PreconditionFailed:
        """Return the result of a write with a failed condition: its own earlier success, or a lost race."""
        found = await self._fetch(key)
        if found is None and key in self._unreadable:
            self._unreadable.discard(key)
            denied = RequestFailed(ErrorKind.DENIED, f"an object that exists and may not be read ({refused.found})")
            raise await self._error("read", key, denied)
        return (
            StoredObject(body, found.etag) if found is not None and found.write_id == write_id else PreconditionFailed()
        )

    async def _error(self, verb: str, key: str, refused: RequestFailed, *, changes: bool = False) -> ExternalError:
        meaning = ERROR_MAP[refused.kind]
        error: type[ExternalError] = meaning.error
        scope = meaning.scope
        if refused.kind in _PER_OBJECT:
            denied, scope = ERROR_BY_REACH[await self._reach(verb, key)]
            error = denied if refused.kind is ErrorKind.DENIED else error
        return (OutcomeUnknown if changes and refused.kind in {ErrorKind.NO_ANSWER, ErrorKind.NO_ETAG} else error)(
            key,
            scope=scope,
            expected=meaning.expected.format(verb),
            found=refused.found,
            remedy=refused.remedy or meaning.remedy,
            retry_after=refused.retry_after,
        )

    async def _reach(self, verb: str, key: str) -> DenialReach:
        witnesses = self._permissions.note_denied(verb, key)
        answer = None
        for witness in () if self._of_one_table else witnesses:
            answer = await self._is_permitted_at(witness, verb)
            if answer:
                break
        return self._permissions.judge(verb, key, elsewhere=answer)

    async def _is_permitted_at(self, witness: str, verb: str) -> bool | None:
        """Return True if an operation still succeeds at a witness, None if the answer does not show it.

        Writes and deletes are tried on a separate file next to the witness. The witness is another table's live file,
        and the condition that protected it during the probe may be lost since.
        """
        try:
            if verb == "read":
                await self._client.get_range(witness, 0, 1)
            elif verb == "list":
                await self._client.list_page(witness, 1, None)
            elif verb == "write":
                await self._try_write(_probe_key(witness))
            else:
                # Delete a file that does not exist: a real one would remain where deletes are denied.
                guarantees = self._probes.known_guarantees(witness)
                is_conditional = guarantees is not None and guarantees.conditional_delete
                impossible_etag = (
                    self._probes.etag_condition(witness, self._impossible_etag) if is_conditional else None
                )
                await self._client.delete(_probe_key(witness), impossible_etag)
        except RequestFailed as refused:
            if refused.kind in _PER_OBJECT:
                return False
            # The request passed the permission check if it got as far as the condition, or the missing object.
            return True if refused.kind in {ErrorKind.PRECONDITION_FAILED, ErrorKind.MISSING} else None
        return True

    async def _try_write(self, key: str) -> None:
        """Create a file of our own, and delete it.

        Raises:
            RequestFailed: the file was not created.
        """
        # Shielded, so that a stop of the process does not leave the file behind.
        with anyio.CancelScope(shield=True):
            await self._client.put(key, b"", None, f"{self._process_id}-0")
            with suppress(ExternalError), anyio.move_on_after(CLEANUP_TIMEOUT):
                await self.discard(key)


def _probe_key(witness: str) -> str:
    """Return a key for a file of our own next to a witness. A policy may deny version hints by the end of the name."""
    folder, _, name = witness.rpartition("/")
    return f"{folder}/{PROBE_PREFIX}{secrets.token_hex(8)}{f'-{name}' if name == HINT_FILE_NAME else '.json'}"


MAX_CONNECTIONS: Final = 128
"""Open connections, at most."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds until a connection must be established."""
REQUEST_TIMEOUT: Final = 30.0
"""Seconds for one request, body included."""
BODY_LIMIT: Final = 16 * 2**20
"""Bytes of an answer that are read at most: enough for a page of a listing with the longest possible keys."""
_OVERHEAD: Final = 4096
"""Bytes by which a compressed body may be longer than its content."""
_PLAIN: Final = {"", "identity", "aws-chunked"}
"""Encodings that change nothing. Some services store the last one, a request encoding, as the object's own."""
_GZIP_BEGINS: Final = b"\x1f\x8b"
_AUTOMATIC: Final = 47
"""Window size of zlib that accepts the headers of gzip and of zlib."""
_RAW: Final = -15
"""Window size of zlib for data without a header, which some servers call `deflate`."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer with any status.

    Attributes:
        body: decompressed, except for a part of an object (status 206), where that is impossible.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_compressed(self) -> bool:
        """True if the body was compressed in transit, or is stored compressed."""
        return _encoding(self.headers) != ""


class HttpPool:
    """A pool of connections that follows no redirect, uses no proxy of the environment and stores no cookie.

    Requests ask for uncompressed bodies. Their signatures do not cover that header, because some proxies change it. A
    server may compress anyway, so the pool decompresses bodies.

    Args:
        ca_file: certificates (PEM) that are trusted instead of the system's.
        limit: seconds for one request.
    """

    def __init__(self, ca_file: Path | None = None, *, limit: float = REQUEST_TIMEOUT) -> None:
        self._ca_file, self._limit = ca_file, limit
        self._authorities: ssl.SSLContext | bool = True
        self._session: aiohttp.ClientSession | None = None

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        """Send a request and return the answer.

        Args:
            url: absolute and encoded; sent byte for byte.
            most: bytes of a successful answer that are read at most.

        Raises:
            RequestFailed: there was no complete answer.
            SfnError: the file of certificates is invalid.
        """
        session = self._session or await self._open()
        with tracing.request(method, url, "store") as step:
            try:
                async with session.request(
                    method,
                    URL(url, encoded=True),
                    headers=headers,
                    data=body or None,
                    allow_redirects=False,
                    ssl=self._authorities,
                ) as response:
                    tracing.answered(step, response.status)
                    return await _read_reply(response, most)
            except (aiohttp.ClientError, OSError) as error:
                raise _transport_failure(error, self._limit) from error

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _open(self) -> aiohttp.ClientSession:
        if self._ca_file is not None and self._authorities is True:
            self._authorities = await to_thread.run_sync(_authorities, self._ca_file)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "iceberg-sfn", "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=self._limit, sock_connect=CONNECT_TIMEOUT),
                # aiohttp does not limit the decompressed size.
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


async def _read_reply(response: aiohttp.ClientResponse, most: int) -> HttpReply:
    limit = most if response.ok else BODY_LIMIT
    encoding = "" if response.status == HTTPStatus.PARTIAL_CONTENT else _encoding(response.headers)
    content = await _read(response, limit + _OVERHEAD if encoding else limit)
    try:
        content = _decompressed(content, encoding, limit)
    except RequestFailed:
        if response.ok:
            raise
        # The status alone says enough about a failed request.
        content = b""
    return HttpReply(response.status, response.headers, content)


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.content_length is not None and response.content_length <= limit:
        return await response.read()
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= limit:
            # The connection could be used again only after the rest has been read.
            response.close()
            break
    return bytes(body[:limit])


def _encoding(headers: Mapping[str, str]) -> str:
    """Return the encoding of a body in lower case, "" for none."""
    named = (part.strip().lower() for part in headers.get("Content-Encoding", "").split(","))
    return ", ".join(part for part in named if part not in _PLAIN)


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the decompressed body.

    Args:
        body: the whole body, or its beginning.
        encoding: the result of `_encoding`.
        limit: bytes of the result, at most.

    Raises:
        RequestFailed: the encoding is unknown, or the body is cut off.
    """
    if not encoding or not body:
        return body
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise _compression_failure(f"a body in the encoding {encoding[:40]!r}")
    if encoding != "deflate" and not body.startswith(_GZIP_BEGINS):
        # A proxy decompressed the body and left the header in place.
        return body
    for window in (_AUTOMATIC, _RAW):
        inflater = zlib.decompressobj(window)
        try:
            # zlib takes a maximum of 0 for no maximum.
            plain = inflater.decompress(body, max(limit, 1))
        except zlib.error:
            continue
        if inflater.eof or len(plain) >= limit:
            return plain[:limit]
    raise _compression_failure(f"a body in the encoding {encoding} that can't be decompressed")


def _compression_failure(found: str) -> RequestFailed:
    return RequestFailed(ErrorKind.NO_ANSWER, found, "switch off compression in the store and in its proxies")


def _authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise SfnError(str(file), expected="a file of PEM certificates", found=found or type(error).__name__) from error


def _transport_failure(error: Exception, seconds: float) -> RequestFailed:
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError):
        remedy = "check the certificate, its names and dates, `ca_file`, and whether that port speaks TLS"
        return RequestFailed(ErrorKind.UNREACHABLE, f"no trusted TLS connection ({name})", remedy)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return RequestFailed(
            ErrorKind.UNREACHABLE, f"a host without an address ({name})", "check the endpoint and the DNS"
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestFailed(ErrorKind.UNREACHABLE, f"no connection ({name})")
    if isinstance(error, TimeoutError):
        return RequestFailed(ErrorKind.NO_ANSWER, f"no complete answer within {seconds:g} s")
    return RequestFailed(ErrorKind.NO_ANSWER, f"a connection that broke ({name})")
