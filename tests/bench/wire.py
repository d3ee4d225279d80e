"""One connection to a server, with as little of our own in between as can be."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.bench.record import Unmeasured


@dataclass(frozen=True, slots=True)
class Reply:
    """A response.

    Attributes:
        tag: its entity tag.
        body: its content.
    """

    tag: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection that is kept open."""

    connection: http.client.HTTPConnection

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request.

        Raises:
            Unmeasured: it was answered with anything but success.
        """
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        content = response.read()
        if not 200 <= response.status < 300:
            raise Unmeasured(f"{method} {path}: {response.status}: {content[:300]!r}")
        return Reply(response.headers["etag"], content)


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """A connection to the server of a URL, closed in the end."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        yield Wire(connection)
    finally:
        connection.close()
