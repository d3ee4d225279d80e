"""Where events come in, as a bare ASGI application: 202 and 204 mean that the hints are on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import structlog

from sfn.body_memory import NO_ROOM, RETRY_AFTER, BodyMemory, HeldBody, NoRoom
from sfn.dialects import POLARIS, Arrived, Sender, polaris
from sfn.errors import Broken, Rejected, Transient
from sfn.inbox import Intake
from sfn.receiver import body, faces, permission, problem
from sfn.receiver.concern import Concern
from sfn.receiver.faces import Answer, Face
from sfn.receiver.readiness import Readiness
from sfn.receiver.senders import Claimant, Senders
from sfn.receiver.taking import Taking, tell
from sfn.telemetry.metrics import Events
from sfn.telemetry.refusals import Refusals, Seldom

PATH: Final = "/v1/events"
"""Where all dialects are taken but for Polaris' notifications, which have paths of their own."""

_NO_PAGES: Final = (
    "a web page may not send events (Origin) while none needs a token; "
    'configure [senders.NAME] secrets = { main = "…" } and send that token'
)
_ENDS: Final = "the service is shutting down"
_SEND_FEWER: Final = "let the sender send these events again, fewer in one request, or raise listener.body_limit"
_SEND_PLAIN: Final = "let the sender send these events again, and none compressed"
_COMPRESSED: Final = Rejected("", status=415, expected="a body that is not compressed", found="a Content-Encoding")
_PLAIN: Final = (b"accept-encoding", b"identity")

_log = structlog.stdlib.get_logger(__name__)


