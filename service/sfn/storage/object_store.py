"""Files of an object store: compare-and-swap by conditional requests, to whatever service (`sfn.storage`)."""

from __future__ import annotations

import secrets
import ssl
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from itertools import count
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final, TypeAlias

import aiohttp
import anyio
from anyio import to_thread
from yarl import URL

from sfn.domain.jobs import StoredObject
from sfn.errors import (
    ErrorScope,
    ExternalError,
    Forbidden,
    ForbiddenForTable,
    OutcomeUnknown,
    Permanent,
    SfnError,
    Transient,
    Unauthenticated,
)
from sfn.storage import (
    MAX_READ_BYTES,
    Deleted,
    ErrorKind,
    FetchedObject,
    Guarantees,
    ObjectClient,
    ObjectPage,
    PreconditionFailed,
    RequestFailed,
    check_length,
)
from sfn.storage.probe import CLEANUP_TIMEOUT, PROBE_PREFIX, StoreProbes

# ── meanings: What an object store's refusal means for the work at hand


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """What to do next (`error`), whose budget it spends, and the two halves of the message.

    Attributes:
        expected: `{}` stands for what was to be done.
        remedy: where the service's answer tells no better one.
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
    ErrorKind.NO_ENDPOINT: ErrorMeaning(Permanent, ErrorScope.STORE, "settings that tell where the store is"),
    ErrorKind.THROTTLED: ErrorMeaning(Transient, ErrorScope.STORE, "a store with room for this request"),
    ErrorKind.CHANGED_TOO_OFTEN: ErrorMeaning(
        Transient, ErrorScope.TABLE, "an object that may be written again", "raise `min_publish_interval`"
    ),
    ErrorKind.UNREACHABLE: ErrorMeaning(
        Transient, ErrorScope.STORE, "a connection to the store", "see whether it can be reached from here"
    ),
    ErrorKind.NO_ANSWER: ErrorMeaning(
        Transient, ErrorScope.STORE, "an answer of the store", "see whether it is in trouble"
    ),
    ErrorKind.NO_ETAG: ErrorMeaning(
        Transient,
        ErrorScope.STORE,
        "an answer with the tag of the object",
        "let the proxies before the store pass the header ETag on, or use another store",
    ),
    ErrorKind.UNSUPPORTED: ErrorMeaning(
        Permanent, ErrorScope.STORE, "a store that knows conditional writes", "use another store"
    ),
    ErrorKind.INVALID_OBJECT: ErrorMeaning(Permanent, ErrorScope.TABLE, "a request that the store can carry out"),
    ErrorKind.REJECTED: ErrorMeaning(Permanent, ErrorScope.TABLE, "a request that the store can carry out"),
}
"""Of each kind. What is denied or rejected may be the whole store's trouble: see `sfn.storage.object_store`."""


# ── denials: Decides how far a store's refusal reaches

PROPAGATION_SECONDS: Final = 60.0
"""Seconds until a change of permissions has reached all of a service. Before, one request passes and another does not.
"""
MAX_DENIED_FOLDERS: Final = 4096
"""Folders that are remembered because they were refused."""
MAX_WITNESSES: Final = 8
"""Folders that are remembered of each verb because it was carried out there."""
MAX_WITNESSES_TRIED: Final = 3
"""Witnesses that one refusal asks at most."""
SAME_ATTEMPT_SECONDS: Final = 5.0
"""Seconds within which refusals count as one: an attempt may ask again, with newer credentials."""
STALE_SECONDS: Final = 1800.0
"""Seconds after which an earlier refusal says nothing about a new one: a refused table is tried more often."""

HINT_FILE_NAME: Final = "version-hint.text"
_METADATA: Final = ".metadata.json"

_Operation: TypeAlias = tuple[str, str]
"""A verb and a kind of file: a policy may permit documents and deny hints, everywhere."""


class DenialReach(Enum):
    """How far a refusal reaches."""

    STORE = auto()
    """The whole store, as far as anybody can tell."""
    TABLE = auto()
    """One table: others are served. It may pass, as a change of permissions does not reach all of a store at once."""
    TABLE_LASTING = auto()
    """One table, for so long that it will not pass by itself."""


ERROR_BY_REACH: Final[Mapping[DenialReach, tuple[type[Forbidden | ForbiddenForTable], ErrorScope]]] = {
    DenialReach.STORE: (Forbidden, ErrorScope.STORE),
    DenialReach.TABLE: (Forbidden, ErrorScope.TABLE),
    DenialReach.TABLE_LASTING: (ForbiddenForTable, ErrorScope.TABLE),
}
"""The trouble that a missing permission is, by how far it reaches."""


