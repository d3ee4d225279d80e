"""Bodies of Iceberg's REST API, parsed into our words: pure, typed, only the fields that are needed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Meta

from sfn.catalogs.metadata import TableMetadata, UnreadableDocument, decode_json, needed_members, to_table
from sfn.catalogs.partial_json import extract
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, Permanent, UnaddressableTable

# ── answers: Bodies of Iceberg's REST API

T = TypeVar("T")

_PAGING: Final = frozenset({"next-page-token", "nextPageToken"})
_HEADER: Final = "header."
_NEEDED_SETTINGS: Final = frozenset({"prefix", "uri", "namespace-separator"})
_MIN_LIFETIME: Final = 1.0
"""Seconds: a token that is said to last less would be asked for again with each request."""
_CREDENTIALS: Final = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """What `/v1/config` says about how to ask.

    Attributes:
        prefix: path segment of this warehouse, "" for none.
        uri: where to ask everything else, None for the configured URI.
        separator: between namespace levels, percent-encoded; None for the default.
        defaults: headers that give way to configured ones.
        overrides: headers that take precedence over configured ones.
        has_credentials_endpoint: whether tables' credentials have an endpoint of their own; None where it does not
            list its endpoints.
        settings: all of it.
    """

    prefix: str = ""
    uri: str | None = None
    separator: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    has_credentials_endpoint: bool | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ListingPage(Generic[T]):
    """A part of a listing.

    Attributes:
        items: its entries.
        next_token: the token of the next part, None at the end.
        malformed: entries that are of another shape and left out.
    """

    items: tuple[T, ...]
    next_token: str | None
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class IcebergError:
    """An error in Iceberg's own shape (REST specification, `IcebergErrorResponse`)."""

    type: str
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An access token (RFC 6749, 5.1).

    Attributes:
        value: the token itself.
        lifetime: seconds until it expires, None where the server does not say.
    """

    value: str = field(repr=False)
    lifetime: float | None


class _ConfigBody(msgspec.Struct):
    defaults: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    overrides: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    endpoints: Any = msgspec.UNSET


class _LoadTableBody(msgspec.Struct, rename="kebab"):
    metadata: TableMetadata
    metadata_location: str | None = None


class _TableIdentifierBody(msgspec.Struct):
    namespace: list[str]
    name: str


class _PageBody(msgspec.Struct, rename="kebab"):
    next_page_token: str | None = None
    # As Amazon S3 Tables spells it (awslabs/s3-tables-catalog issue 62): all but the first page would be overlooked.
    misspelled: str | None = msgspec.field(name="nextPageToken", default=None)


_Levels: TypeAlias = Annotated[list[str], Meta(min_length=1)]


class _TablesBody(_PageBody, kw_only=True, rename="kebab"):
    identifiers: list[_TableIdentifierBody]


class _NamespacesBody(_PageBody, kw_only=True, rename="kebab"):
    namespaces: list[_Levels]


class _MalformedPageBody(_PageBody, kw_only=True):
    """A page that is none of the others: its array is missing, null, or holds entries of another shape."""

    identifiers: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    namespaces: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


class _ErrorBody(msgspec.Struct):
    code: int | str
    message: str | None = None
    type: str | None = None


class _ErrorResponseBody(msgspec.Struct):
    error: _ErrorBody


class _OAuthTokenBody(msgspec.Struct):
    access_token: Annotated[str, Meta(min_length=1)]
    expires_in: Any = None


class _OAuthErrorBody(msgspec.Struct):
    error: str


def read_table(body: bytes | bytearray) -> Table | None:
    """A table from a `LoadTableResult`; None where it has no metadata file (yet).

    Raises:
        Unintelligible: any other body.
    """
    result = decode_json(body, _LoadTableBody)
    table = to_table(result.metadata, result.metadata_location or "")
    return table if table.metadata_location else None


_TABLE_MEMBERS: Final = needed_members(_LoadTableBody)


async def extract_table(start: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """A body of which `read_table` makes the same as of the whole of a `LoadTableResult`; see `excerpt`."""
    return await extract(start, parts, _TABLE_MEMBERS)


def read_config(body: bytes | bytearray) -> CatalogConfig:
    """The settings of `/v1/config` that concern us; overrides win over defaults.

    Values are texts by the specification. Of those that are not, the ones that we do not need are ignored.

    Raises:
        Unintelligible: any other body, also an object that has nothing of a configuration; or a setting that we need
            has a value that is no text.
    """
    settings = decode_json(body, _ConfigBody)
    is_empty = settings == _ConfigBody()
    if is_empty and decode_json(body, dict[str, Any]):
        raise UnreadableDocument("neither defaults nor overrides in it")
    defaults, overrides = _texts(settings.defaults), _texts(settings.overrides)
    both = defaults | overrides
    return CatalogConfig(
        prefix=both.get("prefix", ""),
        uri=both.get("uri"),
        separator=both.get("namespace-separator"),
        defaults=_headers(defaults),
        overrides=_headers(overrides),
        has_credentials_endpoint=_CREDENTIALS in settings.endpoints if isinstance(settings.endpoints, list) else None,
        settings=both,
    )


def _texts(settings: Mapping[str, Any] | msgspec.UnsetType | None) -> dict[str, str]:
    """The settings that have a value.

    Raises:
        Unintelligible: one that we need has a value that is no text.
    """
    found: dict[str, str] = {}
    for key, value in (settings or {}).items():
        if isinstance(value, int) and not isinstance(value, bool):
            found[key] = str(value)
        elif isinstance(value, str):
            if value:
                found[key] = value
        elif value is not None and (key in _NEEDED_SETTINGS or key.startswith(_HEADER)):
            raise UnreadableDocument(f"JSON of another shape (the setting {key} is no text)")
    return found


def _headers(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(_HEADER): value for key, value in settings.items() if key.startswith(_HEADER)}


def read_tables(body: bytes | bytearray) -> ListingPage[tuple[tuple[str, ...], str]]:
    """Namespace and name of each table of a `ListTablesResponse`.

    A list that is missing or null is empty: servers that write JSON from protobuf leave empty lists out.

    Raises:
        Unintelligible: any other body.
    """
    try:
        page = decode_json(body, _TablesBody)
    except UnreadableDocument:
        return _well_formed_entries(
            body, "identifiers", _TableIdentifierBody, lambda item: (tuple(item.namespace), item.name)
        )
    found = tuple((tuple(item.namespace), item.name) for item in page.identifiers)
    return ListingPage(found, page.next_page_token or page.misspelled or None)


def read_namespaces(body: bytes | bytearray) -> ListingPage[tuple[str, ...]]:
    """The namespaces of a `ListNamespacesResponse`; a list that is missing or null is empty.

    Raises:
        Unintelligible: any other body.
    """
    try:
        page = decode_json(body, _NamespacesBody)
    except UnreadableDocument:
        return _well_formed_entries(body, "namespaces", _Levels, tuple)
    return ListingPage(
        tuple(tuple(levels) for levels in page.namespaces), page.next_page_token or page.misspelled or None
    )


def _well_formed_entries(body: bytes | bytearray, array: str, shape: Any, made: Callable[[Any], T]) -> ListingPage[T]:  # noqa: ANN401 - a type
    """A page without the entries that are of another shape.

    Raises:
        Unintelligible: a body without the array that has more than the token of a page: another answer altogether.
    """
    page = decode_json(body, _MalformedPageBody)
    entries = getattr(page, array)
    if entries is msgspec.UNSET:
        if decode_json(body, dict[str, Any]).keys() - _PAGING:
            raise UnreadableDocument(f"JSON of another shape (no {array}, and other things)")
        entries = ()
    found: list[T] = []
    for entry in entries or ():
        with suppress(UnreadableDocument):
            found.append(made(decode_json(entry, shape)))
    return ListingPage(tuple(found), page.next_page_token or page.misspelled or None, len(entries or ()) - len(found))


def read_error(body: bytes | bytearray) -> IcebergError | None:
    """An error in Iceberg's shape, or None: what a proxy or a web server says is no such error."""
    try:
        error = decode_json(body, _ErrorResponseBody).error
        code = int(error.code)
    except (UnreadableDocument, ValueError):
        return None
    return IcebergError(error.type or "", code, error.message or "")


