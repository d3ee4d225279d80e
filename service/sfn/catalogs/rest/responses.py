"""Bodies and paths of Iceberg's REST API: pure functions that parse only the needed fields."""

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

T = TypeVar("T")

_PAGING: Final = frozenset({"next-page-token", "nextPageToken"})
_HEADER: Final = "header."
_NEEDED_SETTINGS: Final = frozenset({"prefix", "uri", "namespace-separator"})
_MIN_LIFETIME: Final = 1.0
"""Seconds. A token with a shorter lifetime would be requested again with each request."""
_CREDENTIALS: Final = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """The configuration of a catalog, from `/v1/config`.

    Attributes:
        prefix: path segment of this warehouse, "" for none.
        uri: base of all other requests, None for the configured URI.
        separator: separator of namespace levels, percent-encoded; None for the default.
        defaults: headers that configured ones override.
        overrides: headers that override configured ones.
        has_credentials_endpoint: True if tables' credentials have an endpoint of their own; None if the catalog does
            not list its endpoints.
        settings: the whole configuration.
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
    """A page of a listing.

    Attributes:
        items: its entries.
        next_token: the token of the next page, None on the last one.
        malformed: number of entries of another shape, which are left out.
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
        lifetime: seconds until it expires, None if the server does not say.
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
    # The spelling of Amazon S3 Tables (awslabs/s3-tables-catalog issue 62). Without it, later pages would be missed.
    misspelled: str | None = msgspec.field(name="nextPageToken", default=None)


_Levels: TypeAlias = Annotated[list[str], Meta(min_length=1)]


class _TablesBody(_PageBody, kw_only=True, rename="kebab"):
    identifiers: list[_TableIdentifierBody]


class _NamespacesBody(_PageBody, kw_only=True, rename="kebab"):
    namespaces: list[_Levels]


class _MalformedPageBody(_PageBody, kw_only=True):
    """A page with a malformed array: missing, null, or with entries of another shape."""

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
    """Return the table of a `LoadTableResult`; None if it has no metadata file (yet).

    Raises:
        UnreadableDocument: any other body.
    """
    result = decode_json(body, _LoadTableBody)
    table = to_table(result.metadata, result.metadata_location or "")
    return table if table.metadata_location else None


_TABLE_MEMBERS: Final = needed_members(_LoadTableBody)


