"""Stores: small files that are replaced with compare-and-swap (specification, section 7).

`ObjectStore` is the interface that the rest of the listener uses; `StoreRouter` finds the store of a location. Local
files implement the interface in `local`. The clouds (`s3`, `gcs`, `azure`) implement the smaller `ObjectClient`, on
which `remote_store` builds one `ObjectStore` for all of them. `probe` tests if a store honours conditions, before the
first write. `memory` is the store of the tests. Every store decides with a `PermissionTracker` how far a denied request
reaches.

To add a store, implement `ObjectClient`, and register it in `app/storage.py`. Start reading at `ObjectStore` below,
then `remote_store.RemoteStore`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256
from threading import Lock
from typing import Final, Protocol, TypeAlias, runtime_checkable

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Forbidden, ForbiddenForTable, LocationRefused, Permanent
from sfn.sfnfile.document import MAX_DOCUMENT_BYTES
from sfn.sfnfile.locations import is_below


@dataclass(frozen=True, slots=True)
class PreconditionFailed:
    """The answer if the condition of a write or delete does not hold: another program wrote or deleted the file."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The answer if the file does not exist any more."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The conditions that a store was proven to honour.

    Attributes:
        swap: a write with a stale condition is refused.
        conditional_delete: a delete with a stale condition is refused.
    """

    swap: bool
    conditional_delete: bool


class ObjectStore(Protocol):
    """Files by key: a normalised absolute URL such as `file:///warehouse/t/metadata/_sfn/ns_t_main.ver`.

    Every method raises one of three errors, each with its scope: `Transient` (a full disk, no answer, another writer
    at work), `OutcomeUnknown` (a write or delete may have been applied) or `Permanent` (a forbidden folder, a
    read-only file system, something other than a regular file, a body longer than a document may be). No method ever
    leaves a partial file.
    """

    async def read(self, key: str) -> StoredObject | None:
        """Return body and etag, read in one request; None if there is no such file.

        A body longer than a document may be is cut after `MAX_READ_BYTES`, so that its decoder can see the excess.
        """
        ...

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return `length` bytes of a file of any length from `start` on, or fewer at its end.

        The result is None if there is no such file.
        """
        ...

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        """Replace exactly `replacing`, or create the file if `replacing` is None. Durable on return."""
        ...

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        """Delete exactly `expected`. The result is `Deleted` also if there was nothing to delete."""
        ...

    async def list(self, prefix: str, limit: int) -> list[str]:
        """Return the sorted keys directly below a prefix that ends in `/`, at most `limit`; [] if there is nothing.

        Folders are left out. Everything else with a valid name is listed, even a link, which `read` then refuses.
        """
        ...

    async def probe(self, key: str) -> Guarantees:
        """Try the conditions on a file of the probe's own, and remember the result.

        Args:
            key: any file, existing or not, of the folder in which the probe's file may lie for a moment.

        Raises:
            Permanent: scope store: the store accepts a write with a stale condition, and the settings do not allow
                that; or it refuses a write with a valid condition; or it is unfit otherwise.
        """
        ...


