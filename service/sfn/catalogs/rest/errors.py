"""Failures of a REST catalog: pure functions from status, headers and body, or a transport error, to the failure.

One reply does not always show its scope (behaviour.md, "Scope of trouble"). If the `scope` of a failure is None, one
`GET /v1/config` decides.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from sfn.catalogs import CatalogFailure
from sfn.catalogs.rest import responses
from sfn.clock import format_duration
from sfn.errors import ErrorScope

ICEBERG_TOKEN_EXPIRED = 419
"""Status of the REST specification for expired credentials."""

_UNAUTHENTICATED: Final = frozenset({HTTPStatus.UNAUTHORIZED, ICEBERG_TOKEN_EXPIRED})
_DENIED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_IMPLEMENTED})
"""Statuses of some catalogs for an expired token; the second one is SeaweedFS's."""
_AWS_STATUSES: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""Statuses of AWS's refusals, which give the reason in a code."""

_LONGEST_READ = 2**16

NO_NAMESPACE: Final = "NoSuchNamespaceException"
_NO_TABLE: Final = frozenset({"NoSuchTableException", "NoSuchIcebergTableException", NO_NAMESPACE})
"""Error types for a missing Iceberg table. `NoSuchViewException` answers another query, and Polaris'
`NotFoundException` concerns a whole warehouse."""

_PROXY: Final = "a 404 counts only in Iceberg's error shape: check whether a proxy answers for the catalog"
_UNKNOWN_TYPE: Final = "this error type is none of Iceberg's for a missing object: it counts once no listing names it"

_EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "RequestExpired", "UnrecognizedClientException"}
)
"""AWS's codes for keys that are no longer valid; others may be."""
_BAD_SIGNATURE: Final = frozenset(
    {
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
_BUSY: Final = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"})
_SKEW: Final = timedelta(minutes=5)
"""Difference that AWS allows between a signature's time and its own."""
_NONE: Final = timedelta()


@dataclass(frozen=True, slots=True)
class CatalogReply:
    """An HTTP response that was read completely.

    Attributes:
        where: catalog, method and URL without query, fit for a log.
        status: HTTP status.
        headers: headers by name, in any case.
        body: decompressed; may contain secrets, so it is never printed.
        received_at: time at which it began to arrive, by our clock.
    """

    where: str
    status: int
    received_at: datetime
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | bytearray = field(repr=False)


def failure_of_status(reply: CatalogReply, *, expected: str, quoting: bool = True) -> CatalogFailure:
    """Return the failure that a reply with an unexpected status means.

    Args:
        reply: the whole reply.
        expected: description of a valid answer.
        quoting: True to repeat the beginning of a body that is not in Iceberg's error shape.
    """
    permanent, reach, remedy = _meaning(reply)
    return CatalogFailure(
        reply.where,
        expected=expected,
        found=_describe(reply, quoting=quoting),
        remedy=remedy,
        permanent=permanent,
        scope=reach,
        retry_after=retry_after(reply),
    )


def iceberg_error_type(reply: CatalogReply) -> str | None:
    """Return the type of an error in Iceberg's shape with the same code as the status, else None."""
    error = responses.read_error(reply.body)
    return error.type if error is not None and error.code == reply.status else None


def is_missing_table(reply: CatalogReply) -> bool:
    """Return True if a reply says that there is no such Iceberg table."""
    return reply.status == HTTPStatus.NOT_FOUND and iceberg_error_type(reply) in _NO_TABLE


def may_be_missing(reply: CatalogReply) -> bool:
    """Return True if a reply may mean that the queried object does not exist, by an error in Iceberg's shape.

    Catalogs use many types for that error, and return the same one at an unknown path. So it counts only if the type
    is one of Iceberg's own, or if a listing agrees.
    """
    error_type = iceberg_error_type(reply)
    if error_type is None:
        return False
    return reply.status == HTTPStatus.NOT_FOUND or (reply.status == HTTPStatus.BAD_REQUEST and error_type in _NO_TABLE)


def is_unauthenticated(reply: CatalogReply) -> bool:
    """Return True if a reply rejects the credentials, so that others may work."""
    return reply.status in _UNAUTHENTICATED or (_is_aws_refusal(reply) and _aws_code(reply) in _EXPIRED)


def is_denied(reply: CatalogReply) -> bool:
    """Return True if a reply is a denial, which some catalogs also send for an expired token."""
    return reply.status in _DENIED


def failure_of_body(reply: CatalogReply, *, expected: str, found: str) -> CatalogFailure:
    """Return the failure of a reply with a good status and an invalid body."""
    return CatalogFailure(
        reply.where,
        expected=expected,
        found=f"status {reply.status}, {found}",
        remedy="check what answers at that URL: a proxy's page, a cut connection or a catalog of another kind",
    )


def _meaning(reply: CatalogReply) -> tuple[bool, ErrorScope | None, str]:
    """Return whether the failure is permanent, its scope if known, and a remedy."""
    if _is_aws_refusal(reply) and (meaning := _aws_meaning(reply)) is not None:
        return meaning
    match reply.status:
        case HTTPStatus.UNAUTHORIZED | 419:
            return (
                True,
                ErrorScope.CATALOG,
                "give the catalog a valid token or credential; a new one was tried if there was one",
            )
        case HTTPStatus.FORBIDDEN:
            return (
                True,
                None,
                "grant our principal to load and list there, or exclude it; some catalogs send 403 for missing objects",
            )
        case HTTPStatus.TOO_MANY_REQUESTS:
            return False, ErrorScope.CATALOG, "lower worker.concurrency, or raise the catalog's own limit"
        case HTTPStatus.REQUEST_TIMEOUT | HTTPStatus.TOO_EARLY:
            return False, None, ""
        case HTTPStatus.NOT_FOUND:
            return False, None, _PROXY if iceberg_error_type(reply) is None else _UNKNOWN_TYPE
        case status if status in range(300, 400) and status != HTTPStatus.NOT_MODIFIED:
            return (
                True,
                None,
                "set uri to the redirect's target: redirects are not followed, as they would take credentials along",
            )
        case status if status in range(400, 500):
            return True, None, "the catalog rejects such a request: a name that it allows in no URL, or an old version"
        case status if status in range(500, 600):
            return False, None, "check the catalog's own log"
        case _:
            return False, None, "check what answers at that URL"


def _is_aws_refusal(reply: CatalogReply) -> bool:
    return reply.status in _AWS_STATUSES


def _aws_code(reply: CatalogReply) -> str:
    """Return the code of an AWS error, from the header (without a suffix) or from Iceberg's error shape."""
    if code := reply.headers.get("x-amzn-ErrorType", ""):
        return code.partition(":")[0].rpartition("#")[2]
    error = responses.read_error(reply.body)
    return error.type if error is not None else ""


def _aws_meaning(reply: CatalogReply) -> tuple[bool, ErrorScope | None, str] | None:
    code = _aws_code(reply)
    if code in _BUSY:
        return False, ErrorScope.CATALOG, "lower worker.concurrency, or raise the account's limit"
    if code not in _EXPIRED | _BAD_SIGNATURE:
        return None
    remedy = "check signing_region, signing_name and AWS's credentials; other ones were tried if there were any"
    ahead = reply.received_at - sent_at(reply)
    if abs(ahead) > _SKEW:
        way = "ahead of" if ahead > _NONE else "behind"
        remedy = f"set this host's clock: it is {format_duration(abs(ahead))} {way} AWS's"
    return True, ErrorScope.CATALOG, remedy


def _describe(reply: CatalogReply, *, quoting: bool) -> str:
    text = f"status {reply.status}"
    if location := reply.headers.get("Location"):
        # Without its query, which may contain a token for a login page.
        target = urlsplit(location)
        host = target.netloc.rpartition("@")[2]
        text += f" to {target.scheme}://{host}{target.path}" if host else f" to {target.path}"
    if (error := responses.read_error(reply.body)) is not None:
        return f"{text} {error.type}: {error.message}"
    if (code := _aws_code(reply)) != "":
        text += f" {code}"
    kind = reply.headers.get("Content-Type", "of no type")
    text += f" with a body {kind}, {len(reply.body)} bytes, not in Iceberg's error shape"
    if quoting and kind.startswith(("application/json", "text/plain")):
        text += f": {reply.body[:_LONGEST_READ].decode('utf-8', 'replace')}"
    return text


def retry_after(reply: CatalogReply) -> float | None:
    """Return the seconds to wait (RFC 9110, 10.2.3): a number, or a date relative to the server's own Date if given.

    The caller limits the value. The result is None without a valid value.
    """
    value = reply.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+", value):
        return float(value)
    until = _date(value)
    if until is None:
        return None
    return max(0.0, (until - sent_at(reply)).total_seconds())


def sent_at(reply: CatalogReply) -> datetime:
    """Return the time at which a reply was sent, by the server's own clock if it gives one."""
    return _date(reply.headers.get("Date", "")) or reply.received_at


def _date(value: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _TransportErrorMeaning:
    found: str
    remedy: str
    scope: ErrorScope | None = None
    permanent: bool = False


# The classes overlap; the first match counts.
_TRANSPORT_ERRORS: tuple[tuple[type[Exception], _TransportErrorMeaning], ...] = (
    (
        aiohttp.ClientSSLError,
        _TransportErrorMeaning(
            "no trusted TLS connection",
            "check the certificate, its names and dates, ca_file, and whether that port speaks TLS",
            ErrorScope.CATALOG,
            permanent=True,
        ),
    ),
    (
        aiohttp.ClientConnectorDNSError,
        _TransportErrorMeaning("a host without an address", "check uri and the DNS", ErrorScope.CATALOG),
    ),
    (
        aiohttp.ConnectionTimeoutError,
        _TransportErrorMeaning(
            "no connection in time",
            "check whether the catalog is up and no firewall drops packets",
            ErrorScope.CATALOG,
        ),
    ),
    (
        aiohttp.ClientConnectorError,
        _TransportErrorMeaning(
            "no connection", "check whether the catalog is up and listens there", ErrorScope.CATALOG
        ),
    ),
    (aiohttp.InvalidURL, _TransportErrorMeaning("an invalid URL", "check uri", ErrorScope.CATALOG, permanent=True)),
    (TimeoutError, _TransportErrorMeaning("no complete answer in time", "check the catalog's own log and its load")),
    (
        aiohttp.ClientPayloadError,
        _TransportErrorMeaning("an incomplete answer", "check what cuts connections between here and the catalog"),
    ),
    (
        aiohttp.ClientResponseError,
        _TransportErrorMeaning("an answer that is not HTTP", "check what answers at that URL"),
    ),
)
_UNKNOWN_ENCODING = _TransportErrorMeaning(
    "an answer in an unknown encoding that was not requested",
    "switch off compression in the catalog and its proxies: a gateway cannot read the configuration either, and "
    "clients that receive the catalog's own address bypass the gateway",
)
_OTHER = _TransportErrorMeaning("a connection that broke", "check what cuts connections between here and the catalog")


def failure_of_transport(where: str, error: Exception, seconds: float) -> CatalogFailure:
    """Return the failure of a request without a complete reply.

    Args:
        where: catalog, method and URL.
        error: the error that the transport raised.
        seconds: time limit of the request.
    """
    meaning = next((meaning for kind, meaning in _TRANSPORT_ERRORS if isinstance(error, kind)), _OTHER)
    if isinstance(error, aiohttp.ClientResponseError) and _is_encoded(error):
        meaning = _UNKNOWN_ENCODING
    name = type(error).__name__
    # Numbers of TLS errors are OpenSSL's, and have another meaning among the system's.
    if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientSSLError) and error.errno is not None:
        name = errno.errorcode.get(error.errno, name)
    return CatalogFailure(
        where,
        expected=f"an answer within {seconds:g} s" if isinstance(error, TimeoutError) else "an answer",
        found=f"{meaning.found} ({name})",
        remedy=meaning.remedy,
        permanent=meaning.permanent,
        scope=meaning.scope,
    )


def _is_encoded(error: BaseException | None) -> bool:
    """Return True if an encoding error is among the causes of an error."""
    while error is not None:
        if isinstance(error, ContentEncodingError):
            return True
        error = error.__cause__ or error.__context__
    return False
