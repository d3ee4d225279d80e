"""The port to an object store or file system: small files, replaced by compare-and-swap (specification, section 7)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Protocol, runtime_checkable

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, LocationRefused, Permanent
from sfn.sfnfile.document import MAX_DOCUMENT_BYTES
from sfn.sfnfile.locations import is_below

# ── store: The port to an object store or file system


@dataclass(frozen=True, slots=True)
class PreconditionFailed:
    """The condition did not hold: somebody else wrote or deleted the file. An answer, not an error."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The file is not there any more."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a store was proven to do.

    Attributes:
        swap: a write on a stale condition is refused.
        conditional_delete: a delete on a stale condition is refused.
    """

    swap: bool
    conditional_delete: bool


class ObjectStore(Protocol):
    """Files by key: a normalised absolute URL such as `file:///warehouse/t/metadata/_sfn/ns_t_main.ver`.

    Every verb raises `Transient` (try later: a full disk, no answer, another writer in the way), `OutcomeUnknown` (a
    write or delete may have been applied) or `Permanent` (a forbidden folder, a read-only file system, what is no
    regular file, a body longer than a document may be), each with its scope. None of them ever leaves a partial file.
    """

    async def read(self, key: str) -> StoredObject | None:
        """Body and tag in one request, None where there is no such file.

        Of a body longer than a document may be, just so much that its decoder sees one too long.
        """
        ...

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        """Bytes of a file of any length, such as a table's metadata: `length` from `start` on, or up to its end.

        None where there is no such file.
        """
        ...

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        """Replace exactly `replacing`, or create the file where that is None. Durable when it returns."""
        ...

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        """Delete exactly `expected`. `Gone` also when nothing was there."""
        ...

    async def list(self, prefix: str, limit: int) -> list[str]:
        """Keys directly below a prefix that ends in `/`, in order, at most `limit`; [] where nothing is.

        Without folders, but with whatever else has a name that can be a key: a link too, which `read` then refuses.
        """
        ...

    async def probe(self, key: str) -> Guarantees:
        """Try the conditions on a file of the proof's own, and remember what was proven.

        Args:
            key: a file, there or not, of the folder in which the proof's file may lie for a moment.

        Raises:
            Permanent: scope store: the store takes a write although its condition does not hold, and the settings do
                not allow that; or it refuses a write although its condition holds; or it is unfit otherwise.
        """
        ...


@runtime_checkable
class BatchReader(Protocol):
    """A store that reads several files for little more than one costs."""

    async def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None]:
        """As `ObjectStore.read` of each."""
        ...


class StoreRouter(Protocol):
    """Which store holds a location."""

    def store_for(self, location: str) -> ObjectStore:
        """The store of a normalised location or key.

        Raises:
            LocationRefused: no store is configured for it.
        """
        ...


# ── objects: The port below a remote store


@dataclass(frozen=True, slots=True)
class FetchedObject:
    """An object as it was read.

    Attributes:
        body: its content, or the beginning of it.
        etag: the service's word for what lies there: an entity tag, a generation.
        write_id: what the write that made it was marked with, None for somebody else's.
    """

    body: bytes
    etag: str
    write_id: str | None


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A part of a listing.

    Attributes:
        keys: in order.
        next: where the next part begins, in the service's own words; None at the end; "" where the service says that
            there is more, but not where.
    """

    keys: tuple[str, ...]
    next: str | None


class ErrorKind(Enum):
    """Why a request came to nothing."""

    MISSING = auto()
    """No such object."""
    PRECONDITION_FAILED = auto()
    """The condition did not hold, or another write of the object was under way; nothing was changed."""
    DENIED = auto()
    """Not permitted; of a look also: perhaps no such object, which not everybody is told."""
    UNAUTHENTICATED = auto()
    """The service does not accept who we are: keys that ended or are unknown, a clock that is wrong."""
    NO_BUCKET = auto()
    """No such bucket, container or account, or none at that address."""
    NO_ENDPOINT = auto()
    """Where the service is can't be told from the settings."""
    THROTTLED = auto()
    """Too much is asked of the service; nothing was changed."""
    CHANGED_TOO_OFTEN = auto()
    """This one object was changed too often; nothing was changed."""
    UNREACHABLE = auto()
    """Nothing was sent: no connection."""
    NO_ANSWER = auto()
    """It may have been carried out: no answer came, or one that it failed on the way."""
    NO_ETAG = auto()
    """It was carried out, and the answer has no tag."""
    UNSUPPORTED = auto()
    """The service says that it does not know such requests."""
    INVALID_OBJECT = auto()
    """The service can't do it with this object, and never will: a name that is too long, a blob of another type."""
    REJECTED = auto()
    """The service refuses, with a status or a code that we do not know: it may refuse everything so."""


