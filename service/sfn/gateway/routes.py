"""Recognition of requests that change tables (Iceberg's REST specification), and of their tables. Pure functions.

    POST   …/namespaces/{namespace}/tables                          create; the body has the name
    POST   …/namespaces/{namespace}/register                        register or overwrite; the body has the name
    POST   …/namespaces/{namespace}/tables/{table}                  commit
    DELETE …/namespaces/{namespace}/tables/{table}                  drop, with ?purgeRequested=true
    POST   …/namespaces/{namespace}/tables/{table}/unregister       drop without deleting files
    POST   …/tables/rename                                          the body has both names
    POST   …/transactions/commit                                    the body has all names
    DELETE …/namespaces/{namespace}                                 some catalogs drop the tables in it
    POST   …/namespaces/{namespace}/tables/{table}/notifications    Polaris: an external catalog's table changed
    POST   …/warehouse/{prefix}/deleted-tabulars/undrop             Lakekeeper's management API: undo drops

All other requests, also those for views, change no table. Each path has `/v1/` after the path of the catalog. The part
between `/v1/` and `namespaces`, `tables` or `transactions` is the prefix that the catalog gave its clients, with any
number of segments. Iceberg's Java client sends an empty prefix as an empty segment: `/v1//namespaces/…`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.event import MAX_LEVELS, require_text


class ChangeKind(StrEnum):
    """The kinds of changes that a request can make."""

    CREATE = "create"
    REGISTER = "register"
    COMMIT = "commit"
    DROP = "drop"
    UNREGISTER = "unregister"
    RENAME = "rename"
    TRANSACTION = "transaction"
    NAMESPACE = "namespace"
    NOTIFICATION = "notification"
    RESTORE = "restore"


NAMED_IN_BODY: Final = frozenset({ChangeKind.CREATE, ChangeKind.REGISTER, ChangeKind.RENAME, ChangeKind.TRANSACTION})
"""Kinds that name their tables in the request's body."""


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A request that may change tables.

    Attributes:
        kind: kind of the change.
        prefix: prefix of the path, percent-encoded as received, except for characters that need no encoding; "" for
            none.
        namespace: segment of the path, encoded like `prefix`; None if the path has none.
        table: segment of the path, encoded like `prefix`; None if the path has none.
        purge: whether the table's files are deleted, too.
    """

    kind: ChangeKind
    prefix: str
    namespace: str | None = None
    table: str | None = None
    purge: bool = False


API_VERSION_PATH: Final = "/v1/"
"""Start of each path of the specification."""
_PREFIX: Final = r"(?:(?P<prefix>.+)/)?"
_NAMESPACE: Final = r"namespaces/(?P<namespace>[^/]+)"
_TABLE: Final = rf"{_NAMESPACE}/tables/(?P<table>[^/]+)"
_END: Final = "/?"

_POSTED: Final = tuple(
    (kind, re.compile(pattern + _END))
    for kind, pattern in (
        (ChangeKind.COMMIT, _PREFIX + _TABLE),
        (ChangeKind.CREATE, rf"{_PREFIX}{_NAMESPACE}/tables"),
        (ChangeKind.TRANSACTION, rf"{_PREFIX}transactions/commit"),
        # After COMMIT, because a table may be called `rename`.
        (ChangeKind.RENAME, rf"{_PREFIX}tables/rename"),
        (ChangeKind.REGISTER, rf"{_PREFIX}{_NAMESPACE}/register"),
        (ChangeKind.UNREGISTER, rf"{_PREFIX}{_TABLE}/unregister"),
        (ChangeKind.NOTIFICATION, rf"{_PREFIX}{_TABLE}/notifications"),
        (ChangeKind.RESTORE, r"warehouse/(?P<prefix>[^/]+)/deleted-tabulars/undrop"),
    )
)
_DELETED: Final = tuple(
    (kind, re.compile(_PREFIX + pattern + _END))
    for kind, pattern in ((ChangeKind.DROP, _TABLE), (ChangeKind.NAMESPACE, _NAMESPACE))
)
_PATTERNS: Final = {"POST": _POSTED, "DELETE": _DELETED}

_SLASHES: Final = re.compile(r"/(?:\.?/)+(?:\.$)?|/\.$")
"""Empty segments and `.` segments (RFC 3986, section 5.2.4). An encoded dot is a name."""
_UNRESERVED: Final = re.compile(r"%(2D|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)", re.IGNORECASE)
"""Characters with the same meaning encoded or not (RFC 3986, section 2.3), without the dot, a separator of levels."""
_PURGE: Final = re.compile(r"(?:^|&)purgeRequested=true(?:&|$)", re.IGNORECASE)


def recognise_change(method: str, path: str, query: str = "") -> CatalogChange | None:
    """Return the change that a request asks for; None if it changes no table.

    Args:
        method: HTTP method.
        path: path after the catalog's address, or with a part of that, percent-encoded as received.
        query: query of the request, percent-encoded as received.
    """
    patterns = _PATTERNS.get(method, ())
    if patterns and "%" in path:
        path = _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path)
    # `find` takes linear time. A pattern with a search for this path would take quadratic time.
    begin = path.find(API_VERSION_PATH) + len(API_VERSION_PATH) if patterns else 0
    segments = _SLASHES.sub("/", path[begin - 1 :])
    for kind, pattern in patterns if begin >= len(API_VERSION_PATH) else ():
        found = pattern.fullmatch(segments, 1)
        if found is not None:
            parts = found.groupdict()
            purge = kind is ChangeKind.DROP and _PURGE.search(query) is not None
            return CatalogChange(kind, parts["prefix"] or "", parts.get("namespace"), parts.get("table"), purge)
    return None


MAX_MISSING_PER_SECOND: Final = 20
"""Most missing tables per second and client that are checked after a request to change them."""
MAX_REPORTED_PREFIXES: Final = 100
"""Most unmapped prefixes that are reported."""


@dataclass(frozen=True, slots=True)
class CatalogMapping:
    """The configured catalogs behind a gateway.

    Attributes:
        catalog: name of the only catalog; None if there are several.
        catalogs: names of the catalogs by the prefix of their paths; empty if there is only one.
        is_published: predicate for published tables.
        requires_credentials: whether the catalog accepts changes only with credentials.
    """

    catalog: str | None
    catalogs: Mapping[str, str]
    is_published: Callable[[TableIdentifier], bool]
    requires_credentials: bool

    def catalog_of(self, prefix: str) -> str | None:
        """Return the name of the catalog of a prefix; None for an unmapped prefix.

        Args:
            prefix: prefix of the path, percent-encoded as received.
        """
        return self.catalog if not self.catalogs else self.catalogs.get(unquote(prefix))


class UnmappedPrefixes:
    """The unmapped prefixes of forwarded commits. Each prefix is reported once.

    Clients may invent prefixes, so the number of remembered ones is limited.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def is_new(self, prefix: str) -> bool:
        """Return whether a prefix has to be reported, and count it as reported.

        Args:
            prefix: prefix of the path, percent-encoded as received.
        """
        if prefix in self._seen or len(self._seen) >= MAX_REPORTED_PREFIXES:
            return False
        self._seen.add(prefix)
        return True


