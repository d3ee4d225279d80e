"""The facade's application (ASGI 3): a read-only Iceberg REST catalog below one path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar, assert_never

import anyio
import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge

from sfn import errors
from sfn.errors import Ambiguous, FatalError, Rejected, SfnError, Unsafe
from sfn.facade import Namespace, TablePlace, TableSource, routes, tables
from sfn.facade.routes import (
    ABSENT_ERRORS,
    NO_NAMESPACE,
    NO_TABLE,
    NO_VIEW,
    READ_METHODS,
    NotInCatalog,
    status_and_exception,
)
from sfn.facade.tables import TableLoader, TableResponse, UnchangedTable
from sfn.reader.files import FileReader
from sfn.telemetry.logs import LogThrottle, RejectionLog
from sfn.telemetry.scrape import negotiate_format

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_CLOSE: Final = (b"connection", b"close")
_BODY: Final = 1 << 20
"""Maximum size in bytes of a request's body that is read and ignored, so that the connection can be reused."""
_PART: Final = 1 << 18
"""Bytes of a response that are sent at a time."""
_CLIENT_TIMEOUT: Final = 30.0
"""Seconds for a client to send such a body, and to begin to receive a response."""
_MIN_RATE: Final = 1 << 18
"""Minimum rate in bytes per second at which a client must receive a response, because the response holds memory."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AsgiResponse:
    """A response.

    Attributes:
        status: HTTP status code.
        body: content.
        fields: header fields, without the length.
    """

    status: int
    body: bytes | memoryview = b""
    fields: Sequence[tuple[bytes, bytes]] = ()


async def send_response(answer: AsgiResponse, method: str, receive: Receive, send: Send) -> None:
    """Send a response to a request."""
    fields = list(answer.fields)
    if method not in READ_METHODS and not await _drain_body(receive):
        fields.append(_CLOSE)
    if answer.status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        fields.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    if len(answer.body) <= _PART:
        await send({"type": "http.response.body", "body": answer.body})
    else:
        await _send_parts(answer.body, send)


async def _drain_body(receive: Receive) -> bool:
    """Read and ignore a request's body. Return True if all of it arrived, so that the connection can be reused.

    If the connection is closed before the client has sent everything, the client may not receive the response.
    """
    left = _BODY
    with anyio.move_on_after(_CLIENT_TIMEOUT):
        while left >= 0:
            message = await receive()
            if not message.get("more_body", False):
                return bool(message["type"] == "http.request")
            left -= len(message["body"])
    return False


async def _send_parts(body: bytes | memoryview, send: Send) -> None:
    """Send a body in parts, so that the connection's buffer never holds a copy of the whole body for a slow client."""
    at = 0
    with anyio.move_on_after(_CLIENT_TIMEOUT + len(body) / _MIN_RATE) as waiting:
        while at < len(body):
            part = body[at : at + _PART]
            await send({"type": "http.response.body", "body": part, "more_body": at + _PART < len(body)})
            at += _PART
    if waiting.cancelled_caught:
        # The server closes a connection with an incomplete response.
        _log.info("response aborted: reader too slow", sent=at, size=len(body))


T = TypeVar("T")

FacadeApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

FACADE_PATH: Final = "/iceberg"
"""Path of the facade; `/v1` follows."""

_RAW_FACADE_PATH: Final = f"{FACADE_PATH}/".encode()
_JSON: Final = (b"content-type", b"application/json")
_NEEDED: Final = "a reader's token is needed"
_CHALLENGE: Final = (b"www-authenticate", b"Bearer")
_MORE: Final = {
    HTTPStatus.METHOD_NOT_ALLOWED: [(b"allow", b"GET, HEAD")],
    HTTPStatus.SERVICE_UNAVAILABLE: [(b"retry-after", b"1")],
}
"""Additional header fields of error responses, by status."""