async def extract_table(start: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """Return an excerpt that `read_table` reads like the whole `LoadTableResult`; see `partial_json.extract`."""
    return await extract(start, parts, _TABLE_MEMBERS)


def read_config(body: bytes | bytearray) -> CatalogConfig:
    """Return the needed settings of `/v1/config`; overrides win over defaults.

    By the specification all values are strings. Others are ignored in settings that are not needed.

    Raises:
        UnreadableDocument: any other body, including an object without any configuration; or a needed setting has a
            value that is no string.
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
    """Return the settings that have a value.

    Raises:
        UnreadableDocument: a needed setting has a value that is no string.
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
    """Return namespace and name of each table of a `ListTablesResponse`.

    A missing list or null is empty: servers that write JSON from protobuf leave empty lists out.

    Raises:
        UnreadableDocument: any other body.
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
    """Return the namespaces of a `ListNamespacesResponse`; a missing list or null is empty.

    Raises:
        UnreadableDocument: any other body.
    """
    try:
        page = decode_json(body, _NamespacesBody)
    except UnreadableDocument:
        return _well_formed_entries(body, "namespaces", _Levels, tuple)
    return ListingPage(
        tuple(tuple(levels) for levels in page.namespaces), page.next_page_token or page.misspelled or None
    )


def _well_formed_entries(body: bytes | bytearray, array: str, shape: Any, made: Callable[[Any], T]) -> ListingPage[T]:  # noqa: ANN401 - a type
    """Return a page without the entries of another shape.

    Raises:
        UnreadableDocument: the array is missing, and the body has more members than a page's token: another answer.
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
    """Return an error in Iceberg's shape, else None, for example for the answer of a proxy or a web server."""
    try:
        error = decode_json(body, _ErrorResponseBody).error
        code = int(error.code)
    except (UnreadableDocument, ValueError):
        return None
    return IcebergError(error.type or "", code, error.message or "")


def read_token(body: bytes | bytearray) -> BearerToken:
    """Return the access token of an OAuth2 token answer.

    Raises:
        UnreadableDocument: any other body.
    """
    token = decode_json(body, _OAuthTokenBody)
    return BearerToken(token.access_token, _lifetime(token.expires_in))


def _lifetime(value: object) -> float | None:
    """Return a lifetime in seconds, which some servers send as a string; None for an invalid one, such as 0."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except ValueError:
        return None
    return seconds if _MIN_LIFETIME <= seconds < inf else None


def read_token_error(body: bytes | bytearray) -> str | None:
    """Return the `error` code of an OAuth2 token error (RFC 6749, 5.2), without its text, which may repeat secrets."""
    try:
        return decode_json(body, _OAuthErrorBody).error
    except UnreadableDocument:
        return None


DEFAULT_SEPARATOR = "%1F"
"""Separator of namespace levels if the catalog names none (REST specification, `namespace` parameter)."""

_EXPECTED = "a name that REST paths can express"
_SUB_DELIMITERS = "!$&'()*+,;=:@"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def base_url(uri: str) -> str:
    """Return the base of a configured URI: no user, query, fragment, default port or trailing slash.

    Scheme and host are in lower case, so it is also the URI in a catalog's identity (behaviour.md, "catalog_id").

    Raises:
        ValueError: not an absolute http or https URI; the message does not repeat it, as it may contain a password.
    """
    parts = urlsplit(uri)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an absolute http or https URI with a host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/")


def config_path(warehouse: str | None) -> str:
    """Return path and query of the catalog's configuration."""
    return "/v1/config" if warehouse is None else f"/v1/config?warehouse={quote(warehouse, safe='')}"


class CatalogPaths:
    """Paths below one catalog's prefix.

    Args:
        prefix: prefix from `/v1/config`. Catalogs send it encoded (`main%7Cwarehouse`) and with slashes, and every
            client inserts it unchanged. Only characters that no path may contain are encoded here.
        separator: `namespace-separator` from `/v1/config`, percent-encoded.
    """

    def __init__(self, prefix: str = "", separator: str = DEFAULT_SEPARATOR) -> None:
        trimmed = quote(prefix.strip("/"), safe="%/" + _SUB_DELIMITERS)
        self._root = f"/v1/{trimmed}" if trimmed else "/v1"
        self._separator = quote(separator, safe="%")
        self._plain = unquote(self._separator)

    def table(self, table: TableIdentifier) -> str:
        """Return the path of a table.

        Raises:
            Permanent: scope table; a URL cannot contain the name.
        """
        return f"{self.tables(table.catalog, table.namespace)}/{self._segment(table.catalog, table.name)}"

    def tables(self, catalog: str, namespace: tuple[str, ...]) -> str:
        """Return the path of the listing of a namespace's tables; raises as `table`."""
        return f"{self._root}/namespaces/{self._namespace_segment(catalog, namespace)}/tables"

    def namespaces(self, catalog: str, parent: tuple[str, ...]) -> tuple[str, str]:
        """Return path, and query up to its next `&`, of the listing of a namespace's children; raises as `table`."""
        return f"{self._root}/namespaces", f"parent={self._namespace_segment(catalog, parent)}&" if parent else ""

    def _namespace_segment(self, catalog: str, namespace: tuple[str, ...]) -> str:
        if not namespace:
            raise _name_refused(catalog, "a table outside every namespace")
        for level in namespace:
            # With `.` as the separator, `a.b` and `a`, `b` have one path: the answer might be another table's.
            if self._plain and self._plain in level:
                raise UnaddressableTable(
                    f"catalog {catalog}",
                    expected=_EXPECTED,
                    found=f"namespace level {level!r}, which contains the catalog's separator {self._plain!r}",
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
