"""Which requests to an Iceberg REST catalog change tables, and which tables (Iceberg's REST specification). Pure.

    POST   …/namespaces/{namespace}/tables                          create; the body has the name
    POST   …/namespaces/{namespace}/register                        register, or overwrite; the body has the name
    POST   …/namespaces/{namespace}/tables/{table}                  commit
    DELETE …/namespaces/{namespace}/tables/{table}                  drop, with ?purgeRequested=true
    POST   …/namespaces/{namespace}/tables/{table}/unregister       as a drop, whose files stay
    POST   …/tables/rename                                          the body has both names
    POST   …/transactions/commit                                    the body has all names
    DELETE …/namespaces/{namespace}                                 some catalogs drop what is in it
    POST   …/namespaces/{namespace}/tables/{table}/notifications    Polaris: an external catalog's table changed
    POST   …/warehouse/{prefix}/deleted-tabulars/undrop             Lakekeeper's management API: tables come back

All else passes: views too. All of them begin with `/v1/`, behind whatever path the catalog has. What stands between
that and `namespaces`, `tables` or `transactions` is the prefix that it gave its clients, of any number of segments. Of
one that is empty Iceberg's Java client makes a segment of its own: `/v1//namespaces/…`.
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

# ── Recognised requests


class ChangeKind(StrEnum):
    """What a request does."""

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
"""Those whose bodies are read to know which tables are meant."""


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A request that may change tables.

    Attributes:
        kind: what it does.
        prefix: what the catalog has its clients put before, percent-encoded as it came, but for characters that need
            no encoding; "" for nothing.
        namespace: segment of the path, encoded likewise; None where the path has none.
        table: likewise.
        purge: the table's files are to be deleted with it.
    """

    kind: ChangeKind
    prefix: str
    namespace: str | None = None
    table: str | None = None
    purge: bool = False


API_VERSION_PATH: Final = "/v1/"
"""Begins each path of the specification."""
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
        # Behind the commit: a table may be called `rename`.
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
"""Empty segments, and those that mean the path so far (RFC 3986, section 5.2.4). An encoded dot is a name."""
_UNRESERVED: Final = re.compile(r"%(2D|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)", re.IGNORECASE)
"""Characters that mean the same encoded or not (RFC 3986, section 2.3). A dot may not: it divides some namespaces."""
_PURGE: Final = re.compile(r"(?:^|&)purgeRequested=true(?:&|$)", re.IGNORECASE)


def recognise_change(method: str, path: str, query: str = "") -> CatalogChange | None:
    """Return the change that a request asks for, None for one that changes no table.

    Args:
        method: HTTP's.
        path: behind the address of the catalog, or with a part of it, percent-encoded as it came.
        query: what stands behind its question mark, likewise.
    """
    patterns = _PATTERNS.get(method, ())
    if patterns and "%" in path:
        path = _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path)
    # Found once: a pattern that looked for it in a long path would do so at each of its places.
    begin = path.find(API_VERSION_PATH) + len(API_VERSION_PATH) if patterns else 0
    segments = _SLASHES.sub("/", path[begin - 1 :])
    for kind, pattern in patterns if begin >= len(API_VERSION_PATH) else ():
        found = pattern.fullmatch(segments, 1)
        if found is not None:
            parts = found.groupdict()
            purge = kind is ChangeKind.DROP and _PURGE.search(query) is not None
            return CatalogChange(kind, parts["prefix"] or "", parts.get("namespace"), parts.get("table"), purge)
    return None


# ── Mapped catalogs and limits

MAX_MISSING_PER_SECOND: Final = 20
"""Tables a second that do not exist, and that are looked at because a client asked for a change of them."""


MAX_REPORTED_PREFIXES: Final = 100
"""Prefixes that map to no catalog, each reported once."""


@dataclass(frozen=True, slots=True)
class CatalogMapping:
    """What a gateway looks after.

    Attributes:
        catalog: our name of the catalog, where it has but one.
        catalogs: our names of its catalogs, by the prefix that it has its clients use; empty where it has but one.
        is_published: whether a table is published.
        requires_credentials: whether the catalog takes changes only of who shows who it is.
    """

    catalog: str | None
    catalogs: Mapping[str, str]
    is_published: Callable[[TableIdentifier], bool]
    requires_credentials: bool

    def catalog_of(self, prefix: str) -> str | None:
        """Our name of the catalog that a prefix leads to, None for one that is not ours.

        Args:
            prefix: of the path, percent-encoded as it came.
        """
        return self.catalog if not self.catalogs else self.catalogs.get(unquote(prefix))


class UnmappedPrefixes:
    """The prefixes of commits that passed and belong to no catalog of ours: each is reported once.

    Clients may invent prefixes, so the number of remembered ones is limited.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def is_new(self, prefix: str) -> bool:
        """Return whether a prefix has to be reported; it counts as reported from now on.

        Args:
            prefix: of the path, percent-encoded as it came.
        """
        if prefix in self._seen or len(self._seen) >= MAX_REPORTED_PREFIXES:
            return False
        self._seen.add(prefix)
        return True


class MissingTableLimit:
    """Counts tables that were asked for and do not exist: whoever makes up names may not fill the inbox with them.

    Args:
        monotonic: seconds that never run backwards.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._second = 0
        self._counts: Counter[str] = Counter()

    def is_exceeded(self, peer: str) -> bool:
        """Return whether one more of a client is one too many within this second."""
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._counts = second, Counter()
        self._counts[peer] += 1
        return self._counts[peer] > MAX_MISSING_PER_SECOND


# ── Tables of a change

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
        """Return a configuration passed.

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
        """Return all that a configuration of that prefix said; none where none passed.

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
    """Return the tables that a change may touch: of a rename the old name and the new one, of a staged create none.

    Of a path that catalogs read differently it is each table that one of them would read: a look at a table that is not
    there costs a request.

    Args:
        change: what the path said.
        body: all of the request's body, where the kind is of `NAMED_IN_BODY`; else it is not looked at.
        catalog: our name of the catalog.
        separators: what the catalog may have between the levels of a namespace, as its configurations say it; none
            where that is not known.

    Raises:
        UnknownTables: it can't be told.
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
    """Return the levels of a namespace in a path, in every way that a catalog may read it; mostly there is one.

    What the specification puts between levels no name can hold. A separator of the catalog's own may stand in a name
    too: Iceberg's Java server splits the segment as it came, and takes `a.b` for one level where `%2E` is its
    separator; others decode it first.

    Args:
        segment: of the path, percent-encoded as it came.
        separators: as of `tables`; not known they are taken for the one of Iceberg's Java server.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        UnknownTables: the catalog's separator is not known, and may stand in it.
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
