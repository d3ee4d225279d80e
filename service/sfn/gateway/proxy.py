"""The gateway: a transparent reverse proxy in front of a catalog that loses no commit that passes through it.

What a commit is, and what its answer means, pure functions decide (`recognise`, `naming`, `outcome`); `commits` notes
it in the inbox, before and after; `proxy` moves the bytes.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote

import anyio
import anyio.lowlevel
import structlog

from sfn import errors
from sfn.errors import OutcomeUnknown, Rejected, Transient
from sfn.formats import MAX_STORED_EVENT
from sfn.gateway import commits, connection, routes
from sfn.gateway import upstream as gateway_upstream
from sfn.gateway.commits import CommitRecorder, PendingCommit
from sfn.gateway.connection import ORIGIN_FORM, HeaderFields, PublicAddress, first_value, list_values, public_address
from sfn.gateway.routes import (
    NAMED_IN_BODY,
    CatalogChange,
    CatalogMapping,
    MissingTableLimit,
    UnmappedPrefixes,
    recognise_change,
)
from sfn.gateway.streams import (
    MIN_RATE,
    STALL_LIMIT,
    ClientGone,
    ClientPace,
    ClientStalled,
    Receive,
    RequestBody,
    ResponseObserver,
)
from sfn.gateway.upstream import UpstreamRequest
from sfn.limits import EXHAUSTED_MESSAGE, RETRY_AFTER, BodyMemory, BodyMemoryExhausted, BodyReservation
from sfn.telemetry.logs import LogThrottle

# ── The client's side

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
"""Answers without a body, and without its length (RFC 9110, section 8.6)."""
_TURNS: Final = 2
"""Turns of the event loop until what was written is sent: our server joins what is written in one of them, uvloop sends
what was written in the one before."""

_UPWARDS: Final = re.compile(r"(?:^|/|\\|%2f|%5c)(?:\.|%2e){2}(?:/|\\|%2f|%5c|;|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request.

    Attributes:
        method: HTTP's.
        target: path and query behind the gateway's own path, byte for byte as they came.
        path: the path of it, percent-encoded as it came.
        query: what stands behind the question mark, likewise.
        fields: the header, names in lower case.
        address: how the client reached us.
        peer: its address; None where the server does not know it.
        body: what it sends.
    """

    method: str
    target: bytes
    path: str
    query: str
    fields: HeaderFields
    address: PublicAddress
    peer: str | None
    body: RequestBody

    @property
    def has_parent_segments(self) -> bool:
        """Return whether a server might take the path for one outside of the address that it is put behind."""
        return _UPWARDS.search(self.path) is not None


def parse_request(
    scope: Scope, receive: Receive, root: str, public: PublicAddress | None, reservation: BodyReservation
) -> ForwardedRequest:
    """Return the request of a scope.

    Args:
        scope: ASGI's, of type `http`; with `raw_target`, the target as it stands in the request's line, which
            `sfn.http.server` adds: ASGI's own keys do not tell an origin form from others.
        receive: ASGI's.
        root: the gateway's own path.
        public: how clients reach us, where that is configured.
        reservation: the memory that its body takes.

    Raises:
        Rejected: 400; the target is in no origin form, or several hosts are named.
    """
    fields: HeaderFields = scope["headers"]
    raw: bytes = scope["raw_target"]
    if ORIGIN_FORM.fullmatch(raw) is None or not raw.startswith(root.encode()):
        raise Rejected("", status=400, expected="a path that begins with / as the target", found="another form")
    if sum(name == b"host" for name, _ in fields) > 1:
        raise Rejected("", status=400, expected="one Host field", found="several")
    coding = list_values(fields, b"transfer-encoding")
    if coding not in ([], [b"chunked"]):
        # The gateway drops this field, and then the catalog could not know how the body is encoded.
        raise Rejected("", status=400, expected="no transfer coding but chunked", found="another one")
    target = raw[len(root) :]
    path, _, query = target.partition(b"?")
    client = scope.get("client")
    length = first_value(fields, b"content-length")
    has_body = length not in {None, "0"} or bool(coding)
    return ForwardedRequest(
        method=scope["method"],
        target=target,
        path=path.decode("latin-1"),
        query=query.decode("latin-1"),
        fields=fields,
        address=public or public_address(fields, scope["scheme"], root),
        peer=client[0] if client else None,
        body=RequestBody(
            receive, has_body=has_body, length=None if length is None else int(length), reservation=reservation
        ),
    )


