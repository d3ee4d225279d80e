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
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
    """The change that a request asks for, None for one that changes no table.

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