@runtime_checkable
class BatchReader(Protocol):
    """A store that reads several files for little more than the cost of one."""

    async def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None]:
        """Return what `ObjectStore.read` returns, for each key."""
        ...


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Questions about files that are asked at the same time.

    Attributes:
        contents: keys of the files to read.
        existence: keys of the files to find; the content does not matter.
        folders: prefixes to list.
        limit: most keys that are listed for each prefix.
    """

    contents: tuple[str, ...] = ()
    existence: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    limit: int = 0

    def split(self, size: int) -> list[ReadGroup]:
        """Return the same questions in groups of at most `size`."""
        if len(self.contents) + len(self.existence) + len(self.folders) <= size:
            return [self]
        return [
            *(ReadGroup(contents=self.contents[at : at + size]) for at in range(0, len(self.contents), size)),
            *(ReadGroup(existence=self.existence[at : at + size]) for at in range(0, len(self.existence), size)),
            *(ReadGroup(folders=(folder,), limit=self.limit) for folder in self.folders),
        ]


@dataclass(slots=True)
class GroupAnswers:
    """The answers to a `ReadGroup`.

    Attributes:
        contents: what `ObjectStore.read` returns, by key.
        existence: whether there is a file, by key.
        folders: what `ObjectStore.list` returns, by prefix.
    """

    contents: dict[str, StoredObject | None] = field(default_factory=dict)
    existence: dict[str, bool] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)

    def update(self, others: GroupAnswers) -> None:
        """Add other answers."""
        self.contents |= others.contents
        self.existence |= others.existence
        self.folders |= others.folders


@runtime_checkable
class GroupReader(Protocol):
    """A store that answers several questions together for less than the cost of each alone."""

    async def read_group(self, group: ReadGroup) -> GroupAnswers:
        """Return the answers; raises what the first failed question raises."""
        ...


class StoreRouter(Protocol):
    """The choice of a store by location."""

    def store_for(self, location: str) -> ObjectStore:
        """Return the store of a normalised location or key.

        Raises:
            LocationRefused: no store is configured for the location.
        """
        ...


@dataclass(frozen=True, slots=True)
class FetchedObject:
    """An object with its content.

    Attributes:
        body: the content, or its beginning.
        etag: the service's identifier of this version: an entity tag or a generation.
        write_id: the id with which the listener marked its write; None for an object of another program.
    """

    body: bytes
    etag: str
    write_id: str | None


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of a listing.

    Attributes:
        keys: the keys, in order.
        next: the service's continuation token; None after the last page; "" if the service says that there is more, but
            gives no token.
    """

    keys: tuple[str, ...]
    next: str | None


class ErrorKind(Enum):
    """The reason why a request failed."""

    MISSING = auto()
    """No such object."""
    PRECONDITION_FAILED = auto()
    """The condition did not hold, or another write of the object was in progress; nothing was changed."""
    DENIED = auto()
    """Not permitted. For a read also: perhaps no such object, which some services hide."""
    UNAUTHENTICATED = auto()
    """The service does not accept our credentials: expired or unknown keys, or a wrong clock."""
    NO_BUCKET = auto()
    """No such bucket, container or account, or none at that address."""
    NO_ENDPOINT = auto()
    """The settings do not determine the address of the service."""
    THROTTLED = auto()
    """Too many requests; nothing was changed."""
    CHANGED_TOO_OFTEN = auto()
    """Too many changes of this one object; nothing was changed."""
    UNREACHABLE = auto()
    """No connection, so nothing was sent."""
    NO_ANSWER = auto()
    """The request may have been applied: there was no answer, or one that reports a failure on the way."""
    NO_ETAG = auto()
    """The request was applied, but the answer has no etag."""
    UNSUPPORTED = auto()
    """The service says that it does not support such requests."""
    INVALID_OBJECT = auto()
    """The service can never do it with this object: a name that is too long, a blob of another type."""
    REJECTED = auto()
    """The service refuses with an unknown status or code, so perhaps it refuses everything."""


