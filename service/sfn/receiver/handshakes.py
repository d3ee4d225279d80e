"""What the log is told of TLS handshakes that fail: asyncio and uvloop close such a connection and say nothing."""

from __future__ import annotations

import ssl
from typing import ClassVar

import structlog
from typing_extensions import override

from sfn.telemetry.refusals import Seldom

_log = structlog.stdlib.get_logger(__name__)


class Handshake(ssl.SSLObject):
    """A connection's TLS, which tells of its handshake where that fails, a reason at most once a second.

    The address of the client is not known here, nor can either loop be asked for it. Who just hangs up is not told of.
    """

    seldom: ClassVar[Seldom] = Seldom()
    """Keeps the log small, for all connections."""

    @override
    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            why = (error.reason or type(error).__name__).lower().replace("_", " ")
            left_out = self.seldom.passing(why)
            if left_out is not None:
                _log.warning("TLS handshake failed", why=why, left_out=left_out)
            raise
