"""Why a service gives no answer, and what to do about it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

import httpx

from sfn.errors import SfnError

CONNECT_TIMEOUT: Final = 5.0
"""Seconds to get a connection."""
RESPONSE_TIMEOUT: Final = 60.0
"""Seconds to get an answer."""


def connection_error(url: str, error: httpx.TransportError) -> SfnError:
    """What stands between us and an answer, and what to do about it."""
    where = "start it with `sfn serve`, or say where it is: --url, or --config with its listener.host and port"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = "name its authority's certificates with --ca-file, and its host in --url as its certificate does"
            return SfnError(url, expected="a certificate that is trusted", found=cause.verify_message, remedy=remedy)
        if isinstance(cause, ssl.SSLError):
            remedy = "see whether the port speaks TLS: https:// where it does, http:// where not"
            return SfnError(url, expected="a TLS connection", found=cause.reason or "another protocol", remedy=remedy)
        if isinstance(cause, OSError) and cause.strerror:
            return SfnError(url, expected="a running service", found=cause.strerror, remedy=where)
    if isinstance(error, httpx.ConnectTimeout):
        return SfnError(url, expected=f"a connection within {CONNECT_TIMEOUT:g} s", found="none", remedy=where)
    if isinstance(error, httpx.TimeoutException):
        remedy = "see whether the machine or its disk is overloaded"
        return SfnError(url, expected=f"an answer within {RESPONSE_TIMEOUT:g} s", found="none", remedy=remedy)
    remedy = "see whether the port speaks TLS (https://), and whether the service has just ended"
    return SfnError(url, expected="an answer in HTTP", found=type(error).__name__, remedy=remedy)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