def read_token(body: bytes | bytearray) -> BearerToken:
    """An access token from an OAuth2 token answer.

    Raises:
        Unintelligible: any other body.
    """
    token = decode_json(body, _OAuthTokenBody)
    return BearerToken(token.access_token, _lifetime(token.expires_in))


def _lifetime(value: object) -> float | None:
    """Seconds, which some servers send as text; None for what is no lifetime, as 0 is none."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except ValueError:
        return None
    return seconds if _MIN_LIFETIME <= seconds < inf else None


def read_token_error(body: bytes | bytearray) -> str | None:
    """The `error` code of an OAuth2 token error (RFC 6749, 5.2); its description is left out, it may repeat secrets."""
    try:
        return decode_json(body, _OAuthErrorBody).error
    except UnreadableDocument:
        return None


# ── paths: Paths of Iceberg's REST API

DEFAULT_SEPARATOR = "%1F"
"""Between namespace levels where the catalog names no other (REST specification, `namespace` parameter)."""

_EXPECTED = "a name that can be asked for over REST"
_SUB_DELIMITERS = "!$&'()*+,;=:@"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def base_url(uri: str) -> str:
    """A configured URI as `/v1/…` is appended to it: no user, query, fragment, default port or trailing slash.

    Scheme and host in lower case, so that it is also the URI in a catalog's identity (behaviour.md, "catalog_id").

    Raises:
        ValueError: not an absolute http or https URI; the message does not repeat it, for it may hold a password.
    """
    parts = urlsplit(uri)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an absolute http or https URI with a host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/")


def config_path(warehouse: str | None) -> str:
    """Path and query of the catalog's configuration."""
    return "/v1/config" if warehouse is None else f"/v1/config?warehouse={quote(warehouse, safe='')}"


