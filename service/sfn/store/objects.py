"""The port below a remote store: an object store's own requests, one for one, and what it means when one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it was read.

    Attributes:
        body: its content, or the beginning of it.
        tag: the service's word for what lies there: an entity tag, a generation.
        mark: what the write that made it was marked with, None for somebody else's.
    """

    body: bytes
    tag: str
    mark: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing.

    Attributes:
        keys: in order.
        next: where the next part begins, in the service's own words; None at the end; "" where the service says that
            there is more, but not where.
    """

    keys: tuple[str, ...]
    next: str | None


class Kind(Enum):
    """Why a request came to nothing."""

    MISSING = auto()
    """No such object."""
    MOVED = auto()
    """The condition did not hold, or another write of the object was under way; nothing was changed."""
    DENIED = auto()
    """Not permitted; of a look also: perhaps no such object, which not everybody is told."""
    UNKNOWN = auto()
    """The service does not accept who we are: keys that ended or are unknown, a clock that is wrong."""
    NO_PLACE = auto()
    """No such bucket, container or account, or none at that address."""
    NO_ADDRESS = auto()
    """Where the service is can't be told from the settings."""
    THROTTLED = auto()
    """Too much is asked of the service; nothing was changed."""
    TOO_OFTEN = auto()
    """This one object was changed too often; nothing was changed."""
    UNHEARD = auto()
    """Nothing was sent: no connection."""
    UNANSWERED = auto()
    """It may have been carried out: no answer came, or one that it failed on the way."""
    TAGLESS = auto()
    """It was carried out, and the answer has no tag."""
    INCAPABLE = auto()
    """The service says that it does not know such requests."""
    UNFIT = auto()
    """The service can't do it with this object, and never will: a name that is too long, a blob of another type."""
    REJECTED = auto()
    """The service refuses, with a status or a code that we do not know: it may refuse everything so."""


class Refused(Exception):
    """A request that was not answered with what it asked for.

    Args:
        kind: what it means.
        found: what the service said, for a person; no secret.
        remedy: what that person can do, where the service's answer tells more than its kind does.
        retry_after: seconds that the service asked us to wait, if it did.
    """

    def __init__(self, kind: Kind, found: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(kind, found, remedy, retry_after)
        self.kind, self.found, self.remedy, self.retry_after = kind, found, remedy, retry_after


class Objects(Protocol):
    """One service, as one principal: keys are those of `PointerStore`.

    Each verb is one request and its answer, and raises `Refused` for any other than it says. None waits for ever. What
    lies beneath may send a request twice where the connection broke, which is why writes are marked.
    """

    async def get(self, key: str, most: int) -> Found:
        """An object with its tag, and of its content `most` bytes at most."""
        ...

    async def part(self, key: str, start: int, most: int) -> bytes:
        """So many bytes from `start` on, or up to the end; b"" behind it."""
        ...

    async def put(self, key: str, body: bytes, replacing: str | None, mark: str) -> str:
        """Replace the object of that tag, or create it where that is None; its new tag."""
        ...

    async def delete(self, key: str, expected: str | None) -> None:
        """Delete the object of that tag; with None whatever lies there."""
        ...

    async def page(self, prefix: str, most: int, begin: str | None) -> Page:
        """So many of the keys that begin with a prefix and have no slash after it, from where the part before ended."""
        ...

    async def close(self) -> None:
        """Let go of what is its own; connections that it shares are closed by whoever made them."""
        ...
