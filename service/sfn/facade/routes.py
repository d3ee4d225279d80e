"""Which question a request asks (Iceberg's REST specification). Pure."""

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

# ── routes: Which question a request asks

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
"""What clients may ask: by this list they refuse other writes on their own, and send no reports.

Commits are among them to be forbidden. Iceberg's Java library removes the manifests that it wrote for a commit that a
catalog forbids, and leaves those of one that it does not send because the list lacks it (1.11, `CleanableFailure`).
"""

DEFAULT_PAGE_SIZE: Final = 1_000
"""Names of a page, where a client asks for pages and not for their size."""
_MAX_PAGE_SIZE: Final = 10_000
_SEPARATOR: Final = "\x1f"
"""Between the levels of a namespace."""


@dataclass(frozen=True, slots=True)
class GetConfiguration:
    """`GET /v1/config`, for a warehouse if the client has one."""

    warehouse: str | None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of a listing.

    Attributes:
        after: the last name of the page before; "" for the first.
        limit: names; None for all of them.
    """

    after: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ListNamespaces:
    """The namespaces directly below another one, or the outermost."""

    prefix: str | None
    parent: Namespace
    page: PageRequest


@dataclass(frozen=True, slots=True)
class GetNamespace:
    """Whether there is a namespace."""

    prefix: str | None
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class ListTables:
    """The tables of a namespace."""

    prefix: str | None
    namespace: Namespace
    page: PageRequest


@dataclass(frozen=True, slots=True)
class GetTable:
    """A table."""

    prefix: str | None
    namespace: Namespace
    name: str
    snapshots: SnapshotMode


@dataclass(frozen=True, slots=True)
class ListViews:
    """The views of a namespace: none."""

    prefix: str | None
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class GetView:
    """A view: there is none."""

    namespace: Namespace
    name: str


Route: TypeAlias = GetConfiguration | ListNamespaces | GetNamespace | ListTables | GetTable | ListViews | GetView


@lru_cache(256)
def parse_route(method: str, path: str, query: str) -> Route:
    """The question.

    Args:
        path: behind the facade's own, percent-encoded: `/v1/…`.
        query: likewise.

    Raises:
        Rejected: 405 for everything that would change something, 403 for commits, 404 for what no catalog is asked, 400
            for what no client should ask.
    """
    segments = path.removeprefix("/").split("/")
    if method not in READ_METHODS:
        is_commit = method == "POST" and segments[-4:-3] == ["namespaces"] and segments[-2] == "tables"
        raise Rejected(
            f"{method} {path}",
            status=HTTPStatus.FORBIDDEN if is_commit else HTTPStatus.METHOD_NOT_ALLOWED,
            expected="a read, as this catalog is answered from SFN files",
            found="a change",
            remedy="ask the table's own catalog for it",
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
        raise Rejected(path, status=HTTPStatus.NOT_FOUND, expected="a path that catalogs have", found="another")
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
    """A part of a path. Iceberg's Java library has `+` for a space there, and no client has it for itself."""
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
    """Whoever sends no token and no size gets all (specification, "Pagination")."""
    if "pageToken" not in parameters and "pageSize" not in parameters:
        return PageRequest()
    try:
        after = urlsafe_b64decode(parameters.get("pageToken", "").encode()).decode()
        limit = int(parameters.get("pageSize", DEFAULT_PAGE_SIZE))
    except (binascii.Error, ValueError):
        raise _malformed("a pageToken that was given here, and a pageSize in digits", "others") from None
    if limit < 1:
        raise _malformed("a pageSize of 1 or more", f"{limit}")
    return PageRequest(after, min(limit, _MAX_PAGE_SIZE))


def paginate(names: Iterable[str], page: PageRequest) -> tuple[list[str], str | None]:
    """A page of a listing, and the token of the next one. Names that come or go meanwhile shift no other."""
    left = sorted(name for name in names if name > page.after)
    shown = left if page.limit is None else left[: page.limit]
    return shown, None if len(shown) == len(left) else urlsafe_b64encode(shown[-1].encode()).decode()


def _malformed(expected: str, found: str) -> Rejected:
    return Rejected("request", status=HTTPStatus.BAD_REQUEST, expected=expected, found=found)


# ── refusals: How a refusal is told to clients of an Iceberg catalog

NO_TABLE: Final = "NoSuchTableException"
NO_NAMESPACE: Final = "NoSuchNamespaceException"
NO_VIEW: Final = "NoSuchViewException"

ABSENT_ERRORS: Final = (CommitNotFound, Dropped, NameTaken, NotFound)
"""A reader finds no table where it was told to look."""


class NotInCatalog(Rejected):
    """What is asked for is not there.

    Args:
        exception: the exception that clients make of it.
    """

    def __init__(self, where: str, exception: str, *, expected: str, found: str = "none", remedy: str = "") -> None:
        super().__init__(where, status=HTTPStatus.NOT_FOUND, expected=expected, found=found, remedy=remedy)
        self.exception = exception


def status_and_exception(error: SfnError) -> tuple[HTTPStatus, str | None]:
    """Status and, where the status alone does not say it, the exception that clients make of it.

    What is broken is answered with 500, which no client tries again; what may be over soon with 503, which all do.
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
            # It is the facade itself that may not read, and its operator who must know: no reader's token helps.
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
        case Unreachable() | Transient() | FatalError():
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        case Unreadable() | SfnError():
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
