"""What the log is told of TLS handshakes that fail: asyncio and uvloop close such a connection and say nothing."""

from __future__ import annotations

import ssl
from typing import ClassVar

import structlog
from typing_extensions import override

from sfn.telemetry.refusals import LogThrottle

_log = structlog.stdlib.get_logger(__name__)


class LoggedHandshake(ssl.SSLObject):
    """A connection's TLS, which tells of its handshake where that fails, a reason at most once a second.

    The address of the client is not known here, nor can either loop be asked for it. Who just hangs up is not told of.
    """

    throttle: ClassVar[LogThrottle] = LogThrottle()
    """Keeps the log small, for all connections."""

    @override
    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            why = (error.reason or type(error).__name__).lower().replace("_", " ")
            suppressed = self.throttle.allow(why)
            if suppressed is not None:
                _log.warning("TLS handshake failed", why=why, left_out=suppressed)
            raise