@dataclass(frozen=True, slots=True)
class FacadeOptions:
    """The options of a facade.

    Attributes:
        catalogs: table sources, by name of the catalog; clients choose a catalog by `warehouse`, or by its prefix.
        directories: files of tables that clients may name by directory, by canonical root; empty to forbid that.
        authorize: returns True for an `Authorization` header that may read; None to let everyone read.
        on_answer: called with the status of each response.
        on_fatal: called when a request finds that the inbox cannot be trusted any more.
    """

    catalogs: Mapping[str, TableSource]
    directories: Mapping[str, FileReader] = field(default_factory=dict)
    authorize: Callable[[bytes | None], bool] | None = None
    on_answer: Callable[[int], None] = lambda _status: None
    on_fatal: Callable[[FatalError], None] = lambda _broken: None


def mount_facade(facade: FacadeApplication, others: FacadeApplication) -> FacadeApplication:
    """Return an application that sends paths below `FACADE_PATH` to a facade, and all other requests to `others`."""

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        is_facade = scope["type"] == "http" and scope["raw_path"].startswith(_RAW_FACADE_PATH)
        await (facade if is_facade else others)(scope, receive, send)

    return dispatch


class Facade:
    """The ASGI application of the facade.

    Args:
        options: options of the facade.
        loader: loader of single tables.
    """

    def __init__(self, options: FacadeOptions, loader: TableLoader) -> None:
        self._options, self._loader = options, loader
        self._throttle = LogThrottle()
        self._rejections = RejectionLog("facade", self._throttle)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope)
        self._options.on_answer(answer.status)
        await send_response(answer, scope["method"], receive, send)

    async def _answer(self, scope: Scope) -> AsgiResponse:
        method, fields = scope["method"], scope["headers"]
        if self._options.authorize is not None and not self._options.authorize(_value(fields, b"authorization")):
            self._rejections.log_rejected(HTTPStatus.UNAUTHORIZED, _NEEDED, (scope.get("client") or (None,))[0])
            return _error_response(HTTPStatus.UNAUTHORIZED, _NEEDED, [_CHALLENGE])
        path = scope["raw_path"].decode("latin-1").removeprefix(FACADE_PATH)
        try:
            route = routes.parse_route(method, path, scope["query_string"].decode("latin-1"))
            return await self._dispatch(route, method, fields)
        except SfnError as error:
            status, kind = status_and_exception(error)
            if isinstance(error, FatalError):
                self._options.on_fatal(error)
            if isinstance(error, Unsafe) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self._log_failure(path, status, error)
            return _error_response(status, str(error), _MORE.get(status, ()), kind)
        except Exception as error:  # noqa: BLE001 - it is logged
            # An unexpected error, for example from a malicious file, must not end the connection without a response.
            self._log_failure(path, HTTPStatus.INTERNAL_SERVER_ERROR, error, exc_info=True)
            return _error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log of the service has the details"
            )

    def _log_failure(self, path: str, status: int, error: Exception, *, exc_info: bool = False) -> None:
        suppressed = self._throttle.allow((status, type(error)))
        if suppressed is not None:
            _log.warning(
                "request failed",
                path=path,
                status=int(status),
                error=str(error),
                suppressed=suppressed,
                exc_info=exc_info,
            )

    async def _dispatch(self, route: routes.Route, method: str, fields: Sequence[tuple[bytes, bytes]]) -> AsgiResponse:
        match route:
            case routes.GetConfiguration():
                return _json_response(self._configuration(route.warehouse))
            case routes.ListNamespaces():
                return _json_response(await self._namespaces(route))
            case routes.GetNamespace():
                await self._check_namespace(route.prefix, route.namespace)
                whole = {"namespace": route.namespace, "properties": {}}
                return AsgiResponse(HTTPStatus.NO_CONTENT) if method == "HEAD" else _json_response(whole)
            case routes.ListTables():
                return _json_response(await self._tables(route))
            case routes.GetTable():
                if method == "HEAD":
                    await self._with_table(route, self._loader.find)
                    return AsgiResponse(HTTPStatus.NO_CONTENT)
                load = partial(self._loader.load, snapshots=route.snapshots, known_etags=_etags_of(fields))
                return _table_response(await self._with_table(route, load))
            case routes.ListViews():
                await self._check_namespace(route.prefix, route.namespace)
                return _json_response({"identifiers": []})
            case routes.GetView():
                raise NotInCatalog(_dotted(route.namespace, route.name), NO_VIEW, expected="a view")
            case _:
                assert_never(route)

    def _configuration(self, warehouse: str | None) -> dict[str, Any]:
        name = self._require_catalog(warehouse, "warehouse")
        return {"defaults": {}, "overrides": {"prefix": name}, "endpoints": routes.ENDPOINTS}

    def _require_catalog(self, name: str | None, what: str) -> str:
        """Return the name of a catalog; that of the only one if `name` is empty.

        Raises:
            Rejected: there is no catalog of that name.
            Ambiguous: there are several catalogs, and none is named.
        """
        known = sorted(self._options.catalogs)
        if not known or (name and name not in known):
            expected, found = f"one of {', '.join(known)}" if known else "a catalog", repr((name or "")[:64])
            raise Rejected(what, status=HTTPStatus.NOT_FOUND, expected=expected, found=found)
        if not name and len(known) > 1:
            remedy = f"set the client's property {what}"
            raise Ambiguous(what, expected=f"one of {', '.join(known)}", found="none", remedy=remedy)
        return name or known[0]

    def _source_of(self, prefix: str | None) -> TableSource:
        return self._options.catalogs[self._require_catalog(prefix, "prefix" if prefix else "warehouse")]

    async def _levels(self, prefix: str | None) -> set[Namespace]:
        """Return all namespaces, including the parents of others."""
        named = await self._source_of(prefix).tables()
        levels = {namespace[:number] for namespace in named for number in range(1, len(namespace) + 1)}
        return levels | {tables.DIRECTORY_NAMESPACE} if self._options.directories else levels

    async def _namespaces(self, route: routes.ListNamespaces) -> dict[str, Any]:
        known = await self._levels(route.prefix)
        if route.parent and route.parent not in known:
            raise NotInCatalog(_dotted(route.parent), NO_NAMESPACE, expected="a namespace")
        depth = len(route.parent)
        children = [levels[depth] for levels in known if len(levels) == depth + 1 and levels[:depth] == route.parent]
        names, more = routes.paginate(children, route.page)
        return {"namespaces": [[*route.parent, name] for name in names], "next-page-token": more}

    async def _check_namespace(self, prefix: str | None, namespace: Namespace) -> None:
        if namespace not in await self._levels(prefix):
            raise NotInCatalog(_dotted(namespace), NO_NAMESPACE, expected="a namespace")

    async def _tables(self, route: routes.ListTables) -> dict[str, Any]:
        await self._check_namespace(route.prefix, route.namespace)
        known = (await self._source_of(route.prefix).tables()).get(route.namespace, {})
        names, more = routes.paginate(known, route.page)
        named = [{"namespace": route.namespace, "name": name} for name in names]
        return {"identifiers": named, "next-page-token": more}

    async def _with_table(self, route: routes.GetTable, call: Callable[[TablePlace], Awaitable[T]]) -> T:
        """Call a function with the place of a table; if the table moved away, call it again with the new place."""
        place = await self._place(route)
        try:
            return await call(place)
        except ABSENT_ERRORS:
            other = await self._place(route, refresh=True)
            if other == place:
                raise
        return await call(other)

    async def _place(self, route: routes.GetTable, *, refresh: bool = False) -> TablePlace:
        if self._options.directories and tables.is_directory(route.namespace, route.name):
            return tables.place_of_directory(route.name, self._options.directories)
        place = await self._source_of(route.prefix).find(route.namespace, route.name, refresh=refresh)
        if place is None:
            raise NotInCatalog(_dotted(route.namespace, route.name), NO_TABLE, expected="a table with an SFN file")
        return place


