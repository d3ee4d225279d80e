"""What an adapter to PyIceberg's catalogs is told at its start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, unquote, unquote_plus

from sfn.errors import SfnError

EXTRA: Final = "pip install '.[pyiceberg]'"
IMPLEMENTATION: Final = "py-catalog-impl"
KINDS: Final = {
    "dynamodb": "pyiceberg.catalog.dynamodb.DynamoDbCatalog",
    "glue": "pyiceberg.catalog.glue.GlueCatalog",
    "hive": "pyiceberg.catalog.hive.HiveCatalog",
    "rest": "pyiceberg.catalog.rest.RestCatalog",
    "sql": "pyiceberg.catalog.sql.SqlCatalog",
}
"""PyIceberg's classes by its property `type`. Not `in-memory`: nobody else sees what is in there."""

_INFERRED: Final = {"http": "rest", "postgresql": "sql", "sqlite": "sql", "thrift": "hive"}
"""What `uri` says where there is no `type`, as `pyiceberg.catalog.infer_catalog_type` has it."""

_IDENTIFYING: Final = (
    "warehouse",
    "table-name",
    "client.region",
    "dynamodb.region",
    "glue.endpoint",
    "glue.id",
    "glue.region",
)
"""Beside `uri`: which of many catalogs one is."""
_PLAIN: Final = frozenset({"type", IMPLEMENTATION, "name", "uri", *_IDENTIFYING})
_PLAIN_ENDINGS: Final = (".endpoint", ".profile-name", ".region")
"""Properties that may show, but for what a URI among them hides."""
_SECRET: Final = re.compile("key|pass|secret|token", re.IGNORECASE)
_TRIVIAL: Final = frozenset({"true", "false"})

_URI: Final = re.compile(
    r"""
    (?P<scheme> (?P<web> https? ) | [a-z][a-z0-9.-]* ) (?: \+ [^:]* )? ://
    (?: [^:/@]* (?: : (?P<password> (?(web) [^@/?\#]* | [^@]* ) ) )? @ )?
    (?P<host> [^/?\#]* ) (?P<path> [^?\#]* ) (?: \? (?P<query> [^\#]* ) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A password in front of a database may hold anything but `@`: so SQLAlchemy reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PyIcebergSettings:
    """One configured catalog.

    Attributes:
        name: the name that the configuration gives it.
        properties: PyIceberg's own, all that it gets: its file and its environment variables are not read. `name` is
            what PyIceberg calls the catalog, as in the column `catalog_name` of a SQL catalog; `name` of ours if unset.
        catalog_id: its identity in our files; None: derived from where it is.
        request_timeout: seconds for one call of PyIceberg, with the wait for a free thread.
        max_in_flight: calls at a time.
        body_limit: bytes of one table's metadata file, inflated.

    Raises:
        SfnError: what cannot work; no secret is repeated.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)
    catalog_id: str | None = None
    request_timeout: float = 60.0
    max_in_flight: int = 8
    body_limit: int = 256 * 2**20

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            expected = f"one of {', '.join(KINDS)}, or {IMPLEMENTATION} and the path of a class"
            found = self.kind if re.fullmatch("[a-z-]{1,20}", self.kind) else "another one"
            raise SfnError(self.setting_path("type"), expected=expected, found=found)
        if self.kind is None and IMPLEMENTATION not in self.properties:
            raise SfnError(
                self.setting_path("type"),
                expected=f"one of {', '.join(KINDS)}",
                found="none, and no uri that tells it",
                remedy='such as properties = { type = "sql", uri = "postgresql+psycopg2://…" }',
            )
        if self.kind in {"hive", "rest", "sql"} and not self.uri:
            raise SfnError(self.setting_path("uri"), expected=f"the URI of a catalog of type {self.kind}", found="none")

    @property
    def kind(self) -> str | None:
        """PyIceberg's type of catalog; None for a class of somebody's own."""
        if IMPLEMENTATION in self.properties:
            return None
        scheme = self.uri.partition(":")[0].partition("+")[0].lower()
        inferred = _INFERRED.get("http" if scheme == "https" else scheme)
        return self.properties.get("type", "").lower() or inferred

    @property
    def implementation(self) -> str:
        """The path of the class that speaks to the catalog."""
        return self.properties.get(IMPLEMENTATION) or KINDS[self.kind or ""]

    @property
    def uri(self) -> str:
        """Where the catalog is; empty where its kind needs none. May hold a password."""
        return self.properties.get("uri", "")

    @property
    def catalog_name(self) -> str:
        """What PyIceberg calls the catalog."""
        return self.properties.get("name") or self.name

    def not_installed(self, error: ImportError) -> SfnError:
        """What to say where something can't be imported that the catalog needs."""
        found = f"no module {(error.name or '').partition('.')[0]}"
        if self.kind is None and found != "no module pyiceberg":
            place, expected = self.setting_path(IMPLEMENTATION), "a class that can be imported"
            return SfnError(place, expected=expected, found=found, remedy="install it beside the service")
        expected = "PyIceberg, and what it needs for such a catalog"
        return SfnError(self.setting_path("type"), expected=expected, found=found, remedy=EXTRA)

    def setting_path(self, key: str) -> str:
        """What a property is called in messages."""
        return f"catalogs.{self.name}.properties.{key}"

    def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files: a digest of what tells this catalog from others.

        No secret goes in, so that a new password changes nothing: of `uri` scheme, host, port and path count, neither
        driver nor user nor query; of the other properties the warehouse and what names an account, a region or a
        table. The catalog's own name counts where several share one database, which is true of SQL alone; elsewhere it
        only counts where it was set, for it may mean something to a class of somebody's own. For Glue without
        `glue.id` the account is not known here: set `catalog_id` where two accounts' tables lie in one place.
        """
        if self.catalog_id is not None:
            return self.catalog_id
        name = self.catalog_name if self.kind == "sql" else self.properties.get("name", "")
        words = [self.kind or self.implementation, _without_credentials(self.uri), name]
        words += [f"{key}={self.properties[key]}" for key in _IDENTIFYING if key in self.properties]
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    def secrets(self) -> tuple[str, ...]:
        """What must not show in any message: every value that is not known to be none."""
        found: set[str] = set()
        for key, value in self.properties.items():
            is_plain = key in _PLAIN or key.endswith(_PLAIN_ENDINGS)
            found.update(_secrets_in_uri(value) if is_plain else _secrets_in(value))
        return tuple(found - _TRIVIAL)


def _without_credentials(uri: str) -> str:
    """Where a URI leads, of several (a Hive metastore's) where any does; without driver, user, query and fragment."""
    if uri.startswith("thrift:") and "," in uri:
        return ",".join(sorted(_without_credentials(one.strip()) for one in uri.split(",")))
    found = _URI.match(uri)
    return f"{found['scheme']}://{found['host']}".lower() + found["path"].rstrip("/") if found else ""


def _secrets_in(value: str) -> Iterator[str]:
    """What a property keeps to itself, also a part of it: the secret of `id:secret`, the token of `Bearer token`."""
    yield value
    yield re.split(r"[:\s]", value)[-1]


def _secrets_in_uri(uri: str) -> Iterator[str]:
    """The password as it stands there and as it is meant, and what the query calls a secret."""
    found = _URI.match(uri)
    if found is not None:
        password = found["password"] or ""
        yield from (password, unquote(password), unquote_plus(password))
        yield from (value for key, value in parse_qsl(found["query"] or "") if _SECRET.search(key))
