"""What a process that is a facade and nothing else answers of itself (ASGI 3): `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from prometheus_client import CollectorRegistry, Gauge

from sfn import iceberg_errors
from sfn.facade.exchange import Answer, Receive, Scope, Send, give
from sfn.facade.routes import READS
from sfn.telemetry.scrape import negotiated

LOOK_AGAIN: Final = 5.0
"""Seconds after which folders of which nothing could be listed are looked through again."""

_STARTING: Final = "the folders are being looked through"
_JSON: Final = (b"content-type", b"application/json")
_AGAIN: Final = (b"retry-after", b"1")

_log = structlog.stdlib.get_logger(__name__)


class Process:
    """Answers whatever does not lie below the facade's own path.

    Args:
        registry: what `/metrics` shows.
        elsewhere: what is said of any other path.
    """

    def __init__(self, registry: CollectorRegistry, elsewhere: str) -> None:
        self._registry, self._elsewhere = registry, elsewhere
        self._missing: str | None = _STARTING
        Gauge("sfn_ready", "Whether /readyz says so.", registry=registry).set_function(lambda: self._missing is None)

    async def prepare(self, ready: Callable[[], Awaitable[Exception | None]]) -> None:
        """Be ready once the first tables are known.

        Args:
            ready: looks through the folders; why none of them could be.
        """
        while (refusal := await ready()) is not None:
            self._missing = str(refusal)
            _log.warning("not ready", error=self._missing)
            await anyio.sleep(LOOK_AGAIN)
        self._missing = None
        _log.info("ready")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await give(self._answer(scope), scope["method"], receive, send)

    def _answer(self, scope: Scope) -> Answer:
        match scope["raw_path"] if scope["method"] in READS else b"":
            case b"/livez":
                return Answer(HTTPStatus.OK, b'{"status":"alive"}', [_JSON])
            case b"/readyz":
                if self._missing is not None:
                    return _error(HTTPStatus.SERVICE_UNAVAILABLE, self._missing, _AGAIN)
                return Answer(HTTPStatus.OK, b'{"status":"ready"}', [_JSON])
            case b"/metrics":
                accepted = [value for name, value in scope["headers"] if name == b"accept"]
                encode, kind = negotiated(b",".join(accepted).decode("latin-1"))
                return Answer(HTTPStatus.OK, encode(self._registry), [(b"content-type", kind.encode())])
            case _:
                return _error(HTTPStatus.NOT_FOUND, self._elsewhere)


def _error(status: HTTPStatus, message: str, *fields: tuple[bytes, bytes]) -> Answer:
    return Answer(status, iceberg_errors.document(status, message), [_JSON, *fields])
