"""The proxy of a gateway: it forwards requests to the catalog and has commits recorded before and after.

`mount_gateways` and `standalone_gateway` make ASGI applications of proxies.
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
from sfn.formats.decode import MAX_STORED_EVENT
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
from sfn.telemetry import tracing
from sfn.telemetry.logs import LogThrottle

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
"""Statuses of responses without a body and its length (RFC 9110, section 8.6)."""
_FLUSH_ITERATIONS: Final = 2
"""Iterations of the event loop until written data is sent: the gateway's server joins the writes of one iteration, and
uvloop sends in the next one."""

_UPWARDS: Final = re.compile(r"(?:^|/|\\|%2f|%5c)(?:\.|%2e){2}(?:/|\\|%2f|%5c|;|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that passes the gateway.

    Attributes:
        method: HTTP method.
        target: path and query after the gateway's own path, unchanged.
        path: path of the target, percent-encoded as received.
        query: query of the target, percent-encoded as received.
        fields: header fields, names in lower case.
        address: address under which the client reached the gateway.
        peer: the client's address; None if unknown.
        body: the request's body.
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
        """Return whether `..` in the path could lead a server out of the catalog's address."""
        return _UPWARDS.search(self.path) is not None


def parse_request(
    scope: Scope, receive: Receive, root: str, public: PublicAddress | None, reservation: BodyReservation
) -> ForwardedRequest:
    """Return the request of an ASGI scope.

    Args:
        scope: scope of type `http`, with `raw_target`: the target of the request line. `sfn.http.server` adds this key,
            because ASGI's own keys do not distinguish the forms of a target.
        receive: ASGI's `receive`.
        root: the gateway's own path.
        public: configured public address of the gateway; None to derive the address from the request.
        reservation: memory for the body.

    Raises:
        Rejected: 400; the target is not in origin form, the request has several hosts, or an unknown transfer coding.
    """
    fields: HeaderFields = scope["headers"]
    raw: bytes = scope["raw_target"]
    if ORIGIN_FORM.fullmatch(raw) is None or not raw.startswith(root.encode()):
        raise Rejected("", status=400, expected="a path that begins with / as the target", found="another form")
    if sum(name == b"host" for name, _ in fields) > 1:
        raise Rejected("", status=400, expected="one Host field", found="several")
    coding = list_values(fields, b"transfer-encoding")
    if coding not in ([], [b"chunked"]):
        # The gateway drops this field, so the catalog could not know the coding of the body.
        raise Rejected("", status=400, expected="no transfer coding except chunked", found="another one")
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
            receive,
            has_body=has_body,
            length=None if length is None else int(length.lstrip("0") or "0"),
            reservation=reservation,
        ),
    )


