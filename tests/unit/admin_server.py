"""A service's HTTP side that answers a command what a test tells it to, in threads, on the loopback interface."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered: JSON, or bytes as they are."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class AdminServer:
    """What it answers, by method and path without query, the first of several at first; and what it was asked.

    What nothing was told about is answered with 404, as by a server that is no service of ours.
    """

    url: str = ""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def tell(self, target: str, *replies: Reply) -> None:
        """Answer `GET /path` with these, one after the other, the last for ever."""
        self.replies[target] = list(replies)

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        told = self.replies.get(f"{asked.method} {asked.path.partition('?')[0]}", [Reply(404, b"nothing")])
        return told.pop(0) if len(told) > 1 else told[0]


@contextmanager
def admin_server(certificate: ssl.SSLContext | None = None) -> Iterator[AdminServer]:
    """A server that listens."""
    server = AdminServer()

    class Handler(BaseHTTPRequestHandler):
        def _answered(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            reply = server.answer(Asked(self.command, self.path, dict(self.headers), self.rfile.read(length)))
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        do_GET = do_POST = _answered  # noqa: N815 - as the standard library calls them

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        listening.socket = certificate.wrap_socket(listening.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