def _table_response(found: TableResponse | UnchangedTable) -> AsgiResponse:
    etag = (b"etag", found.etag.encode())
    if isinstance(found, TableResponse):
        return AsgiResponse(HTTPStatus.OK, found.body, (_JSON, etag))
    return AsgiResponse(HTTPStatus.NOT_MODIFIED, fields=(etag,))


def _json_response(document: dict[str, Any]) -> AsgiResponse:
    return AsgiResponse(HTTPStatus.OK, msgspec.json.encode(document), (_JSON,))


def _error_response(
    status: int, message: str, fields: Sequence[tuple[bytes, bytes]] = (), kind: str | None = None
) -> AsgiResponse:
    return AsgiResponse(status, errors.iceberg_error_body(status, message, kind), (_JSON, *fields))


def _value(fields: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in fields if key == name), None)


def _etags_of(fields: Sequence[tuple[bytes, bytes]]) -> frozenset[str]:
    """Return the etags of `If-None-Match`, without the mark of weak ones (RFC 9110, section 13.1.2)."""
    text = b",".join(value for key, value in fields if key == b"if-none-match").decode("latin-1")
    return frozenset(tag.strip().removeprefix("W/") for tag in text.split(",") if tag.strip())


def _dotted(namespace: Namespace, *name: str) -> str:
    return ".".join((*namespace, *name))