def takes(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request (ASGI 3, scope `http`) is for `Ingest`, by its path."""
    return scope["path"] == PATH or polaris.addressed(_sent_to(scope)) is not None


class Ingest:
    """Takes events: sender, body, hints, inbox, answer, in this order; who signs is known after the body.

    Args:
        intake: where hints go.
        senders: who may send.
        readiness: whether anything is taken at all.
        limits: what a body may cost.
        concern: which events matter.
        on_broken: told once the inbox can't be trusted any more, so that the process may end.
        counted: told of every answer.
        memory: for the bodies of those who have not shown who they are; who shows a token needs none of it.
    """

    def __init__(  # noqa: PLR0913 - the parts that it is made of
        self,
        intake: Intake,
        senders: Senders,
        readiness: Readiness,
        *,
        limits: body.Limits,
        concern: Concern,
        on_broken: Callable[[Broken], None],
        counted: Events,
        memory: BodyMemory | None = None,
    ) -> None:
        self._taking = Taking(intake, concern=concern, counted=counted)
        self._senders = senders
        self._readiness = readiness
        self._limits = limits
        self._on_broken = on_broken
        self._counted = counted
        self._memory = memory or BodyMemory()
        self._seldom = Seldom()
        self._refusals = Refusals("events", self._seldom)

    async def __call__(self, scope: MutableMapping[str, Any], receive: body.Receive, send: faces.Send) -> None:
        """Answer one request (ASGI 3, scope `http`)."""
        face = faces.OWN if scope["path"] == PATH else faces.ICEBERG
        try:
            answer = await self._answer(face, scope, receive)
        except Rejected as refusal:
            answer = face.refused(refusal)
        except Transient as trouble:
            self._tell_not_taken(trouble)
            answer = _unavailable(face, "the events could not be stored", trouble.retry_after)
        except NoRoom:
            answer = _unavailable(face, NO_ROOM, RETRY_AFTER, [faces.CLOSE])
        except Broken as broken:
            self._on_broken(broken)
            answer = _unavailable(face, "the inbox failed, the service is restarting", None)
        except asyncio.CancelledError:
            # The process ends, by an error or since its drain is over: whoever sent it is to send it again.
            answer = _unavailable(face, _ENDS, None, [faces.CLOSE])
        except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback, answered as 500
            _log.exception("request failed")
            answer = face.error(500, "this is an error of the service; its log says more")
        if answer is None:
            return
        if answer.status >= HTTPStatus.BAD_REQUEST:
            self._counted.turned_down(answer.status, None if face is faces.OWN else POLARIS)
        await faces.respond(send, answer)

    async def _answer(self, face: Face, scope: MutableMapping[str, Any], receive: body.Receive) -> Answer | None:
        if scope["method"] != "POST":
            return self._not_posted(face, scope)
        if self._readiness.draining:
            return _unavailable(face, _ENDS, None, [faces.CLOSE])
        asked = _read_headers(scope["headers"])
        who = self._senders.by_head(asked.authorization, scope["headers"])
        if who is None:
            return self._unknown(face, scope)
        if not isinstance(who, Sender):
            return await self._from_signer(face, scope, receive, asked, who)
        if asked.is_from_a_page and self._senders.need_not_show(who):
            return self._turned_away(face, scope, 403, _NO_PAGES)
        if (wait := self._senders.wait(who)) is not None:
            return self._too_many(face, who, wait)
        path = _sent_to(scope)
        if asked.encoding != b"identity":
            return await self._compressed(face, path, who)
        with self._memory.body() if self._senders.need_not_show(who) else nullcontext() as held:
            content = await self._read(receive, asked.length, path, who, held)
            if content is None:
                return None
            return face.taken(*await self._taking.take(Arrived(path, scope["headers"], content, who)))

    async def _from_signer(
        self,
        face: Face,
        scope: MutableMapping[str, Any],
        receive: body.Receive,
        asked: _Asked,
        claimants: Sequence[Claimant],
    ) -> Answer | None:
        """Whose it is its body alone tells: of one that is not read nobody can say what to look at instead."""
        if asked.encoding != b"identity":
            return self._turned_away(face, scope, _COMPRESSED.status, problem.detail(_COMPRESSED), _PLAIN)
        try:
            with self._memory.body() as held:
                content = await body.read(receive, asked.length, self._limits, held)
                proven = None if content is None else await self._senders.proven(claimants, content)
        except Rejected as refusal:
            self._refusals.tell(refusal.status, problem.detail(refusal), _client(scope))
            raise
        if content is None:
            return None
        if proven is None:
            return self._unknown(face, scope)
        if (wait := self._senders.wait(proven.sender)) is not None:
            return self._too_many(face, proven.sender, wait)
        arrived = Arrived(_sent_to(scope), scope["headers"], content, proven.sender)
        return face.taken(*await self._taking.take(arrived, proven.message, is_signed=True))

    async def _read(
        self, receive: body.Receive, length: int | None, path: str, sender: Sender, held: HeldBody | None
    ) -> bytes | None:
        try:
            return await body.read(receive, length, self._limits, held)
        except Rejected as refusal:
            tell(refusal, sender)
            if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await self._taking.make_up(path, sender, _SEND_FEWER)
            raise

    async def _compressed(self, face: Face, path: str, sender: Sender) -> Answer:
        """A body that nobody opens: a small one may hold more than fits into memory."""
        tell(_COMPRESSED, sender)
        await self._taking.make_up(path, sender, _SEND_PLAIN)
        return face.error(_COMPRESSED.status, problem.detail(_COMPRESSED), [_PLAIN])

    def _not_posted(self, face: Face, scope: MutableMapping[str, Any]) -> Answer:
        permits = face is faces.OWN and self._senders.are_configured
        if permits and scope["method"] == "OPTIONS":
            return permission.asked(face, scope["headers"], self._senders.least_rate)
        allowed = permission.ALLOW if permits else (b"allow", b"POST")
        return self._turned_away(face, scope, 405, "events are sent with POST", allowed)

    def _unknown(self, face: Face, scope: MutableMapping[str, Any]) -> Answer:
        """The same answer whatever is wrong: it tells nobody how near they were."""
        return self._turned_away(face, scope, 401, "a valid bearer token is needed", (b"www-authenticate", b"Bearer"))

    def _too_many(self, face: Face, sender: Sender, wait: float) -> Answer:
        if (left_out := self._seldom.passing(("too many", sender.name))) is not None:
            _log.warning("events refused", sender=sender.name, status=429, left_out=left_out)
        return face.error(429, "more requests a minute than this sender may make", [_retry_after(wait)])

    def _turned_away(
        self, face: Face, scope: MutableMapping[str, Any], status: int, why: str, *headers: tuple[bytes, bytes]
    ) -> Answer:
        """A request is refused of which nobody knows who sent it."""
        self._refusals.tell(status, why, _client(scope))
        return face.error(status, why, headers)

    def _tell_not_taken(self, trouble: Transient) -> None:
        if (left_out := self._seldom.passing("not taken")) is not None:
            _log.warning("events not taken", error=str(trouble), left_out=left_out)


class _Asked(NamedTuple):
    authorization: bytes | None
    length: int | None
    encoding: bytes
    is_from_a_page: bool


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> _Asked:
    authorization: bytes | None = None
    length: int | None = None
    encoding = b"identity"
    is_from_a_page = False
    for name, value in headers:
        if name == b"authorization":
            # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
            authorization = value if authorization is None else b""
        elif name == b"content-length":
            length = int(value) if value.isdigit() else None
        elif name == b"content-encoding":
            encoding = value.strip().lower()
        elif name == b"origin":
            # Browsers send it with every POST, whatever page has it sent (Fetch, section 3.2), and nobody else does.
            is_from_a_page = True
    return _Asked(authorization, length, encoding, is_from_a_page)


def _client(scope: MutableMapping[str, Any]) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def _sent_to(scope: MutableMapping[str, Any]) -> str:
    raw: bytes = scope["raw_path"]
    return raw.decode("ascii")


def _unavailable(face: Face, detail: str, retry_after: float | None, headers: faces.Headers = ()) -> Answer:
    return face.error(503, detail, [*headers, _retry_after(retry_after)])


def _retry_after(seconds: float | None) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % problem.whole_seconds(seconds)
