"""`POST /v1/events` as a bare ASGI application: 202 means that the hints are on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from sfn.dialects import Arrived, Sender, decode
from sfn.errors import Broken, Rejected, Transient
from sfn.inbox import Intake
from sfn.receiver import body, problem
from sfn.receiver.readiness import Readiness
from sfn.receiver.refusals import Refusals
from sfn.receiver.senders import Senders
from sfn.words import Accepted, CatalogName, Hint, TableName

PATH: Final = "/v1/events"

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

_NOTHING: Final = Accepted(0, 0)
_CLOSE: Final = (b"connection", b"close")

_log = structlog.stdlib.get_logger(__name__)


class Answer(NamedTuple):
    """A response.

    Attributes:
        status: HTTP status code.
        content: the body.
        headers: all of them.
    """

    status: int
    content: bytes
    headers: Headers


class Ingest:
    """Takes events: sender, body, hints, inbox, answer, in this order.

    Args:
        intake: where hints go.
        senders: who may send.
        readiness: whether anything is taken at all.
        limits: what a body may cost.
        interest: whether a table is published; hints for others are counted as ignored.
        on_broken: told once the inbox can't be trusted any more, so that the process may end.
    """

    def __init__(
        self,
        intake: Intake,
        senders: Senders,
        readiness: Readiness,
        *,
        limits: body.Limits,
        interest: Callable[[TableName], bool],
        on_broken: Callable[[Broken], None],
    ) -> None:
        self._intake = intake
        self._senders = senders
        self._readiness = readiness
        self._limits = limits
        self._interest = interest
        self._on_broken = on_broken
        self._refusals = Refusals()

    async def __call__(self, scope: MutableMapping[str, Any], receive: body.Receive, send: Send) -> None:
        """Answer one request (ASGI 3, scope `http`)."""
        try:
            answer = await self._answer(scope, receive)
        except Rejected as refusal:
            answer = _refused(refusal)
        except Transient as trouble:
            _log.warning("events not taken", error=str(trouble))
            answer = _unavailable("the events could not be stored", trouble.retry_after)
        except Broken as broken:
            self._on_broken(broken)
            answer = _unavailable("the inbox failed, the service is restarting", None)
        except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback, answered as 500
            _log.exception("request failed")
            answer = _problem(500, "this is an error of the service; its log says more")
        if answer is not None:
            await _respond(send, answer)

    async def _answer(self, scope: MutableMapping[str, Any], receive: body.Receive) -> Answer | None:
        if scope["method"] != "POST":
            return self._turned_away(scope, 405, "events are sent with POST", (b"allow", b"POST"))
        if self._readiness.draining:
            return _unavailable("the service is shutting down", None, [_CLOSE])
        asked = _read_headers(scope["headers"])
        sender = self._senders.verify(asked.authorization)
        if sender is None:
            return self._turned_away(scope, 401, "a valid bearer token is needed", (b"www-authenticate", b"Bearer"))
        if asked.encoding != b"identity":
            return self._turned_away(scope, 415, "the body must not be compressed", (b"accept-encoding", b"identity"))
        try:
            content = await body.read(receive, asked.length, self._limits)
            if content is None:
                return None
            decoded = decode(Arrived(scope["path"], scope["headers"], content, sender))
        except Rejected as refusal:
            _log.info("events refused", sender=sender.name, status=refusal.status, error=str(refusal))
            if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await self._intake.put(_sweeps(sender))
            raise
        wanted = [hint for hint in decoded.hints if self._concerns(hint)]
        taken = await self._intake.put(wanted) if wanted else _NOTHING
        return _accepted(taken.accepted, taken.duplicates, decoded.ignored + len(decoded.hints) - len(wanted))

    def _turned_away(
        self, scope: MutableMapping[str, Any], status: int, why: str, header: tuple[bytes, bytes]
    ) -> Answer:
        """A request that is refused by its head alone."""
        client = scope.get("client")
        self._refusals.tell(status, why, client[0] if client else None)
        return _problem(status, why, [header])

    def _concerns(self, hint: Hint) -> bool:
        return isinstance(hint.subject, CatalogName) or self._interest(hint.subject)


class _Asked(NamedTuple):
    authorization: bytes | None
    length: int | None
    encoding: bytes


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> _Asked:
    authorization: bytes | None = None
    length: int | None = None
    encoding = b"identity"
    for name, value in headers:
        if name == b"authorization":
            # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
            authorization = value if authorization is None else b""
        elif name == b"content-length":
            length = int(value) if value.isdigit() else None
        elif name == b"content-encoding":
            encoding = value.strip().lower()
    return _Asked(authorization, length, encoding)


def _sweeps(sender: Sender) -> list[Hint]:
    """What was in a body that nobody read, a walk over the sender's catalogs finds."""
    return [Hint(CatalogName(catalog), sender.name) for catalog in dict.fromkeys(sender.catalogs.values())]


@lru_cache
def _accepted(accepted: int, duplicates: int, ignored: int) -> Answer:
    content = b'{"accepted":%d,"duplicates":%d,"ignored":%d}' % (accepted, duplicates, ignored)
    return _answer(202, content, [(b"content-type", b"application/json")])


def _refused(refusal: Rejected) -> Answer:
    pointer = refusal.where if refusal.where.startswith("#") else None
    # The client of a 408 is in the middle of its body: no next request could be told from it.
    closing = [_CLOSE] if refusal.status == HTTPStatus.REQUEST_TIMEOUT else []
    content = problem.document(refusal.status, problem.detail(refusal), pointer=pointer)
    return _answer(refusal.status, content, [*closing, (b"content-type", problem.MEDIA_TYPE.encode())])


def _unavailable(detail: str, retry_after: float | None, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
    seconds = str(problem.whole_seconds(retry_after)).encode()
    return _problem(503, detail, [*headers, (b"retry-after", seconds)])


def _problem(status: int, detail: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
    content = problem.document(status, detail)
    return _answer(status, content, [*headers, (b"content-type", problem.MEDIA_TYPE.encode())])


def _answer(status: int, content: bytes, headers: Headers) -> Answer:
    return Answer(status, content, [*headers, (b"content-length", b"%d" % len(content))])


async def _respond(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.content})
