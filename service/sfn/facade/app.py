"""The facade's application (ASGI 3): a read-only Iceberg REST catalog below one path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar, assert_never

import msgspec
import structlog

from sfn import iceberg_errors
from sfn.errors import Ambiguous, Broken, Rejected, SfnError, Unsafe
from sfn.facade import Namespace, Place, Shelf, directories, routes
from sfn.facade.exchange import Answer, Receive, Scope, Send, give
from sfn.facade.loading import Loaded, Loading, Unchanged
from sfn.facade.refusals import ABSENT, NO_NAMESPACE, NO_TABLE, NO_VIEW, Missing, told
from sfn.reader.files import Files
from sfn.telemetry.refusals import Refusals, Seldom

T = TypeVar("T")

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH: Final = "/iceberg"
"""Where it begins; `/v1` follows."""

_BELOW: Final = f"{PATH}/".encode()
_JSON: Final = (b"content-type", b"application/json")
_NEEDED: Final = "a reader's token is needed"
_CHALLENGE: Final = (b"www-authenticate", b"Bearer")
_MORE: Final = {
    HTTPStatus.METHOD_NOT_ALLOWED: [(b"allow", b"GET, HEAD")],
    HTTPStatus.SERVICE_UNAVAILABLE: [(b"retry-after", b"1")],
}
"""Fields of refusals."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a facade shows.

    Attributes:
        shelves: its catalogs by name, each with its tables; clients choose one by `warehouse`, or by its prefix.
        directories: where tables may be called by their directories, by canonical root; nowhere where there is none.
        admits: whether an `Authorization` header opens it; None: everybody may read.
        counted: told of each answer's status.
        on_broken: told when a request finds that the inbox can't be trusted any more.
    """

    shelves: Mapping[str, Shelf]
    directories: Mapping[str, Files] = field(default_factory=dict)
    admits: Callable[[bytes | None], bool] | None = None
    counted: Callable[[int], None] = lambda _status: None
    on_broken: Callable[[Broken], None] = lambda _broken: None


def before(facade: Application, others: Application) -> Application:
    """An application that has the paths below `PATH` answered by a facade, and all else by others."""

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and scope["raw_path"].startswith(_BELOW)
        await (facade if is_ours else others)(scope, receive, send)

    return dispatch


class Facade:
    """Answers requests.

    Args:
        terms: what it shows.
        loading: answers what is asked of single tables.
    """

    def __init__(self, terms: Terms, loading: Loading) -> None:
        self._terms, self._loading = terms, loading
        self._seldom = Seldom()
        self._refusals = Refusals("facade", self._seldom)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope)
        self._terms.counted(answer.status)
        await give(answer, scope["method"], receive, send)

    async def _answer(self, scope: Scope) -> Answer:
        method, fields = scope["method"], scope["headers"]
        if self._terms.admits is not None and not self._terms.admits(_value(fields, b"authorization")):
            self._refusals.tell(HTTPStatus.UNAUTHORIZED, _NEEDED, (scope.get("client") or (None,))[0])
            return _error(HTTPStatus.UNAUTHORIZED, _NEEDED, [_CHALLENGE])
        path = scope["raw_path"].decode("latin-1").removeprefix(PATH)
        try:
            asked = routes.route(method, path, scope["query_string"].decode("latin-1"))
            return await self._answered(asked, method, fields)
        except SfnError as error:
            status, kind = told(error)
            if isinstance(error, Broken):
                self._terms.on_broken(error)
            if isinstance(error, Unsafe) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self._tell(path, status, error)
            return _error(status, str(error), _MORE.get(status, ()), kind)
        except Exception as error:  # noqa: BLE001 - it is logged
            # Whatever a client asks or somebody planted ends no connection, and is answered as clients know it.
            self._tell(path, HTTPStatus.INTERNAL_SERVER_ERROR, error, exc_info=True)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "this is an error of the service; its log says more")

    def _tell(self, path: str, status: int, error: Exception, *, exc_info: bool = False) -> None:
        left_out = self._seldom.passing((status, type(error)))
        if left_out is not None:
            _log.warning(
                "not served", path=path, status=int(status), error=str(error), left_out=left_out, exc_info=exc_info
            )

    async def _answered(self, asked: routes.Route, method: str, fields: Sequence[tuple[bytes, bytes]]) -> Answer:
        match asked:
            case routes.Configuration():
                return _json(self._configuration(asked.warehouse))
            case routes.Namespaces():
                return _json(await self._namespaces(asked))
            case routes.OneNamespace():
                await self._check_namespace(asked.prefix, asked.namespace)
                whole = {"namespace": asked.namespace, "properties": {}}
                return Answer(HTTPStatus.NO_CONTENT) if method == "HEAD" else _json(whole)
            case routes.Tables():
                return _json(await self._tables(asked))
            case routes.OneTable():
                if method == "HEAD":
                    await self._of_table(asked, self._loading.find)
                    return Answer(HTTPStatus.NO_CONTENT)
                load = partial(self._loading.load, snapshots=asked.snapshots, known=_tags(fields))
                return _table(await self._of_table(asked, load))
            case routes.Views():
                await self._check_namespace(asked.prefix, asked.namespace)
                return _json({"identifiers": []})
            case routes.OneView():
                raise Missing(_dotted(asked.namespace, asked.name), NO_VIEW, expected="a view")
            case _:
                assert_never(asked)

    def _configuration(self, warehouse: str | None) -> dict[str, Any]:
        name = self._named(warehouse, "warehouse")
        return {"defaults": {}, "overrides": {"prefix": name}, "endpoints": routes.ENDPOINTS}

    def _named(self, name: str | None, what: str) -> str:
        """One of the catalogs.

        Raises:
            Missing: there is none of that name.
            Ambiguous: there are several, and none was named.
        """
        known = sorted(self._terms.shelves)
        if not known or (name and name not in known):
            expected, found = f"one of {', '.join(known)}" if known else "a catalog", repr((name or "")[:64])
            raise Rejected(what, status=HTTPStatus.NOT_FOUND, expected=expected, found=found)
        if not name and len(known) > 1:
            remedy = f"set the client's property {what}"
            raise Ambiguous(what, expected=f"one of {', '.join(known)}", found="none", remedy=remedy)
        return name or known[0]

    def _shelf(self, prefix: str | None) -> Shelf:
        return self._terms.shelves[self._named(prefix, "prefix" if prefix else "warehouse")]

    async def _levels(self, prefix: str | None) -> set[Namespace]:
        """All namespaces, those above others included."""
        named = await self._shelf(prefix).tables()
        levels = {namespace[:number] for namespace in named for number in range(1, len(namespace) + 1)}
        return levels | {directories.NAMESPACE} if self._terms.directories else levels

    async def _namespaces(self, asked: routes.Namespaces) -> dict[str, Any]:
        known = await self._levels(asked.prefix)
        if asked.parent and asked.parent not in known:
            raise Missing(_dotted(asked.parent), NO_NAMESPACE, expected="a namespace")
        depth = len(asked.parent)
        children = [levels[depth] for levels in known if len(levels) == depth + 1 and levels[:depth] == asked.parent]
        names, more = routes.paged(children, asked.page)
        return {"namespaces": [[*asked.parent, name] for name in names], "next-page-token": more}

    async def _check_namespace(self, prefix: str | None, namespace: Namespace) -> None:
        if namespace not in await self._levels(prefix):
            raise Missing(_dotted(namespace), NO_NAMESPACE, expected="a namespace")

    async def _tables(self, asked: routes.Tables) -> dict[str, Any]:
        await self._check_namespace(asked.prefix, asked.namespace)
        known = (await self._shelf(asked.prefix).tables()).get(asked.namespace, {})
        names, more = routes.paged(known, asked.page)
        named = [{"namespace": asked.namespace, "name": name} for name in names]
        return {"identifiers": named, "next-page-token": more}

    async def _of_table(self, asked: routes.OneTable, ask: Callable[[Place], Awaitable[T]]) -> T:
        """What is asked of a table: where it is gone from its place, of where it lies by now."""
        place = await self._place(asked)
        try:
            return await ask(place)
        except ABSENT:
            other = await self._place(asked, anew=True)
            if other == place:
                raise
        return await ask(other)

    async def _place(self, asked: routes.OneTable, *, anew: bool = False) -> Place:
        if self._terms.directories and directories.is_directory(asked.namespace, asked.name):
            return directories.place(asked.name, self._terms.directories)
        place = await self._shelf(asked.prefix).find(asked.namespace, asked.name, anew=anew)
        if place is None:
            raise Missing(_dotted(asked.namespace, asked.name), NO_TABLE, expected="a table with an SFN file")
        return place


def _table(found: Loaded | Unchanged) -> Answer:
    etag = (b"etag", found.etag.encode())
    if isinstance(found, Loaded):
        return Answer(HTTPStatus.OK, found.body, (_JSON, etag))
    return Answer(HTTPStatus.NOT_MODIFIED, fields=(etag,))


def _json(document: dict[str, Any]) -> Answer:
    return Answer(HTTPStatus.OK, msgspec.json.encode(document), (_JSON,))


def _error(status: int, message: str, fields: Sequence[tuple[bytes, bytes]] = (), kind: str | None = None) -> Answer:
    return Answer(status, iceberg_errors.document(status, message, kind), (_JSON, *fields))


def _value(fields: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in fields if key == name), None)


def _tags(fields: Sequence[tuple[bytes, bytes]]) -> frozenset[str]:
    """The entity tags of `If-None-Match`, compared weakly (RFC 9110, section 13.1.2)."""
    text = b",".join(value for key, value in fields if key == b"if-none-match").decode("latin-1")
    return frozenset(tag.strip().removeprefix("W/") for tag in text.split(",") if tag.strip())


def _dotted(namespace: Namespace, *name: str) -> str:
    return ".".join((*namespace, *name))
