"""Responses to senders of events: problem documents for the native route, Iceberg's errors for Polaris' route."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from sfn import errors
from sfn.domain.events import PutResult
from sfn.errors import Rejected, SfnError
from sfn.limits import Receive

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
INTERNAL_ERROR: Final = "internal error of the service; see its log"
"""Detail of a response with status 500."""


class ProblemPart(msgspec.Struct, frozen=True):
    """A wrong part of a request's body."""

    detail: str
    pointer: Annotated[str, msgspec.Meta(description="JSON pointer, as a URI fragment")]


class Problem(msgspec.Struct, frozen=True):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemPart] | msgspec.UnsetType = msgspec.UNSET


def problem_document(status: int, detail: str, *, pointer: str | None = None) -> bytes:
    """Return a problem document (RFC 9457) of type `about:blank`.

    Args:
        status: HTTP status code.
        detail: what is wrong, for people.
        pointer: JSON pointer to the wrong part of the request's body, as a URI fragment.
    """
    errors = msgspec.UNSET if pointer is None else [ProblemPart(detail, pointer)]
    return msgspec.json.encode(Problem("about:blank", HTTPStatus(status).phrase, status, detail, errors))


def problem_detail(error: SfnError) -> str:
    """Return the expected and found values of an error, without its place, which may be a path on this machine."""
    text = f"expected {error.expected}, found {error.found}"
    return f"{text}; {error.remedy}" if error.remedy else text


def retry_after_seconds(retry_after: float | None) -> int:
    """Return the value of `Retry-After` (RFC 9110, section 10.2.3): whole seconds, at least 1."""
    return max(1, math.ceil(retry_after or 1))


class _RefusalBody(msgspec.Struct):
    """The body of a refusal: `detail` of a problem document, or `error.message` of Iceberg."""

    class Error(msgspec.Struct):
        """Iceberg's error."""

        message: str = ""

    detail: str = ""
    error: Error | None = None


ResponseHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

CLOSE_HEADER: Final = (b"connection", b"close")


class EventsResponse(NamedTuple):
    """A response to a sender.

    Attributes:
        status: HTTP status code.
        content: the body.
        headers: all headers.
        encoded: headers, empty line and body as in HTTP/1.1, made once for frequent responses; empty for others.
    """

    status: int
    content: bytes
    headers: ResponseHeaders
    encoded: bytes = b""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The format of the responses on one path.

    Attributes:
        accepted: function that makes the response to stored events from the result and the number of ignored events.
        error_body: function that makes the body of an error from the status, the detail and the place in the request:
            a JSON pointer into the body that begins with "#", or "" for none.
        media_type: media type of an error's body.
    """

    accepted: Callable[[PutResult, int], EventsResponse]
    error_body: Callable[[int, str, str], bytes]
    media_type: bytes

    def error(self, status: int, detail: str, headers: ResponseHeaders = (), *, where: str = "") -> EventsResponse:
        content = self.error_body(status, detail, where)
        return _with_body(status, content, [*headers, (b"content-type", self.media_type)])

    def rejected(self, refusal: Rejected) -> EventsResponse:
        """Return the response to a rejected request."""
        # After a 408 the client is still sending the body, so the next request could not be recognised.
        closing = [CLOSE_HEADER] if refusal.status == HTTPStatus.REQUEST_TIMEOUT else []
        return self.error(refusal.status, problem_detail(refusal), closing, where=refusal.where)


def detail_of(answer: EventsResponse) -> str:
    """Return why a request was refused, as its response says; "" if the response has no reason."""
    try:
        body = msgspec.json.decode(answer.content, type=_RefusalBody)
    except msgspec.DecodeError:
        return ""
    return body.error.message if body.error is not None else body.detail


async def send_response(send: Send, answer: EventsResponse) -> None:
    """Send a response (ASGI 3)."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.content})


def _with_body(status: int, content: bytes, headers: ResponseHeaders) -> EventsResponse:
    return EventsResponse(status, content, [*headers, (b"content-length", b"%d" % len(content))])


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Accepted(msgspec.Struct, frozen=True):
    """Numbers of notifications; a rename counts as two."""

    accepted: _Count
    duplicates: _Count
    ignored: _Count


def _counts_response(result: PutResult, ignored: int) -> EventsResponse:
    return _cached_counts_response(result.accepted, result.duplicates, ignored)


@lru_cache
def _cached_counts_response(accepted: int, duplicates: int, ignored: int) -> EventsResponse:
    content = msgspec.json.encode(Accepted(accepted, duplicates, ignored))
    answer = _with_body(202, content, [(b"content-type", b"application/json")])
    fields = b"".join(b"%b: %b\r\n" % field for field in answer.headers)
    return answer._replace(encoded=b"%b\r\n%b" % (fields, content))


def _problem(status: int, detail: str, where: str) -> bytes:
    if where.startswith("#"):
        return problem_document(status, detail, pointer=where)
    return problem_document(status, f"{where}: {detail}" if where else detail)


NATIVE: Final = ResponseFormat(_counts_response, _problem, PROBLEM_MEDIA_TYPE.encode())
"""Format of the native route: counts, and problem documents."""


def _iceberg_error(status: int, detail: str, where: str) -> bytes:
    message = f"{where}: {detail}" if where.strip("#") else detail
    return errors.iceberg_error_body(status, message)


def _empty_response(_result: PutResult, _ignored: int) -> EventsResponse:
    return EventsResponse(204, b"", [])


ICEBERG: Final = ResponseFormat(_empty_response, _iceberg_error, errors.ICEBERG_ERROR_MEDIA_TYPE)
"""Format of an Iceberg REST catalog: an empty response to accepted events, and Iceberg's error bodies."""
