"""What a reply means that is not an answer: pure, from status, headers and body to the trouble to raise.

Whose trouble it is cannot always be told from one reply (behaviour.md, "Scope of trouble"): a refusal whose `reach` is
None waits for one `GET /v1/config` to decide.
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

# ── refusals: What a reply means that is not an answer

ICEBERG_TOKEN_EXPIRED = 419
"""The REST specification's own status: credentials timed out."""

_UNAUTHENTICATED: Final = frozenset({HTTPStatus.UNAUTHORIZED, ICEBERG_TOKEN_EXPIRED})
_DENIED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_IMPLEMENTED})
"""Statuses with which some catalogs answer a token that has expired; SeaweedFS' with the second."""
_AWS_STATUSES: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""Statuses with which AWS's services refuse, and say by a code why."""

_LONGEST_READ = 2**16

NO_NAMESPACE: Final = "NoSuchNamespaceException"
_NO_TABLE: Final = frozenset({"NoSuchTableException", "NoSuchIcebergTableException", NO_NAMESPACE})
"""Error types that say that there is no such Iceberg table. `NoSuchViewException` answers another question, and
Polaris' `NotFoundException` speaks of a whole warehouse."""

_PROXY: Final = "a 404 counts only in Iceberg's error shape: see whether a proxy answers for the catalog"
_UNKNOWN_TYPE: Final = "this type of error is none of Iceberg's for what is missing: it counts once no listing names it"

_EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "RequestExpired", "UnrecognizedClientException"}
)
"""AWS's codes for keys that are no good any more; others may be."""
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
"""By which AWS lets a signature's time differ from its own."""
_NONE: Final = timedelta()


@dataclass(frozen=True, slots=True)
class CatalogReply:
    """An HTTP response, read whole.

    Attributes:
        where: who was asked what: catalog, method and URL without query, fit for a log.
        status: HTTP status.
        headers: by name, in any case.
        body: decoded from its content encoding; may hold secrets, never printed.
        received_at: when it began to arrive, by our clock.
    """

    where: str
    status: int
    received_at: datetime
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | bytearray = field(repr=False)


def failure_of_status(reply: CatalogReply, *, expected: str, quoting: bool = True) -> CatalogFailure:
    """Why a reply of this status is not what was expected.

    Args:
        reply: the whole reply.
        expected: in words, what would have been an answer.
        quoting: repeat the beginning of a body that is not in Iceberg's error shape.
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
    """The type of an error in Iceberg's shape that goes with its status, else None."""
    error = responses.read_error(reply.body)
    return error.type if error is not None and error.code == reply.status else None


def is_missing_table(reply: CatalogReply) -> bool:
    """Whether a reply says that there is no such Iceberg table."""
    return reply.status == HTTPStatus.NOT_FOUND and iceberg_error_type(reply) in _NO_TABLE


def may_be_missing(reply: CatalogReply) -> bool:
    """Whether a reply may say that what was asked for does not exist, by an error in Iceberg's shape.

    Catalogs call that error by many types, and answer at a path that they do not know with the same. So it counts only
    where the type is one of Iceberg's own, or where a listing agrees.
    """
    error_type = iceberg_error_type(reply)
    if error_type is None:
        return False
    return reply.status == HTTPStatus.NOT_FOUND or (reply.status == HTTPStatus.BAD_REQUEST and error_type in _NO_TABLE)


def is_unauthenticated(reply: CatalogReply) -> bool:
    """Whether a reply says that who asked was not believed, and may be with another proof."""
    return reply.status in _UNAUTHENTICATED or (_is_aws_refusal(reply) and _aws_code(reply) in _EXPIRED)


def is_denied(reply: CatalogReply) -> bool:
    """Whether a reply may mean that a token has expired, though it says something else."""
    return reply.status in _DENIED


def failure_of_body(reply: CatalogReply, *, expected: str, found: str) -> CatalogFailure:
    """A reply with a good status whose body makes no sense."""
    return CatalogFailure(
        reply.where,
        expected=expected,
        found=f"status {reply.status}, {found}",
        remedy="see what answers at that URL: a proxy's page, a cut connection or a catalog of another kind",
    )


def _meaning(reply: CatalogReply) -> tuple[bool, ErrorScope | None, str]:
    """Whether it is permanent, whose trouble it is where that is known, and what can be done."""
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
                "grant our principal to load and list there, or exclude it; some say 403 for what is gone",
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
                "set uri to where it leads: redirects are not followed, they would take credentials along",
            )
        case status if status in range(400, 500):
            return True, None, "the catalog takes no such request: a name that it wants in no URL, or an old version"
        case status if status in range(500, 600):
            return False, None, "look into the catalog's own log"
        case _:
            return False, None, "see what answers at that URL"


def _is_aws_refusal(reply: CatalogReply) -> bool:
    return reply.status in _AWS_STATUSES


def _aws_code(reply: CatalogReply) -> str:
    """The code of an error of AWS's: in a header, before what may follow it there, or in Iceberg's shape."""
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
        # Without its query: a login page is sent a token there.
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
    """Seconds to wait (RFC 9110, 10.2.3): a number, or a date counted from the server's own Date if it has one.

    Returns:
        None for nothing, or nothing that makes sense. How much of it is heeded is for whoever waits to say.
    """
    value = reply.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+", value):
        return float(value)
    until = _date(value)
    if until is None:
        return None
    return max(0.0, (until - sent_at(reply)).total_seconds())


def sent_at(reply: CatalogReply) -> datetime:
    """When a reply was sent, by the server's own clock if it says."""
    return _date(reply.headers.get("Date", "")) or reply.received_at


def _date(value: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


# ── unheard: Why a request got no whole reply


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