class RequestFailed(Exception):
    """A failed request.

    Args:
        kind: the meaning of the answer.
        found: the service's answer, for people; no secret.
        remedy: what to do, where the answer says more than its kind.
        retry_after: seconds that the service asked us to wait, if it did.
    """

    def __init__(self, kind: ErrorKind, found: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(kind, found, remedy, retry_after)
        self.kind, self.found, self.remedy, self.retry_after = kind, found, remedy, retry_after


class ObjectClient(Protocol):
    """One service, accessed as one principal. Keys are those of `ObjectStore`.

    Each method is one request and its answer, raises `RequestFailed` on any other answer, and ends in bounded time.
    The transport may send a request twice after a broken connection; that is why writes carry an id.
    """

    async def get(self, key: str, limit: int) -> FetchedObject:
        """Return an object with its etag and at most `limit` bytes of its content."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on, or up to the end; b"" if the object ends before `start`."""
        ...

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        """Replace the object with the etag `replacing`, or create it if that is None; return the new etag."""
        ...

    async def delete(self, key: str, expected: str | None) -> None:
        """Delete the object with the etag `expected`, or any version if that is None."""
        ...

    async def list_page(self, prefix: str, limit: int, continuation: str | None) -> ObjectPage:
        """Return at most `limit` keys that begin with `prefix` and have no slash after it, from `continuation` on."""
        ...

    async def close(self) -> None:
        """Release the client's own resources. Shared connections are closed by their owner."""
        ...


class PrefixRouter:
    """A `StoreRouter` over configured prefixes.

    Args:
        stores: stores by canonical prefix (`file://`, `s3://bucket`, `s3://bucket/warehouse`). A prefix covers whole
            segments; the longest one wins.
    """

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        self._stores = sorted(stores.items(), key=lambda item: len(item[0]), reverse=True)

    def store_for(self, location: str) -> ObjectStore:
        """Return the store of a normalised location or key.

        Raises:
            LocationRefused: no prefix covers the location.
        """
        for prefix, store in self._stores:
            if is_below(location, prefix):
                return store
        known = ", ".join(sorted(prefix for prefix, _ in self._stores)) or "none is configured"
        raise LocationRefused(
            location,
            expected=f"a location below the prefix of a store ({known})",
            found="a location below none",
            remedy="set `[stores.NAME] prefix` so that it covers this location",
        )

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return a part of a file, as `ObjectStore.read_range` does.

        Raises:
            LocationRefused: no prefix covers the key.
        """
        return await self.store_for(key).read_range(key, start, length)


MAX_READ_BYTES = MAX_DOCUMENT_BYTES + 1
"""Bytes of a file that are read at most: one more than a document may have, so that its decoder sees the excess."""


def content_etag(body: bytes) -> str:
    """Return the etag of a content: equal contents have equal etags, as on S3."""
    return sha256(body).hexdigest()


def check_length(key: str, body: bytes) -> None:
    """Refuse to write a body that no reader would accept.

    Raises:
        Permanent: scope table, if the body is longer than a document may be.
    """
    if len(body) > MAX_DOCUMENT_BYTES:
        raise Permanent(
            key,
            scope=ErrorScope.TABLE,
            expected=f"a body of at most {MAX_DOCUMENT_BYTES} bytes",
            found=f"{len(body)} bytes",
        )


def media_type(key: str) -> str:
    """Return the media type of a file of ours, which the store's console shows."""
    return "application/json" if key.endswith((".ver", ".json")) else "text/plain; charset=utf-8"


def parent_folder(path: str) -> str:
    """Return the folder of an absolute path without empty segments; the root is its own folder."""
    return path.rpartition("/")[0] or "/"


def base_name(path: str) -> str:
    """Return the last segment of a path."""
    return path.rpartition("/")[2]


def decode_name(name: str) -> str | None:
    """Return a file's name as the end of a key; None if the name is not valid UTF-8."""
    try:
        return os.fsencode(name).decode()
    except UnicodeDecodeError:
        return None


# ── How far a denied request reaches

PROPAGATION_SECONDS: Final = 60.0
"""Seconds until a change of permissions has reached a whole service. Meanwhile one request passes and another fails."""
MAX_DENIED_FOLDERS: Final = 4096
"""Denied folders that are remembered."""
MAX_WITNESSES: Final = 8
"""Folders per operation that are remembered because the operation succeeded there."""
MAX_WITNESSES_TRIED: Final = 3
"""Witnesses that are tried after one denial, at most."""
SAME_ATTEMPT_SECONDS: Final = 5.0
"""Seconds within which denials count as one: an attempt may be repeated with newer credentials."""
STALE_SECONDS: Final = 1800.0
"""Seconds after which an earlier denial is forgotten. A denied table is retried more often than that."""

HINT_FILE_NAME: Final = "version-hint.text"
_METADATA: Final = ".metadata.json"

_Operation: TypeAlias = tuple[str, str]
"""A verb and a kind of file: a policy may permit documents and deny version hints, everywhere."""


class DenialReach(Enum):
    """How far a denial reaches."""

    STORE = auto()
    """The whole store, as far as the tracker can see."""
    TABLE = auto()
    """One table: others succeed. It may pass, as a change of permissions takes time to reach a whole store."""
    TABLE_LASTING = auto()
    """One table, for so long that it will not pass without a change."""


ERROR_BY_REACH: Final[Mapping[DenialReach, tuple[type[Forbidden | ForbiddenForTable], ErrorScope]]] = {
    DenialReach.STORE: (Forbidden, ErrorScope.STORE),
    DenialReach.TABLE: (Forbidden, ErrorScope.TABLE),
    DenialReach.TABLE_LASTING: (ForbiddenForTable, ErrorScope.TABLE),
}
"""The error for a missing permission, by its reach."""


@dataclass(slots=True)
class _Denial:
    """The denials of one operation in one folder.

    Attributes:
        first: time of the first denial, in seconds.
        before: time of the denial before the latest.
        latest: time of the latest denial.
        alone: time of the first denial, long after `first`, while other folders succeeded; None before.
    """

    first: float
    before: float
    latest: float
    alone: float | None = None


class PermissionTracker:
    """Decides how far denials reach, by comparing folders. Thread-safe.

    Args:
        seconds: a monotonic clock.
        propagation_seconds: `PROPAGATION_SECONDS`, for this kind of store.
    """

    def __init__(self, seconds: Callable[[], float], propagation_seconds: float = PROPAGATION_SECONDS) -> None:
        self._seconds, self._propagation_seconds = seconds, propagation_seconds
        self._lock = Lock()
        self._refused: OrderedDict[tuple[_Operation, str], _Denial] = OrderedDict()
        self._witnesses: dict[_Operation, OrderedDict[str, tuple[str, float]]] = {}

    def note_permitted(self, verb: str, key: str) -> None:
        """Note that an operation succeeded.

        Args:
            verb: `read`, `write`, `delete` or `list`.
            key: the file, or the prefix that was listed.
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
        """Note that an operation was denied.

        Returns:
            Keys in other folders where the operation succeeded before, latest first. Another attempt there shows how
            far the denial reaches.
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
        """Return the reach of the denial that was noted last.

        Args:
            elsewhere: True if the operation succeeds in another folder now; None if no witness gave an answer. In that
                case the denial concerns the table if other folders succeeded since its previous denial.
        """
        operation, folder, now = _operation(verb, key), _folder(key), self._seconds()
        with self._lock:
            denial = self._refused.get((operation, folder))
            if denial is None:
                return DenialReach.STORE
            if elsewhere is False:
                denial.first, denial.alone = now, None
                return DenialReach.STORE
            lasting = denial.alone is not None and now >= denial.alone + self._propagation_seconds
            others = (at for other, (_, at) in self._witnesses.get(operation, {}).items() if other != folder)
            served_at = now if elsewhere else max(others, default=denial.before)
            if not elsewhere and served_at <= denial.before:
                return DenialReach.TABLE_LASTING if lasting else DenialReach.STORE
            if denial.alone is None and served_at >= denial.first + self._propagation_seconds:
                denial.alone = now
            return DenialReach.TABLE_LASTING if lasting else DenialReach.TABLE


def _operation(verb: str, key: str) -> _Operation:
    name = key.rpartition("/")[2]
    if name == HINT_FILE_NAME:
        return verb, "hint"
    return verb, "metadata" if _METADATA in name else "pointer"


def _folder(key: str) -> str:
    return key.rpartition("/")[0]