RESCAN_INTERVAL: Final = 5.0
"""Seconds until the next scan if no folder could be listed."""

_STARTING: Final = "the first scan of the folders is running"
_RETRY_AFTER: Final = (b"retry-after", b"1")


class StandaloneProbes:
    """The ASGI application of `/livez`, `/readyz` and `/metrics`.

    Args:
        registry: metrics.
        elsewhere: error message for any other path.
    """

    def __init__(self, registry: CollectorRegistry, elsewhere: str) -> None:
        self._registry, self._elsewhere = registry, elsewhere
        self._missing: str | None = _STARTING
        text = "1 if /readyz reports that the process is ready."
        Gauge("sfn_ready", text, registry=registry).set_function(lambda: self._missing is None)

    async def prepare(self, wait_until_listed: Callable[[], Awaitable[Exception | None]]) -> None:
        """Become ready when the first tables are known.

        Args:
            wait_until_listed: waits for a scan; returns the error if no folder could be listed.
        """
        while (refusal := await wait_until_listed()) is not None:
            self._missing = str(refusal)
            _log.warning("not ready", error=self._missing)
            await anyio.sleep(RESCAN_INTERVAL)
        self._missing = None
        _log.info("ready")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_response(self._answer(scope), scope["method"], receive, send)

    def _answer(self, scope: Scope) -> AsgiResponse:
        match scope["raw_path"] if scope["method"] in READ_METHODS else b"":
            case b"/livez":
                return AsgiResponse(HTTPStatus.OK, b'{"status":"alive"}', [_JSON])
            case b"/readyz":
                if self._missing is not None:
                    return _probe_error(HTTPStatus.SERVICE_UNAVAILABLE, self._missing, _RETRY_AFTER)
                return AsgiResponse(HTTPStatus.OK, b'{"status":"ready"}', [_JSON])
            case b"/metrics":
                accepted = [value for name, value in scope["headers"] if name == b"accept"]
                encode, kind = negotiate_format(b",".join(accepted).decode("latin-1"))
                return AsgiResponse(HTTPStatus.OK, encode(self._registry), [(b"content-type", kind.encode())])
            case _:
                return _probe_error(HTTPStatus.NOT_FOUND, self._elsewhere)


def _probe_error(status: HTTPStatus, message: str, *fields: tuple[bytes, bytes]) -> AsgiResponse:
    return AsgiResponse(status, errors.iceberg_error_body(status, message), [_JSON, *fields])