@dataclass(slots=True)
class _Denial:
    """One verb in one folder.

    Attributes:
        first: when it was refused there first, in seconds.
        before: when it was refused there the last time before this one.
        latest: when it was refused there last.
        alone: when it was refused there although it was carried out elsewhere, long after `first`; None before.
    """

    first: float
    before: float
    latest: float
    alone: float | None = None


class PermissionTracker:
    """Judges refusals by what is carried out elsewhere. For several threads.

    Args:
        seconds: a clock that only goes forward.
        settled: as `PROPAGATION_SECONDS`, of this kind of store.
    """

    def __init__(self, seconds: Callable[[], float], propagation_seconds: float = PROPAGATION_SECONDS) -> None:
        self._seconds, self._settled = seconds, propagation_seconds
        self._lock = Lock()
        self._refused: OrderedDict[tuple[_Operation, str], _Denial] = OrderedDict()
        self._witnesses: dict[_Operation, OrderedDict[str, tuple[str, float]]] = {}

    def note_permitted(self, verb: str, key: str) -> None:
        """Note that a verb was carried out.

        Args:
            verb: `read`, `write`, `delete` or `list`.
            key: of which file, or the prefix that was listed.
        """
        operation, folder = _operation(verb, key), _folder(key)
        with self._lock:
            self._refused.pop((operation, folder), None)
            witnesses = self._witnesses.setdefault(operation, OrderedDict())
            witnesses[folder] = key, self._seconds()
            witnesses.move_to_end(folder)
            if len(witnesses) > MAX_WITNESSES:
                witnesses.popitem(last=False)

    def note_denied(self, verb: str, key: str) -> list[str]:
        """Note that a verb was refused.

        Returns:
            Keys in other folders where the verb was carried out before, the latest first. Whether it still is shows
            how far the refusal reaches.
        """
        operation, folder, now = _operation(verb, key), _folder(key), self._seconds()
        with self._lock:
            known = self._refused.get((operation, folder))
            if known is None or now > known.latest + STALE_SECONDS:
                self._refused[operation, folder] = _Denial(first=now, before=now, latest=now)
            elif now >= known.latest + SAME_ATTEMPT_SECONDS:
                known.before, known.latest = known.latest, now
            if len(self._refused) > MAX_DENIED_FOLDERS:
                self._refused.popitem(last=False)
            witnesses: Mapping[str, tuple[str, float]] = self._witnesses.get(operation, {})
            others = [
                witness
                for other, (witness, _) in witnesses.items()
                if other != folder and (operation, other) not in self._refused
            ]
            return others[: -MAX_WITNESSES_TRIED - 1 : -1]

    def judge(self, verb: str, key: str, *, elsewhere: bool | None) -> DenialReach:
        """Judge the refusal that was noted last.

        Args:
            elsewhere: whether the verb is carried out in another folder now; None where no witness could tell. Then
                the table counts as refused alone if others were served since its refusal before this one.
        """
        operation, folder, now = _operation(verb, key), _folder(key), self._seconds()
        with self._lock:
            denial = self._refused.get((operation, folder))
            if denial is None:
                return DenialReach.STORE
            if elsewhere is False:
                denial.first, denial.alone = now, None
                return DenialReach.STORE
            lasting = denial.alone is not None and now >= denial.alone + self._settled
            others = (at for other, (_, at) in self._witnesses.get(operation, {}).items() if other != folder)
            served_at = now if elsewhere else max(others, default=denial.before)
            if not elsewhere and served_at <= denial.before:
                return DenialReach.TABLE_LASTING if lasting else DenialReach.STORE
            if denial.alone is None and served_at >= denial.first + self._settled:
                denial.alone = now
            return DenialReach.TABLE_LASTING if lasting else DenialReach.TABLE


def _operation(verb: str, key: str) -> _Operation:
    name = key.rpartition("/")[2]
    if name == HINT_FILE_NAME:
        return verb, "hint"
    return verb, "metadata" if _METADATA in name else "pointer"


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


# ── remote: Files of an object store

_PER_OBJECT: Final = frozenset({ErrorKind.DENIED, ErrorKind.REJECTED})
"""What a service may say of one object (a policy, a key of KMS, a quota) and of everything."""
PAGE_SIZE: Final = 1000
"""Keys of a listing that are asked for at once: as many as every service gives."""


