"""A request's body on its way to the catalog: read before a connection to the catalog is taken, up to a limit."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from sfn.formats.event import MAX_LOCATION
from sfn.gateway.connection import MAX_WRITE, slices
from sfn.limits import BodyReservation, ClientTimeout, with_timeout

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


STALL_LIMIT: Final = 60.0
"""Seconds that a client may be behind `MIN_RATE`, with its body or with what it takes of its answer. Until then it
may keep one of the few connections to the catalog from others."""
MIN_RATE: Final = 4096
"""Bytes a second that a client must move in the long run."""


class ClientGone(Exception):
    """The client went away in the middle of its body, or of its answer."""


class ClientStalled(ClientGone):
    """It did not, and went on with neither, or too slowly."""


class ClientPace:
    """How long one client may still keep others waiting: `STALL_LIMIT` seconds, and more with each byte that it moves.

    Args:
        clock: seconds that never run backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.seconds_left = STALL_LIMIT

    def count_bytes(self, size: int, seconds: float) -> None:
        """Count bytes that the client moved, and the seconds spent waiting for it.

        Raises:
            ClientStalled: that is too slow.
        """
        self.seconds_left = min(STALL_LIMIT, self.seconds_left - seconds + size / MIN_RATE)
        if self.seconds_left <= 0:
            raise ClientStalled

    @contextmanager
    def sending(self, size: int) -> Iterator[None]:
        """Has the client take what is sent within in time.

        Raises:
            ClientStalled: it did not.
        """
        began = self._clock()
        try:
            with anyio.fail_after(self.seconds_left):
                yield
        except TimeoutError:
            raise ClientStalled from None
        self.count_bytes(size, self._clock() - began)


class RequestBody:
    """A body as it comes in.

    Args:
        receive: ASGI's.
        has_body: whether the request has a body, by its header.
        length: bytes of it, by its header; None where that does not say.
        reservation: the memory that it takes.
    """

    def __init__(self, receive: Receive, *, has_body: bool, length: int | None, reservation: BodyReservation) -> None:
        self._receive = receive
        self._more = has_body
        self._length = length
        self._reservation, self._parts = reservation, list[bytes]()
        self._pace = ClientPace()

    async def read(self, limit: int) -> None:
        """Read the body up to a limit, before a connection to the catalog is taken for it.

        Raises:
            ClientGone: the client went away, or stalled.
            BodyMemoryExhausted: there is no memory for it.
        """
        while self._more and self._reservation.size <= limit:
            part = await self._next()
            self._reservation.add(len(part))
            self._parts.append(part)
        self._reservation.complete()
        if self._parts and not self._more:
            self._parts = [b"".join(self._parts)]
            self._length = len(self._parts[0])

    @property
    def whole(self) -> bytes | None:
        """All of the body, where all of it was read; b"" for none."""
        return None if self._more else b"".join(self._parts)

    @property
    def length(self) -> int | None:
        """Bytes of the body; None where that is not known yet."""
        return self._length

    @property
    def is_whole(self) -> bool:
        """Return whether all of the body was read, so that nothing waits for the client."""
        return not self._more

    def outgoing(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body for the catalog, once; None for none. A large one takes memory until it is written and no longer,
        however long the catalog then takes for its answer.
        """
        if self._more:
            return self._send_as_received()
        if self._parts and len(self._parts[0]) > MAX_WRITE:
            return self._send_and_release()
        return self.whole if self._parts or self._length is not None else None

    def release(self) -> None:
        """Return the catalog has it: it takes no memory any more."""
        self._parts.clear()
        self._reservation.release()

    async def is_client_gone(self) -> bool:
        """Return whether the client is known to have gone away by now. While its body is read, whoever reads it is told."""
        if self._more:
            return False
        # A server says so at once, and has nothing to say otherwise.
        with anyio.move_on_after(0):
            return bool((await self._receive())["type"] != "http.request")
        return False

    async def _send_and_release(self) -> AsyncIterator[bytes]:
        async for part in slices(self._parts.pop()):
            yield part
        self._reservation.release()

    async def _send_as_received(self) -> AsyncIterator[bytes]:
        parts, self._parts = self._parts, []
        while parts:
            yield parts.pop(0)
        self._reservation.release()
        while self._more:
            yield await self._next()

    async def _next(self) -> bytes:
        began = time.monotonic()
        try:
            message = await with_timeout(self._pace.seconds_left, self._receive(), self._reservation)
        except ClientTimeout:
            raise ClientStalled from None
        if message["type"] != "http.request":
            raise ClientGone
        self._more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        if self._more:
            self._pace.count_bytes(len(part), time.monotonic() - began)
        return part


# ── Observed responses

MAX_SCANNED: Final = 1 << 20
"""Bytes of an answer that are looked at."""

_LOCATION: Final = re.compile(rb'"metadata-location"\s*:\s*("(?:[^"\\]|\\.){1,%d}")' % MAX_LOCATION)
_OVERLAP: Final = MAX_LOCATION + 64
"""Bytes of the end of what was seen: a match may have begun there."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class ResponseObserver:
    """One answer.

    Attributes:
        status: HTTP status; None until the header is here.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self._scanner: MetadataLocationScanner | None = None

    @property
    def metadata_location(self) -> str | None:
        """The metadata location in its body, as far as that has passed; None for none."""
        return None if self._scanner is None else self._scanner.found

    def on_header(self, status: int, encoding: str | None) -> None:
        """Return the header is here."""
        self.status, self._scanner = status, MetadataLocationScanner(encoding or "identity")

    def on_part(self, content: bytes) -> None:
        """Return a part of the body passes."""
        if self._scanner is not None:
            self._scanner.feed(content)


class MetadataLocationScanner:
    """The first `metadata-location` of a JSON text that comes in parts, if it stands within its first `MAX_SCANNED`
    bytes.

    One in the wrong place, such as a table's property of that name, is found too. That costs one look more and no more:
    a floor is what an answer of the catalog is compared with, and never written.

    Args:
        encoding: the answer's `Content-Encoding`; what can't be read is passed over.
    """

    def __init__(self, encoding: str = "identity") -> None:
        self.found: str | None = None
        self._end = b""
        self._left = MAX_SCANNED if encoding in {"identity", "gzip"} else 0
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def feed(self, part: bytes) -> None:
        """Look at the next part of the body."""
        if self.found is not None or self._left <= 0:
            return
        text = self._end + self._plain(part)
        match = _LOCATION.search(text)
        if match is not None:
            self.found = _text(match[1])
        self._end = text[-_OVERLAP:]

    def _plain(self, part: bytes) -> bytes:
        if self._inflate is None:
            plain = part[: self._left]
        else:
            try:
                plain = self._inflate.decompress(part, self._left)
            except zlib.error:
                plain, self._left = b"", 0
        self._left -= len(plain)
        return plain


def _text(quoted: bytes) -> str | None:
    try:
        return msgspec.json.decode(quoted, type=str) or None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