class ResponseWriter:
    """One answer.

    Attributes:
        has_begun: its status is sent; another one can't be any more.
    """

    def __init__(self, send: Send) -> None:
        self._send, self._pace = send, ClientPace()
        self.has_begun = False

    async def begin(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the header.

        Raises:
            ClientStalled: the client takes nothing any more.
        """
        self.has_begun = True
        with self._pace.sending(0):
            await self._send({"type": "http.response.start", "status": status, "headers": list(fields)})

    async def send_part(self, content: bytes, *, more: bool = True) -> None:
        """Send a part of the body.

        Raises:
            ClientStalled: the client takes nothing any more, or too little.
        """
        with self._pace.sending(len(content)):
            await self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def flush(self) -> None:
        """Have what was written on its way to the client, before this process does anything that takes long."""
        for _ in range(_TURNS):
            await anyio.lowlevel.checkpoint()

    async def send_whole(self, status: int, content: bytes, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send an answer at once."""
        length = [] if status in BODILESS else [(b"content-length", b"%d" % len(content))]
        await self.begin(status, [*fields, *length])
        await self.send_part(content, more=False)

    async def send_error(self, status: int, message: str, fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send an error of our own."""
        kind = (b"content-type", errors.ICEBERG_ERROR_MEDIA_TYPE)
        await self.send_whole(status, errors.iceberg_error_body(status, message), [*fields, kind])


# ── Proxy

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
_CLOSE_FIELDS: Final = ((b"connection", b"close"),)
"""Field of an answer to a request that was not read to its end: the next request could not be recognised."""
_LONG: Final = 1 << 20
"""Bytes of an answer from which on it is worth a look whether anybody still waits for it."""

_log = structlog.stdlib.get_logger(__name__)


class UpstreamResponse(Protocol):
    """An answer, whose body may still be on its way: see `sfn.gateway.upstream.PooledResponse`."""

    @property
    def status(self) -> int: ...

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]: ...

    def parts(self, limit: int | None = None) -> AsyncIterator[bytes]: ...

    def release(self) -> None: ...


class CatalogUpstream(Protocol):
    """The catalog: see `sfn.gateway.upstream.UpstreamPool`."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse: ...

    async def close(self) -> None: ...


class GatewayRequestMetrics(Protocol):
    """Told of every request."""

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """Return the header of an answer came, after so long, or none did (None)."""
        ...

    def count_unmapped(self) -> None:
        """Return a commit passed under a prefix that belongs to no catalog of ours."""
        ...


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How a gateway shows itself.

    Attributes:
        base: the catalog's address, without a slash in the end.
        public: how clients reach us; None: as each of them says.
        body_limit: bytes of a request that are read to know which tables it names.
    """

    base: str
    public: PublicAddress | None
    body_limit: int


class Proxy:
    """Answers the requests of one gateway.

    Args:
        upstream: the catalog.
        recorder: has them noted.
        mapping: which requests concern us.
        options: how it shows itself.
        metrics: told of every request.
        memory: what the bodies of all gateways' clients take: only the catalog knows who they are.
    """

    def __init__(
        self,
        upstream: CatalogUpstream,
        recorder: CommitRecorder,
        mapping: CatalogMapping,
        options: GatewayOptions,
        metrics: GatewayRequestMetrics,
        memory: BodyMemory | None = None,
    ) -> None:
        self._upstream, self._recorder, self._mapping, self._options = upstream, recorder, mapping, options
        self._metrics, self._memory = metrics, memory or BodyMemory()
        self._missing_limit = MissingTableLimit(anyio.current_time)
        self._unmapped_prefixes = UnmappedPrefixes()
        self._separators = routes.NamespaceSeparators()
        self._throttle = LogThrottle()
        self._accepts_anonymous = not mapping.requires_credentials

    async def close(self) -> None:
        """Close all connections to the catalog."""
        await self._upstream.close()

    async def answer(self, root: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3, scope `http`).

        Args:
            root: the path of the gateway, which the request's begins with.
        """
        writer = ResponseWriter(send)
        try:
            with self._memory.reserve() as reservation:
                await self._answer(parse_request(scope, receive, root, self._options.public, reservation), writer)
        except Rejected as refusal:
            await writer.send_error(
                refusal.status, f"expected {refusal.expected}, found {refusal.found}", _CLOSE_FIELDS
            )
        except ClientStalled:
            if not writer.has_begun:
                detail = (
                    f"expected {MIN_RATE} bytes of the body a second, and never {STALL_LIMIT:g} s without, found fewer"
                )
                await writer.send_error(HTTPStatus.REQUEST_TIMEOUT, detail, _CLOSE_FIELDS)
        except BodyMemoryExhausted:
            again = (b"retry-after", b"%d" % RETRY_AFTER)
            await writer.send_error(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, [again, *_CLOSE_FIELDS])
        except ClientGone:
            return
        except Transient as trouble:
            await _answer_error(trouble, writer)

    async def _answer(self, request: ForwardedRequest, writer: ResponseWriter) -> None:
        if request.has_parent_segments:
            await writer.send_error(HTTPStatus.BAD_REQUEST, "a path with `..` may lead out of the catalog's address")
            return
        # Before a connection to the catalog is taken, and before anything is noted.
        await request.body.read(self._options.body_limit)
        change = recognise_change(request.method, request.path, request.query)
        catalog = None if change is None else self._mapping.catalog_of(change.prefix)
        if change is not None and catalog is not None:
            await self._change(change, catalog, request, writer)
        elif request.method == "GET" and request.path.endswith(CONFIG):
            await self._configure(request, writer)
        elif change is None:
            await self._relay(request, writer, None, change=False)
        else:
            observer = ResponseObserver()
            await self._relay(request, writer, observer, change=True)
            if observer.status is not None and commits.is_success(observer.status):
                self._report_unmapped(change.prefix)

    def _report_unmapped(self, prefix: str) -> None:
        """Count a commit under a prefix that belongs to no catalog of ours, and log the first of each prefix."""
        self._metrics.count_unmapped()
        if self._unmapped_prefixes.is_new(prefix):
            _log.warning(
                "commit under an unmapped prefix",
                gateway=self._recorder.name,
                prefix=unquote(prefix)[:MAX_STORED_EVENT],
                known=sorted(self._mapping.catalogs),
                remedy=f"{self._recorder.name}.catalogs, if it is the prefix of one of our catalogs; see `sfn check`",
            )

    async def _change(
        self, change: CatalogChange, catalog: str, request: ForwardedRequest, writer: ResponseWriter
    ) -> None:
        commit = self._pending_commit(change, catalog, request)
        if commit is None:
            await self._relay(request, writer, None, change=True)
        elif self._accepts_anonymous or connection.first_value(request.fields, b"authorization") is not None:
            await self._forward_commit(await self._recorder.record_intent(commit), request, writer)
        else:
            # Nobody says whose it is: the catalog should refuse it, and then it has cost us no note.
            status = await self._forward_commit(commit, request, writer)
            self._accepts_anonymous |= status is not None and commits.is_success(status)

    def _pending_commit(self, change: CatalogChange, catalog: str, request: ForwardedRequest) -> PendingCommit | None:
        """What there is to be noted of a change; None for nothing."""
        peer = request.peer or ""
        body: bytes | None = b""
        if change.kind in NAMED_IN_BODY:
            is_plain = connection.first_value(request.fields, b"content-encoding") in {None, "identity"}
            body = request.body.whole if is_plain else None
        try:
            tables = (
                None
                if body is None
                else routes.tables_of_change(change, body, catalog, self._separators.get(change.prefix))
            )
        except routes.UnknownTables:
            tables = None
        if tables is None:
            return PendingCommit(change, catalog, (), peer=peer)
        published = tuple(filter(self._mapping.is_published, tables))
        return PendingCommit(change, catalog, tables, published, peer) if published else None

    async def _forward_commit(
        self, commit: PendingCommit, request: ForwardedRequest, writer: ResponseWriter
    ) -> int | None:
        """Forward a commit and note what comes of it.

        Returns:
            The status of the answer, None where that is not to be trusted.
        """
        observer = ResponseObserver()
        try:
            await self._relay(request, writer, observer, change=True)
        except (OutcomeUnknown, ClientGone):
            await self._record_outcome(commit, request, observer)
            raise
        except (Transient, Rejected):
            await self._recorder.record_not_sent(commit)
            raise
        await writer.flush()
        return await self._record_outcome(commit, request, observer)

    async def _record_outcome(
        self, commit: PendingCommit, request: ForwardedRequest, observer: ResponseObserver
    ) -> int | None:
        status = observer.status
        if status == HTTPStatus.NOT_FOUND and self._missing_limit.is_exceeded(commit.peer):
            status = None
        # Without the query, which may hold a secret.
        summary = f"{request.method} {request.path[:MAX_STORED_EVENT]} {observer.status}".encode()
        await self._recorder.record_outcome(commit, status, observer.metadata_location, summary)
        return status

    async def _relay(
        self, request: ForwardedRequest, writer: ResponseWriter, observer: ResponseObserver | None, *, change: bool
    ) -> None:
        """Forward a request and answer with what comes back.

        Args:
            observer: sees the answer on its way; None: nobody need see it.
            change: it may change a table.
        """
        header = connection.request_fields(request.fields, request.address, request.peer)
        incoming = await self._send(request, header, change=change)
        try:
            if observer is not None:
                observer.on_header(incoming.status, connection.first_value(incoming.fields, b"content-encoding"))
            answer_fields = connection.response_fields(incoming.fields, bodiless=incoming.status in BODILESS)
            await writer.begin(incoming.status, self._rewrite_locations(answer_fields, request.address.url))
            size = 0
            async for part in incoming.parts():
                if observer is not None:
                    observer.on_part(part)
                await writer.send_part(part)
                size += len(part)
                # Nobody is told that a part was sent to nobody.
                if size > _LONG and await request.body.is_client_gone():
                    raise ClientGone
            await writer.send_part(b"", more=False)
        finally:
            incoming.release()

    def _rewrite_locations(self, answer_fields: Sequence[_Field], url: str) -> Sequence[_Field]:
        """Return an answer's fields. Their locations lead to this gateway, not past it to the catalog."""
        if all(name.lower() != b"location" for name, _ in answer_fields):
            return answer_fields
        return [
            (
                name,
                gateway_upstream.rewrite_location(value, self._options.base, url)
                if name.lower() == b"location"
                else value,
            )
            for name, value in answer_fields
        ]

    async def _configure(self, request: ForwardedRequest, writer: ResponseWriter) -> None:
        """Answer with the catalog's configuration, in which we take its place."""
        asked_for = connection.request_fields(request.fields, request.address, request.peer)
        plain = [field for field in asked_for if field[0].lower() not in _OF_A_PART]
        incoming = await self._send(request, [*plain, (b"Accept-Encoding", b"identity")], change=False)
        try:
            body = b"".join([part async for part in incoming.parts(_CONFIG_LIMIT)])
        finally:
            incoming.release()
        answer_fields = self._rewrite_locations(
            connection.response_fields(incoming.fields, bodiless=True), request.address.url
        )
        if incoming.status == HTTPStatus.OK:
            body, answer_fields = self._rewrite_configuration(body, answer_fields, request.address.url)
        await writer.send_whole(incoming.status, body, answer_fields)

    def _rewrite_configuration(
        self, body: bytes, answer_fields: Sequence[_Field], url: str
    ) -> tuple[bytes, Sequence[_Field]]:
        """Return a configuration's body and fields as the client is to have them.

        What compresses every answer, whatever it is asked for, compresses this one too. Changed it goes on as it is
        read, which every client takes; what can't be read goes on as it came.
        """
        codings = connection.list_values(answer_fields, b"content-encoding")
        plain = gateway_upstream.decode_body(body, codings, _CONFIG_LIMIT)
        found = None if plain is None else gateway_upstream.rewrite_configuration(plain, self._options.base, url)
        if found is None:
            if codings and (suppressed := self._throttle.allow("configuration")) is not None:
                coding = b", ".join(codings).decode("latin-1")
                _log.warning("configuration not readable", coding=coding, remedy=_NOT_COMPRESSED, suppressed=suppressed)
            return body, answer_fields
        self._separators.add(found.prefix, found.separator)
        if found.body == plain:
            return body, answer_fields
        return found.body, [field for field in answer_fields if field[0].lower() not in _OF_ONE_BODY]

    async def _send(
        self, request: ForwardedRequest, header: Sequence[tuple[bytes, bytes]], *, change: bool
    ) -> UpstreamResponse:
        body = request.body
        outgoing = UpstreamRequest(
            request.method, request.target, header, body.outgoing(), body.length, is_whole=body.is_whole
        )
        began, status = time.perf_counter(), None
        try:
            incoming = await self._upstream.send(outgoing)
            status = incoming.status
            body.release()
        finally:
            self._metrics.answered(change=change, status=status, seconds=time.perf_counter() - began)
        return incoming


async def _answer_error(error: Transient, writer: ResponseWriter) -> None:
    """Say that there is no answer. Where one has begun, its client sees that it ends too early."""
    _log.warning("not answered by the catalog", error=str(error))
    if writer.has_begun:
        return
    status = HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, OutcomeUnknown):
        status = HTTPStatus.GATEWAY_TIMEOUT if isinstance(error.__cause__, TimeoutError) else HTTPStatus.BAD_GATEWAY
    detail = f"expected {error.expected}, found {error.found}"
    again = [(b"retry-after", b"%d" % max(1, round(error.retry_after)))] if error.retry_after else []
    await writer.send_error(status, detail, again)


GATEWAY_PATH: Final = "/catalog/"
"""What stands before a gateway's name."""
_RAW_GATEWAY_PATH: Final = GATEWAY_PATH.encode()

GatewayApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def mount_gateways(proxies: Mapping[str, Proxy], others: GatewayApplication) -> GatewayApplication:
    """Return an application (ASGI 3) that has the paths below `FACADE_PATH` answered by gateways, and all else by others.

    Args:
        proxies: by name.
    """

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["raw_path"].startswith(_RAW_GATEWAY_PATH):
            await others(scope, receive, send)
            return
        name = scope["raw_path"][len(_RAW_GATEWAY_PATH) :].partition(b"/")[0].decode("latin-1")
        proxy = proxies.get(name)
        if proxy is None:
            await ResponseWriter(send).send_error(HTTPStatus.NOT_FOUND, f"no gateway is called {name[:64]!a}")
        else:
            await proxy.answer(f"{GATEWAY_PATH}{name}", scope, receive, send)

    return dispatch


def standalone_gateway(proxy: Proxy) -> GatewayApplication:
    """Return a gateway's application for a listener of its own, where it begins at `/`."""
    return partial(proxy.answer, "")
