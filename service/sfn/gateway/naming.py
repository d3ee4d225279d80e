"""The tables that a change names, in its path and in its body. Pure.

What can't be told here is no reason to refuse: the catalog may know better. It is a change of anything then.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, assert_never
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.event import MAX_LEVELS, require_text
from sfn.gateway.recognise import CatalogChange, ChangeKind

DEFAULT_SEPARATOR: Final = "%1F"
"""Between namespace levels where the catalog names no other (REST specification, `namespace` parameter)."""
_JAVA_SEPARATOR: Final = "%2E"
MAX_TABLES_PER_TRANSACTION: Final = 1_000
"""Most tables of one transaction that are noted one by one."""


_POSSIBLE_SEPARATOR: Final = re.compile("[!$&'()*+,;=:@|^~]|%(?!1F|20|2E)[0-7][0-9A-F]", re.IGNORECASE)
"""What a catalog of which that is not known may have between levels: a character of ASCII, but one that names have."""
_MAX_PREFIXES: Final = 1_000
"""How many prefixes have remembered separators: a catalog may create a prefix for each requested warehouse."""
_MAX_SEPARATORS: Final = 8
"""Separators of one prefix that are remembered."""


class NamespaceSeparators:
    """What may stand between the levels of a namespace in a path, by the configurations that passed.

    One server may have several catalogs, each with a separator of its own; and while a catalog is upgraded its nodes
    give different ones, and each client keeps the one that it got at its start. So all are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, None]] = {}

    def add(self, prefix: str, separator: str | None) -> None:
        """A configuration passed.

        Args:
            prefix: that it has its clients use, "" for none.
            separator: as it says it; None where it says none.
        """
        known = self._known.pop(_plain(prefix), {})
        known.pop(separator or DEFAULT_SEPARATOR, None)
        known[separator or DEFAULT_SEPARATOR] = None
        if len(known) > _MAX_SEPARATORS:
            del known[next(iter(known))]
        self._known[_plain(prefix)] = known
        if len(self._known) > _MAX_PREFIXES:
            del self._known[next(iter(self._known))]

    def get(self, prefix: str) -> frozenset[str]:
        """All that a configuration of that prefix said; none where none passed.

        Args:
            prefix: of a path, percent-encoded as it came.
        """
        return frozenset(self._known.get(_plain(prefix), ()))


class UnknownTables(Exception):
    """Which tables are meant can't be told."""


class _IdentifierBody(msgspec.Struct):
    namespace: list[str]
    name: str


class _CreateBody(msgspec.Struct, rename="kebab"):
    """The body of a create or register request, as far as it matters."""

    name: str
    stage_create: bool | None = None


class _Rename(msgspec.Struct):
    source: _IdentifierBody
    destination: _IdentifierBody


class _TableChange(msgspec.Struct):
    identifier: _IdentifierBody


class _Transaction(msgspec.Struct, rename="kebab"):
    table_changes: list[_TableChange]


_create: Final = msgspec.json.Decoder(_CreateBody)
_rename: Final = msgspec.json.Decoder(_Rename)
_transaction: Final = msgspec.json.Decoder(_Transaction)


def tables_of_change(
    change: CatalogChange, body: bytes, catalog: str, separators: Collection[str]
) -> tuple[TableIdentifier, ...]:
    """The tables that a change may touch: of a rename the old name and the new one, of a staged create none.

    Of a path that catalogs read differently it is each table that one of them would read: a look at a table that is not
    there costs a request.

    Args:
        change: what the path said.
        body: all of the request's body, where the kind is of `NAMED_IN_BODY`; else it is not looked at.
        catalog: our name of the catalog.
        separators: what the catalog may have between the levels of a namespace, as its configurations say it; none
            where that is not known.

    Raises:
        Unnamed: it can't be told.
    """
    try:
        return tuple(dict.fromkeys(_tables(change, body, catalog, separators)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Rejected) as error:
        raise UnknownTables from error


def _tables(change: CatalogChange, body: bytes, catalog: str, separators: Collection[str]) -> Iterator[TableIdentifier]:
    match change.kind:
        case ChangeKind.NAMESPACE | ChangeKind.RESTORE:
            raise UnknownTables
        case ChangeKind.RENAME:
            rename = _rename.decode(body)
            yield from (_table(catalog, one.namespace, one.name) for one in (rename.source, rename.destination))
        case ChangeKind.TRANSACTION:
            changes = _transaction.decode(body).table_changes
            if len(changes) > MAX_TABLES_PER_TRANSACTION:
                raise UnknownTables
            yield from (_table(catalog, one.identifier.namespace, one.identifier.name) for one in changes)
        case ChangeKind.CREATE | ChangeKind.REGISTER:
            named = _create.decode(body)
            if not named.stage_create:
                yield from (
                    _table(catalog, some, named.name)
                    for some in readings_of_namespace(change.namespace or "", separators)
                )
        case ChangeKind.COMMIT | ChangeKind.DROP | ChangeKind.UNREGISTER | ChangeKind.NOTIFICATION:
            name = _decoded(change.table or "")
            yield from (
                _table(catalog, some, name) for some in readings_of_namespace(change.namespace or "", separators)
            )
        case _:
            assert_never(change.kind)


def readings_of_namespace(segment: str, separators: Collection[str]) -> list[list[str]]:
    """The levels of a namespace in a path, in every way that a catalog may read it; mostly there is one.

    What the specification puts between levels no name can hold. A separator of the catalog's own may stand in a name
    too: Iceberg's Java server splits the segment as it came, and takes `a.b` for one level where `%2E` is its
    separator; others decode it first.

    Args:
        segment: of the path, percent-encoded as it came.
        separators: as of `tables`; not known they are taken for the one of Iceberg's Java server.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        Unnamed: the catalog's separator is not known, and may stand in it.
    """
    if not separators and _POSSIBLE_SEPARATOR.search(segment):
        raise UnknownTables
    whole, standard = _decoded(segment), _decoded(DEFAULT_SEPARATOR)
    if standard in whole:
        return [whole.split(standard)]
    read: list[list[str]] = []
    for own in sorted(separators) or (_JAVA_SEPARATOR,):
        read += [[_decoded(level) for level in segment.split(own)], whole.split(_decoded(own))]
    return [one for number, one in enumerate(read) if one not in read[:number]]


def _plain(prefix: str) -> str:
    return unquote(prefix).strip("/")


def _table(catalog: str, namespace: Sequence[str], name: str) -> TableIdentifier:
    if not 0 < len(namespace) <= MAX_LEVELS:
        raise UnknownTables
    names = tuple(require_text(level, "namespace", index) for index, level in enumerate(namespace))
    return TableIdentifier(catalog, names, require_text(name, "", "name"))


def _decoded(segment: str) -> str:
    return unquote_to_bytes(segment).decode()
