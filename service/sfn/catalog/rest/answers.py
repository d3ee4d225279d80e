"""Bodies of Iceberg's REST API, parsed into our words: pure, typed, only the fields that are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from sfn.catalog.excerpt import excerpt
from sfn.catalog.metadata import Metadata, Unintelligible, decoded, needed, table_of
from sfn.words import Table

T = TypeVar("T")

_CREDENTIALS: Final = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"


@dataclass(frozen=True, slots=True)
class Config:
    """What `/v1/config` says about how to ask.

    Attributes:
        prefix: path segment of this warehouse, "" for none.
        uri: where to ask everything else, None for the configured URI.
        separator: between namespace levels, percent-encoded; None for the default.
        defaults: headers that give way to configured ones.
        overrides: headers that take precedence over configured ones.
        vends: whether tables' credentials have an endpoint of their own; None where it does not list its endpoints.
        told: all of it.
    """

    prefix: str = ""
    uri: str | None = None
    separator: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    vends: bool | None = None
    told: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a listing and the token of the next part, None at the end."""

    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error in Iceberg's own shape (REST specification, `IcebergErrorResponse`)."""

    type: str
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Token:
    """An access token (RFC 6749, 5.1).

    Attributes:
        value: the token itself.
        lasts: seconds until it expires, None where the server does not say.
    """

    value: str = field(repr=False)
    lasts: float | None


class _Settings(msgspec.Struct):
    defaults: dict[str, str | None] | None = None
    overrides: dict[str, str | None] | None = None
    endpoints: Any = None


class _LoadTableResult(msgspec.Struct, rename="kebab"):
    metadata: Metadata
    metadata_location: str | None = None


class _Identifier(msgspec.Struct):
    namespace: list[str]
    name: str


class _Page(msgspec.Struct, rename="kebab"):
    next_page_token: str | None = None
    # As Amazon S3 Tables spells it (awslabs/s3-tables-catalog issue 62): all but the first page would be overlooked.
    misspelled: str | None = msgspec.field(name="nextPageToken", default=None)


class _Tables(_Page, kw_only=True, rename="kebab"):
    identifiers: list[_Identifier]


class _Namespaces(_Page, kw_only=True, rename="kebab"):
    namespaces: list[Annotated[list[str], Meta(min_length=1)]]


class _Error(msgspec.Struct):
    message: str
    type: str
    code: int


class _ErrorResponse(msgspec.Struct):
    error: _Error


class _OAuthToken(msgspec.Struct):
    access_token: Annotated[str, Meta(min_length=1)]
    expires_in: float | None = None


class _OAuthError(msgspec.Struct):
    error: str


def read_table(body: bytes | bytearray) -> Table | None:
    """A table from a `LoadTableResult`; None where it has no metadata file (yet).

    Raises:
        Unintelligible: any other body.
    """
    result = decoded(body, _LoadTableResult)
    table = table_of(result.metadata, result.metadata_location or "")
    return table if table.metadata_location else None


_NEEDED: Final = needed(_LoadTableResult)


async def cut_table(begun: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """A body of which `read_table` makes the same as of the whole of a `LoadTableResult`; see `excerpt`."""
    return await excerpt(begun, parts, _NEEDED)


def read_config(body: bytes | bytearray) -> Config:
    """The settings of `/v1/config` that concern us; overrides win over defaults.

    Raises:
        Unintelligible: any other body, also an object that has neither of the two.
    """
    settings = decoded(body, _Settings)
    if settings.defaults is None and settings.overrides is None:
        raise Unintelligible("neither defaults nor overrides in it")
    defaults = {key: value for key, value in (settings.defaults or {}).items() if value}
    overrides = {key: value for key, value in (settings.overrides or {}).items() if value}
    both = defaults | overrides
    return Config(
        prefix=both.get("prefix", ""),
        uri=both.get("uri"),
        separator=both.get("namespace-separator"),
        defaults=_headers(defaults),
        overrides=_headers(overrides),
        vends=_CREDENTIALS in settings.endpoints if isinstance(settings.endpoints, list) else None,
        told=both,
    )


def _headers(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix("header."): value for key, value in settings.items() if key.startswith("header.")}


def read_tables(body: bytes | bytearray) -> Page[tuple[tuple[str, ...], str]]:
    """Namespace and name of each table of a `ListTablesResponse`.

    Raises:
        Unintelligible: any other body.
    """
    page = decoded(body, _Tables)
    found = tuple((tuple(item.namespace), item.name) for item in page.identifiers)
    return Page(found, page.next_page_token or page.misspelled or None)


def read_namespaces(body: bytes | bytearray) -> Page[tuple[str, ...]]:
    """The namespaces of a `ListNamespacesResponse`.

    Raises:
        Unintelligible: any other body.
    """
    page = decoded(body, _Namespaces)
    return Page(tuple(tuple(levels) for levels in page.namespaces), page.next_page_token or page.misspelled or None)


def read_error(body: bytes | bytearray) -> Complaint | None:
    """An error in Iceberg's shape, or None: what a proxy or a web server says is no such error."""
    try:
        error = decoded(body, _ErrorResponse).error
    except Unintelligible:
        return None
    return Complaint(error.type, error.code, error.message)


def read_token(body: bytes | bytearray) -> Token:
    """An access token from an OAuth2 token answer.

    Raises:
        Unintelligible: any other body.
    """
    # Some servers send `expires_in` as text.
    token = decoded(body, _OAuthToken, strict=False)
    return Token(token.access_token, token.expires_in)


def read_token_error(body: bytes | bytearray) -> str | None:
    """The `error` code of an OAuth2 token error (RFC 6749, 5.2); its description is left out, it may repeat secrets."""
    try:
        return decoded(body, _OAuthError).error
    except Unintelligible:
        return None