class StoreService:
    """What was found out about one service: shared by all stores on it, whoever they ask as.

    Args:
        impossible_etag: a tag in its own form that no object has.
        unsafe: `unsafe_unconditional_writes`.
        seconds: a clock that only goes forward.

    Attributes:
        probes: that its buckets honour conditions.
        permissions: what it carries out and what it refuses, for principals of one table each.
        impossible_etag, seconds: as above.
    """

    def __init__(self, impossible_etag: str, *, unsafe: bool = False, seconds: Callable[[], float] = monotonic) -> None:
        self.impossible_etag, self.seconds = impossible_etag, seconds
        self.probes = StoreProbes(impossible_etag=impossible_etag, unsafe=unsafe)
        self.permissions = PermissionTracker(seconds)


class RemoteStore:
    """Implements `ObjectStore` on a service's requests.

    Each write carries a mark of its own. Where a condition did not hold, the mark tells whether it was this very write
    that came first: its answer was lost, and it was sent once more on the way.

    Args:
        objects: the service's requests, as one principal.
        service: what is known of it.
        of_one_table: the principal may work at one table's place only, and can't tell what is permitted elsewhere.
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
            # An object that is not there has no tag: that is how some services answer a replacement.
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
        """Delete a file of the proof, whatever it holds. Nothing else may be deleted so.

        Raises:
            Trouble: as `delete`.
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
            # A console makes folders as objects, empty and named as the prefix itself. Some services pass over the
            # prefix or the delimiter.
            keys |= dict.fromkeys(key for key in page.keys if key.rpartition("/")[0] + "/" == prefix and key != prefix)
            continuation = page.next
            if continuation is None:
                break
        return sorted(keys)[:limit]

    async def probe(self, key: str) -> Guarantees:
        return await self._probes.guarantees(self, key)

    async def close(self) -> None:
        """As `ObjectClient.close`."""
        await self._client.close()

    async def _page(self, prefix: str, limit: int, continuation: str | None, earlier: set[str | None]) -> ObjectPage:
        """A page of a listing.

        Args:
            earlier: where all pages before began; this one is added.

        Raises:
            Refused: the listing does not go on.
        """
        if continuation == "" or continuation in earlier:
            raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that says that there is more, and does not say where")
        earlier.add(continuation)
        return await self._client.list_page(prefix, limit, continuation)

    async def _fetch(self, key: str) -> FetchedObject | None:
        """What lies at a key, None for nothing.

        Whoever may not list a whole bucket is denied to read what is not there. A listing of the one key tells the
        difference, and where that is denied too, the creation of the file does: it is taken for missing until then.
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
        """Whether nothing lies at a key that may not be read, as far as anybody can tell."""
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
        """What a write came to whose condition did not hold."""
        found = await self._fetch(key)
        if found is None and key in self._unreadable:
            self._unreadable.discard(key)
            denied = RequestFailed(ErrorKind.DENIED, f"that the object is there and may not be read ({refused.found})")
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
        """Whether a verb is carried out where it was before; None where the answer is no clear one.

        What changes something is tried on a file of its own beside the witness. The witness is another table's live
        file, and a condition that protected it when the store was proven may be lost since.
        """
        try:
            if verb == "read":
                await self._client.get_range(witness, 0, 1)
            elif verb == "list":
                await self._client.list_page(witness, 1, None)
            elif verb == "write":
                await self._try_write(_probe_key(witness))
            else:
                # Nothing lies there: a file would stay behind where deletions are denied.
                guarantees = self._probes.known_guarantees(witness)
                is_conditional = guarantees is not None and guarantees.conditional_delete
                impossible_etag = (
                    self._probes.etag_condition(witness, self._impossible_etag) if is_conditional else None
                )
                await self._client.delete(_probe_key(witness), impossible_etag)
        except RequestFailed as refused:
            if refused.kind in _PER_OBJECT:
                return False
            # It got as far as the condition, or as the object that is gone.
            return True if refused.kind in {ErrorKind.PRECONDITION_FAILED, ErrorKind.MISSING} else None
        return True

    async def _try_write(self, key: str) -> None:
        """Create a file of our own, and delete it.

        Raises:
            Refused: it was not created.
        """
        # A stop must not leave the file behind.
        with anyio.CancelScope(shield=True):
            await self._client.put(key, b"", None, f"{self._process_id}-0")
            with suppress(ExternalError), anyio.move_on_after(CLEANUP_TIMEOUT):
                await self.discard(key)


def _probe_key(witness: str) -> str:
    """The key of a file of our own in a file's folder. A policy may deny hints by how their names end."""
    folder, _, name = witness.rpartition("/")
    return f"{folder}/{PROBE_PREFIX}{secrets.token_hex(8)}{f'-{name}' if name == HINT_FILE_NAME else '.json'}"


# ── pool: HTTP to the services of one store

