"""Bodies that pass a gateway: a request's body on its way to the catalog, and observations of the response's body.

A request's body is read up to a limit before a connection to the catalog is taken.
"""

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
"""Seconds that a client may be behind `MIN_RATE`, while it sends its body or receives the response. For that time it
may occupy one of the few connections to the catalog."""
MIN_RATE: Final = 4096
"""Lowest average rate of a client, in bytes per second."""


class ClientGone(Exception):
    """The client disconnected before the end of its body or of the response."""


class ClientStalled(ClientGone):
    """The client is still connected, but sends or receives too slowly."""


class ClientPace:
    """The time budget of one client: `STALL_LIMIT` seconds, refilled by each transferred byte.

    Args:
        clock: monotonic clock in seconds.

    Attributes:
        seconds_left: seconds that the client may still keep the gateway waiting.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.seconds_left = STALL_LIMIT

    def count_bytes(self, size: int, seconds: float) -> None:
        """Count transferred bytes, and the seconds spent waiting for the client.

        Raises:
            ClientStalled: the client is too slow.
        """
        self.seconds_left = min(STALL_LIMIT, self.seconds_left - seconds + size / MIN_RATE)
        if self.seconds_left <= 0:
            raise ClientStalled

    @contextmanager
    def sending(self, size: int) -> Iterator[None]:
        """Limit the time of sending `size` bytes within the context.

        Raises:
            ClientStalled: the client received too slowly.
        """
        began = self._clock()
        try:
            with anyio.fail_after(self.seconds_left):
                yield
        except TimeoutError:
            raise ClientStalled from None
        self.count_bytes(size, self._clock() - began)


class RequestBody:
    """A request's body while it arrives.

    Args:
        receive: ASGI's `receive`.
        has_body: whether the request has a body, by its header fields.
        length: length of the body in bytes, by its header fields; None if unknown.
        reservation: memory for the body.
    """

    def __init__(self, receive: Receive, *, has_body: bool, length: int | None, reservation: BodyReservation) -> None:
        self._receive = receive
        self._more = has_body
        self._length = length
        self._reservation, self._parts = reservation, list[bytes]()
        self._pace = ClientPace()

    async def read(self, limit: int) -> None:
        """Read the body up to a limit, before a connection to the catalog is taken.

        Args:
            limit: bytes after which reading stops.

        Raises:
            ClientGone: the client disconnected or stalled.
            BodyMemoryExhausted: no memory is left for the body.
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
        """The whole body; None if it is not read to its end."""
        return None if self._more else b"".join(self._parts)

    @property
    def length(self) -> int | None:
        """The length of the body in bytes; None if unknown yet."""
        return self._length

    @property
    def is_whole(self) -> bool:
        """Return whether the body is read to its end, so that sending it does not wait for the client."""
        return not self._more

    def outgoing(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body to send; None for no body. Can be called once.

        A large body releases its memory when it is written, before the catalog answers.
        """
        if self._more:
            return self._send_as_received()
        if self._parts and len(self._parts[0]) > MAX_WRITE:
            return self._send_and_release()
        return self.whole if self._parts or self._length is not None else None

    def release(self) -> None:
        """Release the memory of the body after the catalog received it."""
        self._parts.clear()
        self._reservation.release()

    async def is_client_gone(self) -> bool:
        """Return whether the client is known to have disconnected; False while its body is read.

        While the body is read, `ClientGone` reports a disconnect.
        """
        if self._more:
            return False
        # After the body, `receive` returns at once if the client disconnected, and blocks otherwise.
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


MAX_SCANNED: Final = 1 << 20
"""Most bytes of a response that are scanned."""

_LOCATION: Final = re.compile(rb'"metadata-location"\s*:\s*("(?:[^"\\]|\\.){1,%d}")' % MAX_LOCATION)
_OVERLAP: Final = MAX_LOCATION + 64
"""Bytes of the last part that are scanned again with the next part, because a match may begin there."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class ResponseObserver:
    """Observations of one response.

    Attributes:
        status: HTTP status; None until the header has arrived.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self._scanner: MetadataLocationScanner | None = None

    @property
    def metadata_location(self) -> str | None:
        """The metadata location in the part of the body that has passed; None for none."""
        return None if self._scanner is None else self._scanner.found

    def on_header(self, status: int, encoding: str | None) -> None:
        """Observe the header."""
        self.status, self._scanner = status, MetadataLocationScanner(encoding or "identity")

    def on_part(self, content: bytes) -> None:
        """Observe a part of the body."""
        if self._scanner is not None:
            self._scanner.feed(content)


class MetadataLocationScanner:
    """A search for the first `metadata-location` in the first `MAX_SCANNED` bytes of a JSON text that arrives in parts.

    It may find the key in a wrong place, such as a table property of that name. That costs one more check of the table:
    the value is only compared with the catalog's answer, and never published.

    Args:
        encoding: `Content-Encoding` of the response. A response with an unknown coding is ignored.

    Attributes:
        found: the metadata location; None if none is found yet.
    """

    def __init__(self, encoding: str = "identity") -> None:
        self.found: str | None = None
        self._end = b""
        self._left = MAX_SCANNED if encoding in {"identity", "gzip"} else 0
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def feed(self, part: bytes) -> None:
        """Scan the next part of the body."""
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
