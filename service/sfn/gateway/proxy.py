"""One gateway: moves requests to its catalog and answers back, and has commits noted on their way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import unquote

import anyio
import structlog

from sfn.dialects import LOGGED
from sfn.errors import Transient, Unsure
from sfn.gateway import fields, naming, outcome, rewrite
from sfn.gateway.body import STALLED, Gone, Receive, Stalled
from sfn.gateway.client import BODILESS, Asked, Replying, Scope, Send, asked
from sfn.gateway.commits import Commits, Noted
from sfn.gateway.fields import Front
from sfn.gateway.floor import Passing
from sfn.gateway.reach import Reach, Unfound, Unmapped
from sfn.gateway.recognise import NAMED_IN_BODY, Change, recognise
from sfn.gateway.upstream import Outgoing

CONFIG: Final = "/v1/config"
"""What the path ends with of the one request whose answer is changed."""
_CONFIG_LIMIT: Final = 1 << 20
"""Bytes of a configuration that are read to be rewritten."""
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
    """

    def __init__(self, upstream: Upstream, commits: Commits, reach: Reach, terms: Terms, counted: Counted) -> None:
        self._upstream, self._commits, self._reach, self._terms = upstream, commits, reach, terms
        self._counted = counted
        self._unfound = Unfound(anyio.current_time)
        self._unmapped = Unmapped()
        self._separator: str | None = None
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
            request = asked(scope, receive, root, self._terms.public)
            await self._answer(request, replying)
        except Stalled:
            if not replying.begun:
                detail = f"expected the next part of the body within {STALLED:g} s, found none"
                await replying.error(HTTPStatus.REQUEST_TIMEOUT, detail)
        except Gone:
            return
        except Transient as trouble:
            await _troubled(trouble, replying)

    async def _answer(self, request: Asked, replying: Replying) -> None:
        if request.leads_upwards:
            await replying.error(HTTPStatus.BAD_REQUEST, "a path with `..` may lead out of the catalog's address")
            return
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
        commit = await self._concerning(change, catalog, request)
        if commit is None:
            await self._relay(request, replying, None, change=True)
        elif self._takes_anybody or fields.value(request.fields, b"authorization") is not None:
            await self._follow(await self._commits.before(commit), request, replying)
        else:
            # Nobody says whose it is: the catalog should refuse it, and then it has cost us no note.
            status = await self._follow(commit, request, replying)
            self._takes_anybody |= status is not None and outcome.is_done(status)

    async def _concerning(self, change: Change, catalog: str, request: Asked) -> Noted | None:
        """What there is to be noted of a change; None for nothing."""
        peer = request.peer or ""
        body: bytes | None = b""
        if change.kind in NAMED_IN_BODY:
            is_plain = fields.value(request.fields, b"content-encoding") in {None, "identity"}
            body = await request.body.within(self._terms.body_limit) if is_plain else None
        try:
            named = None if body is None else naming.tables(change, body, catalog, self._separator)
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
        except Transient:
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
            bodiless = incoming.status in BODILESS
            await replying.begin(incoming.status, fields.to_client(incoming.fields, bodiless=bodiless))
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

    async def _configure(self, request: Asked, replying: Replying) -> None:
        """Answer with the catalog's configuration, in which we take its place."""
        asked_for = fields.to_catalog(request.fields, request.seen, request.peer)
        plain = [(name, value) for name, value in asked_for if name.lower() != b"accept-encoding"]
        incoming = await self._sent(request, [*plain, (b"Accept-Encoding", b"identity")], change=False)
        try:
            body = b"".join([part async for part in incoming.parts(_CONFIG_LIMIT)])
        finally:
            incoming.end()
        told = fields.to_client(incoming.fields, bodiless=True)
        if incoming.status == HTTPStatus.OK:
            found = rewrite.configuration(body, self._terms.base, request.seen.url)
            if found is not None:
                self._separator = found.separator or naming.DEFAULT_SEPARATOR
                if found.body != body:
                    body, told = found.body, [field for field in told if field[0].lower() != b"etag"]
        await replying.whole(incoming.status, body, told)

    async def _sent(self, request: Asked, header: Sequence[tuple[bytes, bytes]], *, change: bool) -> Incoming:
        outgoing = Outgoing(request.method, request.target, header, await request.body.outgoing())
        began, status = time.perf_counter(), None
        try:
            incoming = await self._upstream.send(outgoing)
            status = incoming.status
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
