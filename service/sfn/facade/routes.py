"""Routes of the facade (Iceberg's REST specification): parsing, pagination, and responses to errors. Pure."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import parse_qs, unquote_to_bytes

from sfn.errors import (
    Ambiguous,
    CommitNotFound,
    Dropped,
    FatalError,
    NameTaken,
    NotFound,
    NotInstalled,
    NotPermitted,
    Rejected,
    SfnError,
    Transient,
    Unreachable,
    Unreadable,
    Unsafe,
)
from sfn.facade import Namespace
from sfn.facade.tables import SnapshotMode

READ_METHODS: Final = frozenset({"GET", "HEAD"})

_COMMIT: Final = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"

ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    _COMMIT,
)
"""The endpoints in the configuration. Clients do not send other writes or metrics reports.

Commits are listed although they are forbidden: Iceberg's Java library removes the manifests of a commit that a catalog
forbids, but leaves those of a commit that it does not send because the list lacks it (1.11, `CleanableFailure`).
"""

DEFAULT_PAGE_SIZE: Final = 1_000
"""Number of names on a page if the client sets no size."""
_MAX_PAGE_SIZE: Final = 10_000
_SEPARATOR: Final = "\x1f"
"""Separator of the levels of a namespace."""


@dataclass(frozen=True, slots=True)
class GetConfiguration:
    """A request `GET /v1/config`, with the client's warehouse, if any."""

    warehouse: str | None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page of a listing.

    Attributes:
        after: last name of the page before; "" for the first page.
        limit: maximum number of names; None for all.
    """

    after: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ListNamespaces:
    """A request for the direct children of a namespace, or for the top level."""

    prefix: str | None
    parent: Namespace
    page: PageRequest


@dataclass(frozen=True, slots=True)
class GetNamespace:
    """A request for a namespace."""

    prefix: str | None
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class ListTables:
    """A request for the tables of a namespace."""

    prefix: str | None
    namespace: Namespace
    page: PageRequest


@dataclass(frozen=True, slots=True)
class GetTable:
    """A request for a table."""

    prefix: str | None
    namespace: Namespace
    name: str
    snapshots: SnapshotMode


@dataclass(frozen=True, slots=True)
class ListViews:
    """A request for the views of a namespace; there are none."""

    prefix: str | None
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class GetView:
    """A request for a view; there are none."""

    namespace: Namespace
    name: str


Route: TypeAlias = GetConfiguration | ListNamespaces | GetNamespace | ListTables | GetTable | ListViews | GetView


@lru_cache(256)
def parse_route(method: str, path: str, query: str) -> Route:
    """Parse a request.

    Args:
        method: HTTP method.
        path: path below that of the facade, percent-encoded: `/v1/…`.
        query: query, percent-encoded.

    Raises:
        Rejected: 403 for a commit, 405 for another write, 404 for an unknown path, 400 for malformed parameters.
    """
    segments = path.removeprefix("/").split("/")
    if method not in READ_METHODS:
        is_commit = method == "POST" and segments[-4:-3] == ["namespaces"] and segments[-2] == "tables"
        raise Rejected(
            f"{method} {path}",
            status=HTTPStatus.FORBIDDEN if is_commit else HTTPStatus.METHOD_NOT_ALLOWED,
            expected="a read, as this catalog is answered from SFN files",
            found="a change",
            remedy="send it to the table's own catalog",
        )
    parameters = _parameters(query)
    match [_text(segment) for segment in segments]:
        case ["v1", "config"]:
            return GetConfiguration(parameters.get("warehouse"))
        case ["v1", "namespaces", *rest]:
            found = _below(None, rest, parameters)
        case ["v1", prefix, "namespaces", *rest]:
            found = _below(prefix, rest, parameters)
        case _:
            found = None
    if found is None:
        raise Rejected(path, status=HTTPStatus.NOT_FOUND, expected="a path of Iceberg's REST API", found="another")
    return found


def _below(prefix: str | None, rest: Sequence[str], parameters: dict[str, str]) -> Route | None:
    match rest:
        case []:
            return ListNamespaces(prefix, _levels(parameters.get("parent", "")), _page(parameters))
        case [namespace]:
            return GetNamespace(prefix, _levels(namespace))
        case [namespace, "tables"]:
            return ListTables(prefix, _levels(namespace), _page(parameters))
        case [namespace, "tables", name]:
            return GetTable(prefix, _levels(namespace), name, _snapshots(parameters))
        case [namespace, "views"]:
            return ListViews(prefix, _levels(namespace))
        case [namespace, "views", name]:
            return GetView(_levels(namespace), name)
        case _:
            return None


def _levels(text: str) -> Namespace:
    return tuple(text.split(_SEPARATOR)) if text else ()


def _text(segment: str) -> str:
    """Decode a segment of a path. Iceberg's Java library writes a space as `+`; no client sends a literal `+`."""
    try:
        return unquote_to_bytes(segment.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise _malformed("a path in UTF-8", segment) from None


def _parameters(query: str) -> dict[str, str]:
    try:
        found = parse_qs(query, keep_blank_values=True, max_num_fields=64, errors="strict")
    except ValueError:
        raise _malformed("at most 64 parameters in UTF-8", "others") from None
    return {name: values[-1] for name, values in found.items()}


def _snapshots(parameters: dict[str, str]) -> SnapshotMode:
    try:
        return SnapshotMode(parameters.get("snapshots", SnapshotMode.ALL))
    except ValueError:
        raise _malformed("snapshots=all or snapshots=refs", parameters["snapshots"][:64]) from None


def _page(parameters: dict[str, str]) -> PageRequest:
    """Return the requested page; all names for a request without token and size (specification, "Pagination")."""
    if "pageToken" not in parameters and "pageSize" not in parameters:
        return PageRequest()
    try:
        after = urlsafe_b64decode(parameters.get("pageToken", "").encode()).decode()
        limit = int(parameters.get("pageSize", DEFAULT_PAGE_SIZE))
    except (binascii.Error, ValueError):
        raise _malformed("a pageToken of this catalog, and a pageSize in digits", "others") from None
    if limit < 1:
        raise _malformed("a pageSize of 1 or more", f"{limit}")
    return PageRequest(after, min(limit, _MAX_PAGE_SIZE))


def paginate(names: Iterable[str], page: PageRequest) -> tuple[list[str], str | None]:
    """Return the names of a page, and the token of the next page.

    The token is the last name, so names that are added or removed between two requests do not shift the others.
    """
    left = sorted(name for name in names if name > page.after)
    shown = left if page.limit is None else left[: page.limit]
    return shown, None if len(shown) == len(left) else urlsafe_b64encode(shown[-1].encode()).decode()


def _malformed(expected: str, found: str) -> Rejected:
    return Rejected("request", status=HTTPStatus.BAD_REQUEST, expected=expected, found=found)


NO_TABLE: Final = "NoSuchTableException"
NO_NAMESPACE: Final = "NoSuchNamespaceException"
NO_VIEW: Final = "NoSuchViewException"

ABSENT_ERRORS: Final = (CommitNotFound, Dropped, NameTaken, NotFound)
"""Errors of a reader that finds no table in its place."""


class NotInCatalog(Rejected):
    """A table, namespace or view that does not exist.

    Args:
        exception: name of Iceberg's exception for the client.
    """

    def __init__(self, where: str, exception: str, *, expected: str, found: str = "none", remedy: str = "") -> None:
        super().__init__(where, status=HTTPStatus.NOT_FOUND, expected=expected, found=found, remedy=remedy)
        self.exception = exception


def status_and_exception(error: SfnError) -> tuple[HTTPStatus, str | None]:
    """Return the status for an error, and the name of Iceberg's exception if the status does not determine it.

    Permanent errors become 500, which no client retries; temporary errors become 503, which all clients retry.
    """
    match error:
        case NotInCatalog():
            return HTTPStatus.NOT_FOUND, error.exception
        case Rejected():
            return HTTPStatus(error.status), None
        case _ if isinstance(error, ABSENT_ERRORS):
            return HTTPStatus.NOT_FOUND, NO_TABLE
        case Unsafe():
            return HTTPStatus.FORBIDDEN, None
        case Ambiguous():
            return HTTPStatus.BAD_REQUEST, None
        case NotInstalled() | NotPermitted():
            # The facade itself may not read. The operator has to act, because no token of a reader helps.
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
        case Unreachable() | Transient() | FatalError():
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        case Unreadable() | SfnError():
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
