"""What a process that is a facade and nothing else answers of itself (ASGI 3): `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from prometheus_client import CollectorRegistry, Gauge

from sfn import errors
from sfn.facade.exchange import AsgiResponse, Receive, Scope, Send, send_response
from sfn.facade.routes import READ_METHODS
from sfn.telemetry.scrape import negotiate_format

RESCAN_INTERVAL: Final = 5.0
"""Seconds after which folders of which nothing could be listed are looked through again."""

_STARTING: Final = "the folders are being looked through"
_JSON: Final = (b"content-type", b"application/json")
_RETRY_AFTER: Final = (b"retry-after", b"1")

_log = structlog.stdlib.get_logger(__name__)


class StandaloneProbes:
    """Answers whatever does not lie below the facade's own path.

    Args:
        registry: what `/metrics` shows.
        elsewhere: what is said of any other path.
    """

    def __init__(self, registry: CollectorRegistry, elsewhere: str) -> None:
        self._registry, self._elsewhere = registry, elsewhere
        self._missing: str | None = _STARTING
        Gauge("sfn_ready", "Whether /readyz says so.", registry=registry).set_function(lambda: self._missing is None)

    async def prepare(self, wait_until_listed: Callable[[], Awaitable[Exception | None]]) -> None:
        """Be ready once the first tables are known.

        Args:
            wait_until_listed: looks through the folders; why none of them could be.
        """
        while (refusal := await wait_until_listed()) is not None:
            self._missing = str(refusal)
            _log.warning("not ready", error=self._missing)
            await anyio.sleep(RESCAN_INTERVAL)
        self._missing = None
        _log.info("ready")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_response(self._answer(scope), scope["method"], receive, send)

    def _answer(self, scope: Scope) -> AsgiResponse:
        match scope["raw_path"] if scope["method"] in READ_METHODS else b"":
            case b"/livez":
                return AsgiResponse(HTTPStatus.OK, b'{"status":"alive"}', [_JSON])
            case b"/readyz":
                if self._missing is not None:
                    return _probe_error(HTTPStatus.SERVICE_UNAVAILABLE, self._missing, _RETRY_AFTER)
                return AsgiResponse(HTTPStatus.OK, b'{"status":"ready"}', [_JSON])
            case b"/metrics":
                accepted = [value for name, value in scope["headers"] if name == b"accept"]
                encode, kind = negotiate_format(b",".join(accepted).decode("latin-1"))
                return AsgiResponse(HTTPStatus.OK, encode(self._registry), [(b"content-type", kind.encode())])
            case _:
                return _probe_error(HTTPStatus.NOT_FOUND, self._elsewhere)


def _probe_error(status: HTTPStatus, message: str, *fields: tuple[bytes, bytes]) -> AsgiResponse:
    return AsgiResponse(status, errors.iceberg_error_body(status, message), [_JSON, *fields])
