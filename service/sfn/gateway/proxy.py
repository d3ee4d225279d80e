"""One gateway: moves requests to its catalog and answers back, and has commits noted on their way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote

import anyio
import structlog

from sfn.body_memory import NO_ROOM, RETRY_AFTER, BodyMemory, NoRoom
from sfn.dialects import LOGGED
from sfn.errors import Rejected, Transient, Unsure
from sfn.gateway import fields, naming, outcome, rewrite
from sfn.gateway.body import RATE, STALLED, Gone, Receive, Stalled
from sfn.gateway.client import BODILESS, Asked, Replying, Scope, Send, asked
from sfn.gateway.commits import Commits, Noted
from sfn.gateway.fields import Front
from sfn.gateway.floor import Passing
from sfn.gateway.reach import Reach, Unfound, Unmapped
from sfn.gateway.recognise import NAMED_IN_BODY, Change, recognise
from sfn.gateway.upstream import Outgoing
from sfn.telemetry.refusals import Seldom

CONFIG: Final = "/v1/config"
"""What the path ends with of the one request whose answer is changed."""
_Field: TypeAlias = tuple[bytes, bytes]
_OF_ONE_BODY: Final = frozenset(
    {b"accept-ranges", b"content-digest", b"content-encoding", b"content-md5", b"digest", b"etag", b"repr-digest"}
)
"""Fields that speak of the very bytes of a body."""
_OF_A_PART: Final = frozenset({b"accept-encoding", b"range", b"if-range"})
"""Fields of a request for other bytes than those of a whole body."""
_NOT_COMPRESSED: Final = "have the catalog, or what stands before it, not compress what is asked for as identity"
_CONFIG_LIMIT: Final = 1 << 20
"""Bytes of a configuration that are read to be rewritten."""
_LAST: Final = ((b"connection", b"close"),)
"""Field of an answer to a request that was not read to its end: the next request could not be recognised."""
_LONG: Final = 1 << 20
"""Bytes of an answer from which on it is worth a look whether anybody still waits for it."""

_log = structlog.stdlib.get_logger(__name__)


class Incoming(Protocol):
    """An answer, whose body may still be on its way: see `sfn.gateway.upstream.Incoming`."""

    @property
    def status(self) -> int: ...

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]: ...

    def parts(self, limit: int | None = None) -> AsyncIterator[bytes]: ...

    def end(self) -> None: ...


class Upstream(Protocol):
    """The catalog: see `sfn.gateway.upstream.Upstream`."""

    async def send(self, request: Outgoing) -> Incoming: ...

    async def close(self) -> None: ...


class Counted(Protocol):
    """Told of every request."""

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """The header of an answer came, after so long, or none did (None)."""
        ...

    def unmapped_commit(self) -> None:
        """A commit passed under a prefix that belongs to no catalog of ours."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """How a gateway shows itself.

    Attributes:
        base: the catalog's address, without a slash in the end.
        public: how clients reach us; None: as each of them says.
        body_limit: bytes of a request that are read to know which tables it names.
    """

    base: str
    public: Front | None
    body_limit: int


class Proxy:
    """Answers the requests of one gateway.

    Args:
        upstream: the catalog.
        commits: has them noted.
        reach: which requests concern us.
        terms: how it shows itself.
        counted: told of every request.
        memory: what the bodies of all gateways' clients take: only the catalog knows who they are.
    """

    def __init__(
        self,
        upstream: Upstream,
        commits: Commits,
        reach: Reach,
        terms: Terms,
        counted: Counted,
        memory: BodyMemory | None = None,
    ) -> None:
        self._upstream, self._commits, self._reach, self._terms = upstream, commits, reach, terms
        self._counted, self._memory = counted, memory or BodyMemory()
        self._unfound = Unfound(anyio.current_time)
        self._unmapped = Unmapped()
        self._separators = naming.Separators()
        self._seldom = Seldom()
        self._takes_anybody = not reach.asks_for_credentials

    async def close(self) -> None:
        """Close all connections to the catalog."""
        await self._upstream.close()

    async def answer(self, root: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3, scope `http`).

        Args:
            root: the path of the gateway, which the request's begins with.
        """
        replying = Replying(send)
        try:
            with self._memory.body() as held:
                await self._answer(asked(scope, receive, root, self._terms.public, held), replying)
        except Rejected as refusal:
            await replying.error(refusal.status, f"expected {refusal.expected}, found {refusal.found}", _LAST)
        except Stalled:
            if not replying.begun:
                detail = f"expected {RATE} bytes of the body a second, and never {STALLED:g} s without, found fewer"
                await replying.error(HTTPStatus.REQUEST_TIMEOUT, detail, _LAST)
        except NoRoom:
            again = (b"retry-after", b"%d" % RETRY_AFTER)
            await replying.error(HTTPStatus.SERVICE_UNAVAILABLE, NO_ROOM, [again, *_LAST])
        except Gone:
            return
        except Transient as trouble:
            await _troubled(trouble, replying)

    async def _answer(self, request: Asked, replying: Replying) -> None:
        if request.leads_upwards:
            await replying.error(HTTPStatus.BAD_REQUEST, "a path with `..` may lead out of the catalog's address")
            return
        # Before a connection to the catalog is taken, and before anything is noted.
        await request.body.read(self._terms.body_limit)
        change = recognise(request.method, request.path, request.query)
        catalog = None if change is None else self._reach.of(change.prefix)
        if change is not None and catalog is not None:
            await self._change(change, catalog, request, replying)
        elif request.method == "GET" and request.path.endswith(CONFIG):
            await self._configure(request, replying)
        elif change is None:
            await self._relay(request, replying, None, change=False)
        else:
            passing = Passing()
            await self._relay(request, replying, passing, change=True)
            if passing.status is not None and outcome.is_done(passing.status):
                self._report_unmapped(change.prefix)

    def _report_unmapped(self, prefix: str) -> None:
        """Count a commit under a prefix that belongs to no catalog of ours, and log the first of each prefix."""
        self._counted.unmapped_commit()
        if self._unmapped.is_new(prefix):
            _log.warning(
                "commit under an unmapped prefix",
                gateway=self._commits.name,
                prefix=unquote(prefix)[:LOGGED],
                known=sorted(self._reach.catalogs),
                remedy=f"{self._commits.name}.catalogs, if it is the prefix of one of our catalogs; see `sfn check`",
            )

    async def _change(self, change: Change, catalog: str, request: Asked, replying: Replying) -> None:
        commit = self._concerning(change, catalog, request)
        if commit is None:
            await self._relay(request, replying, None, change=True)
        elif self._takes_anybody or fields.value(request.fields, b"authorization") is not None:
            await self._follow(await self._commits.before(commit), request, replying)
        else:
            # Nobody says whose it is: the catalog should refuse it, and then it has cost us no note.
            status = await self._follow(commit, request, replying)
            self._takes_anybody |= status is not None and outcome.is_done(status)

    def _concerning(self, change: Change, catalog: str, request: Asked) -> Noted | None:
        """What there is to be noted of a change; None for nothing."""
        peer = request.peer or ""
        body: bytes | None = b""
        if change.kind in NAMED_IN_BODY:
            is_plain = fields.value(request.fields, b"content-encoding") in {None, "identity"}
            body = request.body.whole if is_plain else None
        try:
            named = None if body is None else naming.tables(change, body, catalog, self._separators.of(change.prefix))
        except naming.Unnamed:
            named = None
        if named is None:
            return Noted(change, catalog, (), peer=peer)
        concerned = tuple(filter(self._reach.matters, named))
        return Noted(change, catalog, named, concerned, peer) if concerned else None

    async def _follow(self, commit: Noted, request: Asked, replying: Replying) -> int | None:
        """Forward a commit and note what comes of it.

        Returns:
            The status of the answer, None where that is not to be trusted.
        """
        passing = Passing()
        try:
            await self._relay(request, replying, passing, change=True)
        except (Unsure, Gone):
            await self._note(commit, request, passing)
            raise
        except (Transient, Rejected):
            await self._commits.undone(commit)
            raise
        await replying.sent()
        return await self._note(commit, request, passing)

    async def _note(self, commit: Noted, request: Asked, passing: Passing) -> int | None:
        status = passing.status
        if status == HTTPStatus.NOT_FOUND and self._unfound.too_many(commit.peer):
            status = None
        # Without the query, which may hold a secret.
        said = f"{request.method} {request.path[:LOGGED]} {passing.status}".encode()
        await self._commits.after(commit, status, passing.floor, said)
        return status

    async def _relay(self, request: Asked, replying: Replying, passing: Passing | None, *, change: bool) -> None:
        """Forward a request and answer with what comes back.

        Args:
            passing: sees the answer on its way; None: nobody need see it.
            change: it may change a table.
        """
        header = fields.to_catalog(request.fields, request.seen, request.peer)
        incoming = await self._sent(request, header, change=change)
        try:
            if passing is not None:
                passing.begun(incoming.status, fields.value(incoming.fields, b"content-encoding"))
            told = fields.to_client(incoming.fields, bodiless=incoming.status in BODILESS)
            await replying.begin(incoming.status, self._led(told, request.seen.url))
            size = 0
            async for part in incoming.parts():
                if passing is not None:
                    passing.part(part)
                await replying.part(part)
                size += len(part)
                # Nobody is told that a part was sent to nobody.
                if size > _LONG and await request.body.is_gone():
                    raise Gone
            await replying.part(b"", more=False)
        finally:
            incoming.end()

    def _led(self, told: Sequence[_Field], url: str) -> Sequence[_Field]:
        """An answer's fields. Their locations lead to this gateway, not past it to the catalog."""
        if all(name.lower() != b"location" for name, _ in told):
            return told
        return [
            (name, rewrite.location(value, self._terms.base, url) if name.lower() == b"location" else value)
            for name, value in told
        ]

    async def _configure(self, request: Asked, replying: Replying) -> None:
        """Answer with the catalog's configuration, in which we take its place."""
        asked_for = fields.to_catalog(request.fields, request.seen, request.peer)
        plain = [field for field in asked_for if field[0].lower() not in _OF_A_PART]
        incoming = await self._sent(request, [*plain, (b"Accept-Encoding", b"identity")], change=False)
        try:
            body = b"".join([part async for part in incoming.parts(_CONFIG_LIMIT)])
        finally:
            incoming.end()
        told = self._led(fields.to_client(incoming.fields, bodiless=True), request.seen.url)
        if incoming.status == HTTPStatus.OK:
            body, told = self._ours(body, told, request.seen.url)
        await replying.whole(incoming.status, body, told)

    def _ours(self, body: bytes, told: Sequence[_Field], url: str) -> tuple[bytes, Sequence[_Field]]:
        """A configuration's body and fields as the client is to have them.

        What compresses every answer, whatever it is asked for, compresses this one too. Changed it goes on as it is
        read, which every client takes; what can't be read goes on as it came.
        """
        codings = fields.tokens(told, b"content-encoding")
        plain = rewrite.opened(body, codings, _CONFIG_LIMIT)
        found = None if plain is None else rewrite.configuration(plain, self._terms.base, url)
        if found is None:
            if codings and (left_out := self._seldom.passing("configuration")) is not None:
                coding = b", ".join(codings).decode("latin-1")
                _log.warning("configuration not readable", coding=coding, remedy=_NOT_COMPRESSED, left_out=left_out)
            return body, told
        self._separators.learn(found.prefix, found.separator)
        if found.body == plain:
            return body, told
        return found.body, [field for field in told if field[0].lower() not in _OF_ONE_BODY]

    async def _sent(self, request: Asked, header: Sequence[tuple[bytes, bytes]], *, change: bool) -> Incoming:
        body = request.body
        outgoing = Outgoing(
            request.method, request.target, header, body.outgoing(), body.length, is_whole=body.is_whole
        )
        began, status = time.perf_counter(), None
        try:
            incoming = await self._upstream.send(outgoing)
            status = incoming.status
            body.sent()
        finally:
            self._counted.answered(change=change, status=status, seconds=time.perf_counter() - began)
        return incoming


async def _troubled(trouble: Transient, replying: Replying) -> None:
    """Say that there is no answer. Where one has begun, its client sees that it ends too early."""
    _log.warning("not answered by the catalog", error=str(trouble))
    if replying.begun:
        return
    status = HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(trouble, Unsure):
        status = HTTPStatus.GATEWAY_TIMEOUT if isinstance(trouble.__cause__, TimeoutError) else HTTPStatus.BAD_GATEWAY
    detail = f"expected {trouble.expected}, found {trouble.found}"
    again = [(b"retry-after", b"%d" % max(1, round(trouble.retry_after)))] if trouble.retry_after else []
    await replying.error(status, detail, again)