class ResponseWriter:
    """The response to a client.

    Args:
        send: ASGI's `send`.

    Attributes:
        status: the status that was sent, so no other one is possible any more; None before.
    """

    def __init__(self, send: Send) -> None:
        self._send, self._pace = send, ClientPace()
        self.status: int | None = None

    @property
    def has_begun(self) -> bool:
        """True if the status was sent."""
        return self.status is not None

    async def begin(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the header.

        Raises:
            ClientStalled: the client receives nothing.
        """
        self.status = status
        with self._pace.sending(0):
            await self._send({"type": "http.response.start", "status": status, "headers": list(fields)})

    async def send_part(self, content: bytes, *, more: bool = True) -> None:
        """Send a part of the body.

        Raises:
            ClientStalled: the client receives nothing, or too slowly.
        """
        with self._pace.sending(len(content)):
            await self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def flush(self) -> None:
        """Wait until written data is on its way to the client, before this process does anything slow."""
        for _ in range(_FLUSH_ITERATIONS):
            await anyio.lowlevel.checkpoint()

    async def send_whole(self, status: int, content: bytes, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send a complete response."""
        length = [] if status in BODILESS else [(b"content-length", b"%d" % len(content))]
        await self.begin(status, [*fields, *length])
        await self.send_part(content, more=False)

    async def send_error(self, status: int, message: str, fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send an error of the gateway."""
        kind = (b"content-type", errors.ICEBERG_ERROR_MEDIA_TYPE)
        await self.send_whole(status, errors.iceberg_error_body(status, message), [*fields, kind])


CONFIG: Final = "/v1/config"
"""End of the path of the only request with a rewritten response body."""
_Field: TypeAlias = tuple[bytes, bytes]
_OF_ONE_BODY: Final = frozenset(
    {b"accept-ranges", b"content-digest", b"content-encoding", b"content-md5", b"digest", b"etag", b"repr-digest"}
)
"""Fields that describe the exact bytes of a body. A rewritten body loses them."""
_OF_A_PART: Final = frozenset({b"accept-encoding", b"range", b"if-range"})
"""Fields of a request for a compressed or partial body."""
_NOT_COMPRESSED: Final = "configure the catalog, or the proxy before it, to honour Accept-Encoding: identity"
_CONFIG_LIMIT: Final = 1 << 20
"""Most bytes of a configuration that is rewritten."""
_CLOSE_FIELDS: Final = ((b"connection", b"close"),)
"""Field of a response to a partly read request, because the next request could not be recognised."""
_LONG: Final = 1 << 20
"""Bytes of a response after which the gateway checks whether the client is still connected."""

_log = structlog.stdlib.get_logger(__name__)


class UpstreamResponse(Protocol):
    """A response that may still be arriving: the port that `sfn.gateway.upstream.PooledResponse` implements."""

    @property
    def status(self) -> int: ...

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]: ...

    def parts(self, limit: int | None = None) -> AsyncIterator[bytes]: ...

    def release(self) -> None: ...


class CatalogUpstream(Protocol):
    """The catalog: the port that `sfn.gateway.upstream.UpstreamPool` implements."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse: ...

    async def close(self) -> None: ...


class GatewayRequestMetrics(Protocol):
    """Metrics of requests."""

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """Count a request and its seconds up to the response's header; `status` is None without a response."""
        ...

    def count_unmapped(self) -> None:
        """Count a commit under a prefix that belongs to no configured catalog."""
        ...


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Options of a gateway.

    Attributes:
        base: the catalog's address, without a slash at the end.
        public: address under which clients reach the gateway; None to derive it from each request.
        body_limit: most bytes of a request's body that are read to find the names of its tables.
    """

    base: str
    public: PublicAddress | None
    body_limit: int


class Proxy:
    """The proxy of one gateway.

    Args:
        upstream: the catalog.
        recorder: recorder of commits.
        mapping: catalogs and tables of the gateway.
        options: options of the gateway.
        metrics: metrics of requests.
        memory: memory for the bodies of the clients of all gateways, which only the catalog can authenticate.
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
            root: path of the gateway, a prefix of the request's path.
            scope: ASGI's scope.
            receive: ASGI's `receive`.
            send: ASGI's `send`.
        """
        method = scope["method"]
        with tracing.serve(f"{method} {self._recorder.name}", scope["headers"]) as step:
            writer = ResponseWriter(send)
            await self._answer_whatever_happens(root, scope, receive, writer)
            if writer.status is not None:
                tracing.answered(step, writer.status, {"http.request.method": method})

    async def _answer_whatever_happens(self, root: str, scope: Scope, receive: Receive, writer: ResponseWriter) -> None:
        try:
            with self._memory.reserve() as reservation:
                await self._answer(parse_request(scope, receive, root, self._options.public, reservation), writer)
        except Rejected as refusal:
            await writer.send_error(
                refusal.status, f"expected {refusal.expected}, found {refusal.found}", _CLOSE_FIELDS
            )
        except ClientStalled:
            if not writer.has_begun:
                detail = f"expected at least {MIN_RATE} bytes of the body per second, found less for {STALL_LIMIT:g} s"
                await writer.send_error(HTTPStatus.REQUEST_TIMEOUT, detail, _CLOSE_FIELDS)
        except BodyMemoryExhausted:
            retry_after = (b"retry-after", b"%d" % RETRY_AFTER)
            await writer.send_error(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, [retry_after, *_CLOSE_FIELDS])
        except ClientGone:
            return
        except Transient as trouble:
            await _answer_error(trouble, writer)

    async def _answer(self, request: ForwardedRequest, writer: ResponseWriter) -> None:
        if request.has_parent_segments:
            await writer.send_error(HTTPStatus.BAD_REQUEST, "a path with `..` may lead out of the catalog's address")
            return
        # The body is read before a connection to the catalog is taken and before an intent is recorded.
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
        """Count a commit under a prefix that belongs to no configured catalog, and log each prefix once."""
        self._metrics.count_unmapped()
        if self._unmapped_prefixes.is_new(prefix):
            _log.warning(
                "commit under an unmapped prefix",
                gateway=self._recorder.name,
                prefix=unquote(prefix)[:MAX_STORED_EVENT],
                known=sorted(self._mapping.catalogs),
                remedy=f"add it to {self._recorder.name}.catalogs if it is the prefix of a configured catalog; "
                "see `sfn check`",
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
            # A commit without credentials is usually rejected by the catalog, so no intent is recorded for it.
            status = await self._forward_commit(commit, request, writer)
            self._accepts_anonymous |= status is not None and commits.is_success(status)

    def _pending_commit(self, change: CatalogChange, catalog: str, request: ForwardedRequest) -> PendingCommit | None:
        """Return the commit to record for a change; None if no published table is concerned."""
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
        """Forward a commit and record its outcome.

        Returns:
            The status of the response; None if the status is not reliable.
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
        # The query is left out, because it may contain a secret.
        summary = f"{request.method} {request.path[:MAX_STORED_EVENT]} {observer.status}".encode()
        await self._recorder.record_outcome(commit, status, observer.metadata_location, summary)
        return status

    async def _relay(
        self, request: ForwardedRequest, writer: ResponseWriter, observer: ResponseObserver | None, *, change: bool
    ) -> None:
        """Forward a request and send the catalog's response to the client.

        Args:
            request: the request.
            writer: response to the client.
            observer: observer of the catalog's response; None for none.
            change: whether the request may change a table.
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
                # Sending to a disconnected client raises no error.
                if size > _LONG and await request.body.is_client_gone():
                    raise ClientGone
            await writer.send_part(b"", more=False)
        finally:
            incoming.release()

    def _rewrite_locations(self, answer_fields: Sequence[_Field], url: str) -> Sequence[_Field]:
        """Return a response's fields with locations that lead to this gateway instead of the catalog."""
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
        """Answer with the catalog's configuration, in which the gateway's address replaces the catalog's."""
        forwarded = connection.request_fields(request.fields, request.address, request.peer)
        header = [field for field in forwarded if field[0].lower() not in _OF_A_PART]
        incoming = await self._send(request, [*header, (b"Accept-Encoding", b"identity")], change=False)
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
        """Return the body and the fields of a configuration for the client.

        Some proxies compress every response, whatever the request asks for. A rewritten configuration is sent
        uncompressed, which every client accepts. An unreadable one is sent unchanged.
        """
        codings = connection.list_values(answer_fields, b"content-encoding")
        plain = gateway_upstream.decode_body(body, codings, _CONFIG_LIMIT)
        found = None if plain is None else gateway_upstream.rewrite_configuration(plain, self._options.base, url)
        if found is None:
            if codings and (suppressed := self._throttle.allow("configuration")) is not None:
                coding = b", ".join(codings).decode("latin-1")
                _log.warning("configuration unreadable", coding=coding, remedy=_NOT_COMPRESSED, suppressed=suppressed)
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
            with tracing.request(request.method, f"{self._options.base}{request.path}", "catalog") as step:
                incoming = await self._upstream.send(outgoing)
                tracing.answered(step, incoming.status)
            status = incoming.status
            body.release()
        finally:
            self._metrics.answered(change=change, status=status, seconds=time.perf_counter() - began)
        return incoming


async def _answer_error(error: Transient, writer: ResponseWriter) -> None:
    """Answer that the catalog did not respond. If a response has begun, the client sees that it is incomplete."""
    _log.warning("no response of the catalog", error=str(error))
    if writer.has_begun:
        return
    status = HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, OutcomeUnknown):
        status = HTTPStatus.GATEWAY_TIMEOUT if isinstance(error.__cause__, TimeoutError) else HTTPStatus.BAD_GATEWAY
    detail = f"expected {error.expected}, found {error.found}"
    retry_after = [(b"retry-after", b"%d" % max(1, round(error.retry_after)))] if error.retry_after else []
    await writer.send_error(status, detail, retry_after)


GATEWAY_PATH: Final = "/catalog/"
"""Path before a gateway's name."""
_RAW_GATEWAY_PATH: Final = GATEWAY_PATH.encode()

GatewayApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def mount_gateways(proxies: Mapping[str, Proxy], others: GatewayApplication) -> GatewayApplication:
    """Return an ASGI application with gateways below `GATEWAY_PATH`.

    Args:
        proxies: proxies by name.
        others: application for all other paths.
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
    """Return the ASGI application of a gateway with its own listener, where its path is `/`."""
    return partial(proxy.answer, "")