MAX_CONNECTIONS: Final = 128
"""Connections at once."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds."""
REQUEST_TIMEOUT: Final = 30.0
"""Seconds for one request, body included."""
BODY_LIMIT: Final = 16 * 2**20
"""Bytes of an answer that are read at most: a page of a listing with the longest keys that there are."""
_OVERHEAD: Final = 4096
"""Bytes by which a compressed body may be longer than what it holds."""
_PLAIN: Final = {"", "identity", "aws-chunked"}
"""Encodings that change nothing. Some services keep the last one, which is of a request, as an object's own."""
_GZIP_BEGINS: Final = b"\x1f\x8b"
_AUTOMATIC: Final = 47
"""A window size of zlib: it accepts the headers of gzip and of zlib."""
_RAW: Final = -15
"""A window size of zlib: no header. Some servers call that `deflate`."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, whatever its status.

    Attributes:
        body: decompressed, except for a part of an object (status 206), which can't be decompressed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_compressed(self) -> bool:
        """True if the body was compressed on its way, or is stored so."""
        return _encoding(self.headers) != ""


class HttpPool:
    """Connections that are kept. Follows no redirect, trusts no proxy of the environment, keeps no cookie.

    Requests ask for bodies that are not compressed, and the signatures of requests do not cover that header: some
    proxies change it. A server may compress nevertheless: its bodies are decompressed here.

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
        """One request and its answer.

        Args:
            url: absolute and encoded; sent byte for byte.
            most: bytes of a good answer that are read; more are left where they are.

        Raises:
            Refused: there was no whole answer.
            SfnError: the file of certificates makes no sense.
        """
        session = self._session or await self._open()
        try:
            async with session.request(
                method,
                URL(url, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                ssl=self._authorities,
            ) as response:
                limit = most if response.ok else BODY_LIMIT
                encoding = "" if response.status == HTTPStatus.PARTIAL_CONTENT else _encoding(response.headers)
                content = await _read(response, limit + _OVERHEAD if encoding else limit)
                try:
                    content = _decompressed(content, encoding, limit)
                except RequestFailed:
                    if response.ok:
                        raise
                    # The status says enough.
                    content = b""
                return HttpReply(response.status, response.headers, content)
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
                # The library does not bound what a body decompresses to.
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.content_length is not None and response.content_length <= limit:
        return await response.read()
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= limit:
            # What is left unread would have to be waited for before the connection could be used again.
            response.close()
            break
    return bytes(body[:limit])


def _encoding(headers: Mapping[str, str]) -> str:
    """Return the encoding of a body in small letters, "" for none."""
    named = (part.strip().lower() for part in headers.get("Content-Encoding", "").split(","))
    return ", ".join(part for part in named if part not in _PLAIN)


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body.

    Args:
        body: the whole body, or its beginning.
        encoding: as `_encoding` gives it.
        limit: bytes of the result.

    Raises:
        Refused: the encoding is unknown, or the body breaks off.
    """
    if not encoding or not body:
        return body
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise _compression_failure(f"a body in the encoding {encoding[:40]!r}")
    if encoding != "deflate" and not body.startswith(_GZIP_BEGINS):
        # The name of an encoding that was undone before.
        return body
    for window in (_AUTOMATIC, _RAW):
        inflater = zlib.decompressobj(window)
        try:
            # Without a maximum of one byte or more, zlib knows none.
            plain = inflater.decompress(body, max(limit, 1))
        except zlib.error:
            continue
        if inflater.eof or len(plain) >= limit:
            return plain[:limit]
    raise _compression_failure(f"a body in the encoding {encoding} that can't be decompressed")


def _compression_failure(found: str) -> RequestFailed:
    return RequestFailed(ErrorKind.NO_ANSWER, found, "switch off compression in the store and in the proxies before it")


def _authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise SfnError(str(file), expected="a file of PEM certificates", found=found or type(error).__name__) from error


def _transport_failure(error: Exception, seconds: float) -> RequestFailed:
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError):
        remedy = "check the certificate, its names and its dates, ca_file, and whether that port speaks TLS"
        return RequestFailed(ErrorKind.UNREACHABLE, f"no TLS connection that can be trusted ({name})", remedy)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return RequestFailed(
            ErrorKind.UNREACHABLE, f"a host that has no address ({name})", "check the endpoint and the DNS"
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestFailed(ErrorKind.UNREACHABLE, f"no connection ({name})")
    if isinstance(error, TimeoutError):
        return RequestFailed(ErrorKind.NO_ANSWER, f"no whole answer within {seconds:g} s")
    return RequestFailed(ErrorKind.NO_ANSWER, f"a connection that broke ({name})")