class CatalogPaths:
    """Paths below one catalog's prefix.

    Args:
        prefix: as `/v1/config` gave it. Catalogs send it encoded (`main%7Cwarehouse`) and with slashes, and every
            client pastes it in as it is; only what no path may hold is encoded here.
        separator: `namespace-separator` as `/v1/config` gave it, percent-encoded.
    """

    def __init__(self, prefix: str = "", separator: str = DEFAULT_SEPARATOR) -> None:
        trimmed = quote(prefix.strip("/"), safe="%/" + _SUB_DELIMITERS)
        self._root = f"/v1/{trimmed}" if trimmed else "/v1"
        self._separator = quote(separator, safe="%")
        self._plain = unquote(self._separator)

    def table(self, table: TableIdentifier) -> str:
        """Where a table is loaded.

        Raises:
            Permanent: scope table; the name cannot be said in a URL.
        """
        return f"{self.tables(table.catalog, table.namespace)}/{self._segment(table.catalog, table.name)}"

    def tables(self, catalog: str, namespace: tuple[str, ...]) -> str:
        """Where a namespace's tables are listed; errors as of `table`."""
        return f"{self._root}/namespaces/{self._namespace_segment(catalog, namespace)}/tables"

    def namespaces(self, catalog: str, parent: tuple[str, ...]) -> tuple[str, str]:
        """Path, and query up to its next `&`, of the namespaces right below another; errors as of `table`."""
        return f"{self._root}/namespaces", f"parent={self._namespace_segment(catalog, parent)}&" if parent else ""

    def _namespace_segment(self, catalog: str, namespace: tuple[str, ...]) -> str:
        if not namespace:
            raise _name_refused(catalog, "a table outside every namespace")
        for level in namespace:
            # With `.` as the separator `a.b` and `a`, `b` are one path: the answer might be another table's.
            if self._plain and self._plain in level:
                raise UnaddressableTable(
                    f"catalog {catalog}",
                    expected=_EXPECTED,
                    found=f"namespace level {level!r}, which holds the catalog's own {self._plain!r}",
                    remedy=_remedy(catalog),
                    addressed_levels=tuple(self._plain.join(namespace).split(self._plain)),
                )
        return self._separator.join(self._segment(catalog, level) for level in namespace)

    @staticmethod
    def _segment(catalog: str, part: str) -> str:
        if not part:
            raise _name_refused(catalog, "an empty name")
        if re.search("[\ud800-\udfff]", part):
            raise _name_refused(catalog, f"name {part!r}, which is no Unicode text")
        # RFC 3986, 5.2.4: segments `.` and `..` are navigation, not names.
        return part.replace(".", "%2E") if part in {".", ".."} else quote(part, safe="")


def _name_refused(catalog: str, found: str) -> Permanent:
    remedy = _remedy(catalog)
    return Permanent(f"catalog {catalog}", scope=ErrorScope.TABLE, expected=_EXPECTED, found=found, remedy=remedy)


def _remedy(catalog: str) -> str:
    return f"exclude it (catalogs.{catalog}.exclude) or rename it"
