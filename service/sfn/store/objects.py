"""The port below a remote store: an object store's own requests, one for one, and what it means when one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol


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
