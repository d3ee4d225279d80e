"""Why a request got no whole reply, told by the type of the transport's error, never by its text."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from sfn.catalog.refusal import CatalogFailure
from sfn.errors import ErrorScope


@dataclass(frozen=True, slots=True)
class _TransportErrorMeaning:
    found: str
    remedy: str
    scope: ErrorScope | None = None
    permanent: bool = False


# The first that fits: the classes overlap.
_TRANSPORT_ERRORS: tuple[tuple[type[Exception], _TransportErrorMeaning], ...] = (
    (
        aiohttp.ClientSSLError,
        _TransportErrorMeaning(
            "no TLS connection that can be trusted",
            "check the certificate, its names and its dates, ca_file, and whether that port speaks TLS",
            ErrorScope.CATALOG,
            permanent=True,
        ),
    ),
    (
        aiohttp.ClientConnectorDNSError,
        _TransportErrorMeaning("a host that has no address", "check uri and the DNS", ErrorScope.CATALOG),
    ),
    (
        aiohttp.ConnectionTimeoutError,
        _TransportErrorMeaning(
            "no connection in time",
            "see whether the catalog is up and no firewall swallows packets",
            ErrorScope.CATALOG,
        ),
    ),
    (
        aiohttp.ClientConnectorError,
        _TransportErrorMeaning("no connection", "see whether the catalog is up and listens there", ErrorScope.CATALOG),
    ),
    (aiohttp.InvalidURL, _TransportErrorMeaning("a URL that is none", "check uri", ErrorScope.CATALOG, permanent=True)),
    (TimeoutError, _TransportErrorMeaning("no whole answer in time", "look into the catalog's own log and its load")),
    (
        aiohttp.ClientPayloadError,
        _TransportErrorMeaning("half an answer", "see what cuts connections between here and the catalog"),
    ),
    (aiohttp.ClientResponseError, _TransportErrorMeaning("an answer that is no HTTP", "see what answers at that URL")),
)
_UNKNOWN_ENCODING = _TransportErrorMeaning(
    "an answer in an unknown encoding that was not requested",
    "have the catalog, or what stands before it, not compress: a gateway can't read its configuration either, and "
    "clients that it names its own address to are led past the gateway",
)
_OTHER = _TransportErrorMeaning("a connection that broke", "see what cuts connections between here and the catalog")


def failure_of_transport(where: str, error: Exception, seconds: float) -> CatalogFailure:
    """Why there is no reply.

    Args:
        where: who was asked what.
        error: what the transport raised.
        seconds: how long the request might take.
    """
    meaning = next((meaning for kind, meaning in _TRANSPORT_ERRORS if isinstance(error, kind)), _OTHER)
    if isinstance(error, aiohttp.ClientResponseError) and _is_encoded(error):
        meaning = _UNKNOWN_ENCODING
    name = type(error).__name__
    # The numbers of TLS errors are OpenSSL's and mean something else among the system's.
    if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientSSLError) and error.errno is not None:
        name = errno.errorcode.get(error.errno, name)
    return CatalogFailure(
        where,
        expected=f"an answer within {seconds:g} s",
        found=f"{meaning.found} ({name})",
        remedy=meaning.remedy,
        permanent=meaning.permanent,
        scope=meaning.scope,
    )


def _is_encoded(error: BaseException | None) -> bool:
    """Whether an encoding is at the root of it, whatever the transport put around that."""
    while error is not None:
        if isinstance(error, ContentEncodingError):
            return True
        error = error.__cause__ or error.__context__
    return False
