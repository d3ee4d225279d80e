"""Bodies of Iceberg's REST API, parsed into our words: pure, typed, only the fields that are needed.

Fields not named here are skipped without being built: 8 MiB of snapshots take 6 ms. What is longer is cut first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta, inspect

from sfn.catalog.rest.excerpt import Wanted, excerpt
from sfn.words import Table

LAST_MILLISECOND = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: past it no date of ours can be written."""

T = TypeVar("T")


class Unintelligible(Exception):
    """A body is no JSON or not of the expected shape; the message says where, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Config:
    """What `/v1/config` says about how to ask.

    Attributes:
        prefix: path segment of this warehouse, "" for none.
        uri: where to ask everything else, None for the configured URI.
        separator: between namespace levels, percent-encoded; None for the default.
        defaults: headers that give way to configured ones.
        overrides: headers that take precedence over configured ones.
    """

    prefix: str = ""
    uri: str | None = None
    separator: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)


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


class _Logged(msgspec.Struct, gc=False):
    file: str = msgspec.field(name="metadata-file")


class _Ref(msgspec.Struct, rename="kebab"):
    snapshot_id: int


class _Refs(msgspec.Struct):
    main: _Ref | None = None


class _Properties(msgspec.Struct):
    key: str | bool | None = msgspec.field(name="encryption.key-id", default=None)
    enabled: str | bool | None = msgspec.field(name="sfn.enabled", default=None)


class _Metadata(msgspec.Struct, rename="kebab"):
    format_version: int
    location: Annotated[str, Meta(min_length=1)]
    last_updated_ms: Annotated[int, Meta(ge=0, le=LAST_MILLISECOND)]
    table_uuid: Annotated[str, Meta(min_length=1)] | None = None
    current_snapshot_id: int | None = None
    metadata_log: list[_Logged] | None = None
    properties: _Properties | None = None
    refs: _Refs | None = None


class _LoadTableResult(msgspec.Struct, rename="kebab"):
    metadata: _Metadata
    metadata_location: str | None = None


class _Identifier(msgspec.Struct):
    namespace: list[str]
    name: str


class _Tables(msgspec.Struct, rename="kebab"):
    identifiers: list[_Identifier]
    next_page_token: str | None = None


class _Namespaces(msgspec.Struct, rename="kebab"):
    namespaces: list[Annotated[list[str], Meta(min_length=1)]]
    next_page_token: str | None = None


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
    result = _decoded(body, _LoadTableResult)
    metadata = result.metadata
    if metadata.table_uuid is None and metadata.format_version > 1:
        # Iceberg specification, "Table Metadata Fields": required from version 2 on.
        raise Unintelligible("no table-uuid in metadata of format version 2 or higher")
    if not result.metadata_location:
        return None
    return Table(
        uuid=metadata.table_uuid,
        location=metadata.location.rstrip("/") or metadata.location,
        metadata_location=result.metadata_location,
        metadata_log=tuple(entry.file for entry in metadata.metadata_log or ()),
        last_updated_ms=metadata.last_updated_ms,
        snapshot_id=_head(metadata),
        left_alone=_left_alone(metadata.properties or _Properties()),
    )


async def cut_table(begun: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """A body of which `read_table` makes the same as of the whole of a `LoadTableResult`; see `excerpt`."""
    return await excerpt(begun, parts, _NEEDED)


def _needed(kind: inspect.Type) -> Wanted | None:
    """The members of which a type is made; None where it is no object with members of its own."""
    match kind:
        case inspect.StructType():
            return {field.encode_name: _needed(field.type) for field in kind.fields}
        case inspect.UnionType():
            return next((members for each in kind.types if (members := _needed(each)) is not None), None)
        case _:
            return None


_NEEDED: Final = _needed(inspect.type_info(_LoadTableResult)) or {}


def _head(metadata: _Metadata) -> int | None:
    main = metadata.refs.main if metadata.refs else None
    head = main.snapshot_id if main else metadata.current_snapshot_id
    # Old writers say -1 for "none".
    return None if head == -1 else head


def _left_alone(properties: _Properties) -> str | None:
    if properties.key:
        return "encrypted: the table property encryption.key-id is set"
    if str(properties.enabled).strip().lower() == "false":
        return "switched off: the table property sfn.enabled is false"
    return None


def read_config(body: bytes | bytearray) -> Config:
    """The settings of `/v1/config` that concern us; overrides win over defaults.

    Raises:
        Unintelligible: any other body, also an object that has neither of the two.
    """
    settings = _decoded(body, _Settings)
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
    )


def _headers(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix("header."): value for key, value in settings.items() if key.startswith("header.")}


def read_tables(body: bytes | bytearray) -> Page[tuple[tuple[str, ...], str]]:
    """Namespace and name of each table of a `ListTablesResponse`.

    Raises:
        Unintelligible: any other body.
    """
    page = _decoded(body, _Tables)
    found = tuple((tuple(item.namespace), item.name) for item in page.identifiers)
    return Page(found, page.next_page_token or None)


def read_namespaces(body: bytes | bytearray) -> Page[tuple[str, ...]]:
    """The namespaces of a `ListNamespacesResponse`.

    Raises:
        Unintelligible: any other body.
    """
    page = _decoded(body, _Namespaces)
    return Page(tuple(tuple(levels) for levels in page.namespaces), page.next_page_token or None)


def read_error(body: bytes | bytearray) -> Complaint | None:
    """An error in Iceberg's shape, or None: what a proxy or a web server says is no such error."""
    try:
        error = _decoded(body, _ErrorResponse).error
    except Unintelligible:
        return None
    return Complaint(error.type, error.code, error.message)


def read_token(body: bytes | bytearray) -> Token:
    """An access token from an OAuth2 token answer.

    Raises:
        Unintelligible: any other body.
    """
    # Some servers send `expires_in` as text.
    token = _decoded(body, _OAuthToken, strict=False)
    return Token(token.access_token, token.expires_in)


def read_token_error(body: bytes | bytearray) -> str | None:
    """The `error` code of an OAuth2 token error (RFC 6749, 5.2); its description is left out, it may repeat secrets."""
    try:
        return _decoded(body, _OAuthError).error
    except Unintelligible:
        return None


def _decoded(body: bytes | bytearray, shape: type[T], *, strict: bool = True) -> T:
    try:
        return msgspec.json.decode(body, type=shape, strict=strict)
    except msgspec.ValidationError as error:
        raise Unintelligible(f"JSON of another shape ({error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unintelligible("no whole JSON document") from None
    except RecursionError:
        raise Unintelligible("JSON nested too deeply") from None