class MissingTableLimit:
    """A limit for requests to change missing tables, so that invented names cannot fill the inbox.

    Args:
        monotonic: monotonic clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._second = 0
        self._counts: Counter[str] = Counter()

    def is_exceeded(self, peer: str) -> bool:
        """Count a missing table of a client; return whether the limit of this second is exceeded."""
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._counts = second, Counter()
        self._counts[peer] += 1
        return self._counts[peer] > MAX_MISSING_PER_SECOND


DEFAULT_SEPARATOR: Final = "%1F"
"""Default separator of namespace levels (REST specification, `namespace` parameter)."""
_JAVA_SEPARATOR: Final = "%2E"
MAX_TABLES_PER_TRANSACTION: Final = 1_000
"""Most tables of one transaction that are recorded individually."""

_POSSIBLE_SEPARATOR: Final = re.compile("[!$&'()*+,;=:@|^~]|%(?!1F|20|2E)[0-7][0-9A-F]", re.IGNORECASE)
"""Possible separators of a catalog without a known one: ASCII characters that are unusual in names."""
_MAX_PREFIXES: Final = 1_000
"""Most prefixes with remembered separators. A catalog may create a prefix for each requested warehouse."""
_MAX_SEPARATORS: Final = 8
"""Most remembered separators of one prefix."""


class NamespaceSeparators:
    """The separators of namespace levels in paths, from the catalog configurations that passed the gateway.

    One server may have several catalogs with different separators. During an upgrade of a catalog, its nodes may send
    different separators, and each client uses the one from its start. So all separators are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, None]] = {}

    def add(self, prefix: str, separator: str | None) -> None:
        """Remember the separator of a configuration.

        Args:
            prefix: prefix in the configuration; "" for none.
            separator: separator in the configuration, percent-encoded; None for none.
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
        """Return the remembered separators of a prefix.

        Args:
            prefix: prefix of a path, percent-encoded as received.
        """
        return frozenset(self._known.get(_plain(prefix), ()))


class UnknownTables(Exception):
    """The tables of a change cannot be determined."""


class _IdentifierBody(msgspec.Struct):
    namespace: list[str]
    name: str


class _CreateBody(msgspec.Struct, rename="kebab"):
    """The relevant fields of a create or register request."""

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
    """Return the tables that a change may concern: both names of a rename, no table of a staged create.

    If catalogs interpret a path differently, all possible tables are returned. Checking a missing table costs one
    request.

    Args:
        change: change from the request's path.
        body: whole body of the request; only read for the kinds `NAMED_IN_BODY`.
        catalog: name of the catalog.
        separators: possible separators of namespace levels, percent-encoded; empty if unknown.

    Raises:
        UnknownTables: the tables cannot be determined.
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
    """Return the possible levels of a namespace in a path; usually there is one reading.

    The separator of the specification cannot occur in names, but other separators can. With the separator `%2E`,
    Iceberg's Java server splits the encoded segment, so that `a.b` is one level. Other servers decode it first.

    Args:
        segment: segment of the path, percent-encoded as received.
        separators: possible separators, percent-encoded; if empty, that of Iceberg's Java server.

    Raises:
        UnicodeDecodeError: the segment is not UTF-8.
        UnknownTables: the separator is unknown, and the segment may contain it.
    """
    if not separators and _POSSIBLE_SEPARATOR.search(segment):
        raise UnknownTables
    whole, standard = _decoded(segment), _decoded(DEFAULT_SEPARATOR)
    if standard in whole:
        return [whole.split(standard)]
    readings: list[list[str]] = []
    for separator in sorted(separators) or (_JAVA_SEPARATOR,):
        readings += [[_decoded(level) for level in segment.split(separator)], whole.split(_decoded(separator))]
    return [reading for index, reading in enumerate(readings) if reading not in readings[:index]]


def _plain(prefix: str) -> str:
    return unquote(prefix).strip("/")


def _table(catalog: str, namespace: Sequence[str], name: str) -> TableIdentifier:
    if not 0 < len(namespace) <= MAX_LEVELS:
        raise UnknownTables
    names = tuple(require_text(level, "namespace", index) for index, level in enumerate(namespace))
    return TableIdentifier(catalog, names, require_text(name, "", "name"))


def _decoded(segment: str) -> str:
    return unquote_to_bytes(segment).decode()