class RequestFailed(Exception):
    """A request that was not answered with what it asked for.

    Args:
        kind: what it means.
        found: what the service said, for a person; no secret.
        remedy: what that person can do, where the service's answer tells more than its kind does.
        retry_after: seconds that the service asked us to wait, if it did.
    """

    def __init__(self, kind: ErrorKind, found: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(kind, found, remedy, retry_after)
        self.kind, self.found, self.remedy, self.retry_after = kind, found, remedy, retry_after


class ObjectClient(Protocol):
    """One service, as one principal: keys are those of `ObjectStore`.

    Each verb is one request and its answer, and raises `Refused` for any other than it says. None waits for ever. What
    lies beneath may send a request twice where the connection broke, which is why writes are marked.
    """

    async def get(self, key: str, limit: int) -> FetchedObject:
        """An object with its tag, and of its content `limit` bytes at most."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """So many bytes from `start` on, or up to the end; b"" behind it."""
        ...

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        """Replace the object of that tag, or create it where that is None; its new tag."""
        ...

    async def delete(self, key: str, expected: str | None) -> None:
        """Delete the object of that tag; with None whatever lies there."""
        ...

    async def list_page(self, prefix: str, limit: int, continuation: str | None) -> ObjectPage:
        """So many of the keys that begin with a prefix and have no slash after it, from where the part before ended."""
        ...

    async def close(self) -> None:
        """Let go of what is its own; connections that it shares are closed by whoever made them."""
        ...


# ── router: Which configured store holds a location


class PrefixRouter:
    """Implements `StoreRouter`.

    Args:
        stores: by canonical prefix (`file://`, `s3://bucket`, `s3://bucket/warehouse`). A prefix holds whole segments,
            and of several the longest holds.
    """

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        self._stores = sorted(stores.items(), key=lambda item: len(item[0]), reverse=True)

    def store_for(self, location: str) -> ObjectStore:
        """The store of a normalised location or key.

        Raises:
            LocationRefused: no prefix fits.
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
        """As `ObjectStore.part`, of whichever store holds the key.

        Raises:
            LocationRefused: none does.
        """
        return await self.store_for(key).read_range(key, start, length)


# ── content: What a file's content may be

MAX_READ_BYTES = MAX_DOCUMENT_BYTES + 1
"""Bytes of a file that are ever read: one more than a document may have, so that its decoder sees one too long."""


def content_etag(body: bytes) -> str:
    """The tag of a content: the same content always has the same tag, as with an entity tag of S3."""
    return sha256(body).hexdigest()


def check_length(key: str, body: bytes) -> None:
    """Refuse to write what nobody would read.

    Raises:
        Permanent: scope table, where the body is longer than a document may be.
    """
    if len(body) > MAX_DOCUMENT_BYTES:
        raise Permanent(
            key,
            scope=ErrorScope.TABLE,
            expected=f"a body of at most {MAX_DOCUMENT_BYTES} bytes",
            found=f"{len(body)} bytes",
        )


def media_type(key: str) -> str:
    """What a file of ours is, for whoever looks at it in a store's console."""
    return "application/json" if key.endswith((".ver", ".json")) else "text/plain; charset=utf-8"


# ── paths: Paths as texts


def parent_folder(path: str) -> str:
    """The folder that something lies in, of an absolute path without empty segments; the root lies in itself."""
    return path.rpartition("/")[0] or "/"


def base_name(path: str) -> str:
    """The last segment of a path."""
    return path.rpartition("/")[2]


def decode_name(name: str) -> str | None:
    """A file's name as the end of a key; None for what cannot be one."""
    try:
        return os.fsencode(name).decode()
    except UnicodeDecodeError:
        return None
