"""Names of tables and catalogs, table uuids, and the table metadata that decisions need."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote
from uuid import UUID

import msgspec
from typing_extensions import override

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ANY_UUID: Final = re.compile(r"(?:urn:uuid:)?(\{)?([0-9a-f](?:-?[0-9a-f]){31})(?(1)\})", re.IGNORECASE)


def is_uuid(text: str | None) -> bool:
    """Return whether a text is a uuid in any spelling that `normal_uuid` knows."""
    return text is not None and _ANY_UUID.fullmatch(text) is not None


def normal_uuid(uuid: str | None) -> str | None:
    """Return the normal spelling of a table's uuid: lower case, with hyphens (RFC 9562, section 4).

    Args:
        uuid: a uuid in any spelling: upper case, without hyphens, in braces, as `urn:uuid:…`. A text that is no uuid is
            only lower-cased. None stays None.
    """
    if uuid is None or _UUID.fullmatch(uuid) is not None:
        return uuid
    match = _ANY_UUID.fullmatch(uuid)
    return uuid.lower() if match is None else str(UUID(match[2]))


class TableIdentifier(msgspec.Struct, frozen=True, order=True, array_like=True, tag="table"):
    """A table's identifier in one configured catalog.

    Attributes:
        catalog: the configured name of the catalog.
        namespace: the namespace levels, outermost first; may be empty.
        name: the table's own name.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @property
    def dotted(self) -> str:
        """The levels and the name joined by dots: for people, ambiguous if a part contains a dot."""
        return ".".join((*self.namespace, self.name))

    @override
    def __str__(self) -> str:
        """Return the name as commands take it, such as `prod:sales.orders`."""
        return f"{self.catalog}:{encode_identifier(self.namespace, self.name)}"


def is_in_namespaces(table: TableIdentifier, namespaces: Collection[str]) -> bool:
    """Return whether a table lies in one of these namespaces or below one.

    Args:
        table: the table's identifier.
        namespaces: namespaces with dots between their levels, because some catalogs list a nested namespace as one
            level with dots; empty for the whole catalog.
    """
    levels = table.dotted.split(".")
    return any(".".join(levels[:depth]) in namespaces for depth in range(len(levels)))


class CatalogName(msgspec.Struct, frozen=True, order=True, array_like=True, tag="catalog"):
    """A whole catalog as the subject of a notification: check all its tables (a sweep)."""

    catalog: str

    @override
    def __str__(self) -> str:
        return self.catalog


JobKey: TypeAlias = TableIdentifier | CatalogName


def encode_identifier(namespace: Sequence[str], name: str) -> str:
    """Return an identifier in the form that `decode_identifier` reads back: `a%2Eb.c` is the table c of `a.b`."""
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in (*namespace, name))


def decode_identifier(identifier: str) -> tuple[str, ...]:
    """Return the levels and the name of a dotted identifier with percent-encoded parts.

    Raises:
        ValueError: a part is empty, or no UTF-8.
    """
    parts = tuple(unquote(part, errors="strict") for part in identifier.split("."))
    if not all(parts):
        raise ValueError("an empty part")
    return parts


@dataclass(frozen=True, slots=True)
class Table:
    """The part of a table's metadata that decisions need (Iceberg specification, "Table Metadata Fields").

    Attributes:
        uuid: `table-uuid` as `normal_uuid` spells it; None only for a v1 table without one.
        location: `location` as the catalog gives it, without a trailing slash.
        metadata_location: the current metadata file, as the catalog gives it.
        metadata_log: `metadata-log[].metadata-file`, oldest first.
        last_updated_ms: `last-updated-ms`, Unix milliseconds; may step back by a minute between versions.
        snapshot_id: the head snapshot of branch `main`; None for an empty table.
        skip_reason: the reason why this table gets no files (encrypted, switched off), or None.
        log_times: `metadata-log[].timestamp-ms`: when each entry of `metadata_log` was the newest, Unix milliseconds.
        branches: the branches except `main`, by name, each with its head snapshot.
        previous_versions_max: the number of metadata files before the current one that a commit keeps, at least 1; None
            for all.
    """

    uuid: str | None
    location: str
    metadata_location: str
    metadata_log: tuple[str, ...] = ()
    last_updated_ms: int = 0
    snapshot_id: int | None = None
    skip_reason: str | None = None
    log_times: tuple[int, ...] = ()
    branches: tuple[tuple[str, int], ...] = ()
    previous_versions_max: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", normal_uuid(self.uuid))
