"""Paths of Iceberg's REST API, byte for byte: every segment is percent-encoded exactly once.

Nothing here may pass through a URL library that quotes or normalises: `a%2Fb` and `a/b` are two tables.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, UnaddressableTable

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
