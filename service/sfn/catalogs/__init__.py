"""Catalogs: the source of truth about tables.

`Catalog` is the interface that the rest of the listener uses. `rest` implements it for Iceberg REST catalogs,
`pyiceberg` for all that PyIceberg can open, `event_sourced` for catalogs that cannot be queried, and `memory` for
tests. `listing` walks over all namespaces, `spelling` finds how the catalog itself writes a name, and `metadata` reads
the metadata files of tables. Start reading at `Catalog` below, then `rest.catalog.RestCatalog`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, TypeAlias, runtime_checkable

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient

# ── Answers about one table


@dataclass(frozen=True, slots=True)
class Loaded:
    """The catalog has the table.

    Attributes:
        table: the table's current metadata.
        etag: the entity tag of this answer.
    """

    table: Table
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class NotModified:
    """The answer has not changed since the entity tag that was sent (RFC 9110, section 13.1.2)."""


@dataclass(frozen=True, slots=True)
class NoSuchTable:
    """The catalog answered, in Iceberg's own error format, that it has no such table."""


@dataclass(frozen=True, slots=True)
class StagedCreate:
    """The table exists without a metadata file (a staged create): it is neither present nor missing."""


LoadResult: TypeAlias = Loaded | NotModified | NoSuchTable | StagedCreate


@dataclass(frozen=True, slots=True)
class VendedCredential:
    """One entry of a table's `storage-credentials`, or the `config` of its load (REST specification,
    `LoadTableResult`).

    Attributes:
        prefix: the canonical location that the credential covers, with everything below it; "" for the table's
            location.
        config: settings by Iceberg's names, such as `s3.access-key-id`; contains secrets.
        expires_at: the end of validity; None if the catalog does not say.
    """

    prefix: str
    config: Mapping[str, str] = field(repr=False)
    expires_at: datetime | None = None


# ── Catalogs

SkipNamespace: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Returns True if a namespace, and everything below it, is left out."""


@dataclass(frozen=True, slots=True)
class UnlistedNamespace:
    """A namespace that could not be listed, so that its tables, and those below it, may or may not exist.

    Attributes:
        namespace: levels, outermost first; none for the whole catalog.
        reason: what happened, for people.
        remedy: the wrong setting and its right value; empty if a permission is missing.
        is_failure: True if the catalog failed to list the namespace, which may pass; False if our principal may not
            list it.
    """

    namespace: tuple[str, ...]
    reason: str
    remedy: str = ""
    is_failure: bool = False

    @property
    def message(self) -> str:
        """Reason and remedy in one line."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class Catalog(Protocol):
    """One configured catalog.

    Every method raises `Transient` or `Permanent` with scope table or catalog if there is no valid answer: time-outs,
    refused connections, 401, 403, 429, 5xx, a body that is not JSON, a 404 that is not in Iceberg's error shape.
    """

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        """Return the current state of a table.

        Args:
            table: the table.
            known_etag: etag of an answer that the caller still has; without it, `NotModified` is never returned.
        """
        ...

    async def is_listed(self, table: TableIdentifier) -> bool:
        """Return True if a complete listing of the table's namespace contains it; a missing namespace lists nothing."""
        ...

    def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """Yield every table of every namespace, over all pages, and each unlisted namespace once.

        A namespace that may not or cannot be listed raises no error, so that all others are still listed. Some of its
        tables may be yielded anyway.

        Args:
            skip: namespaces that are not listed; None for none.

        Raises:
            Transient, Permanent: the catalog is down, no namespace can be listed, or the listing of the outermost
                namespaces is incomplete; their listed tables have been yielded by then.
        """
        ...


@runtime_checkable
class NamespaceLister(Protocol):
    """A catalog that lists namespace by namespace.

    Both methods raise as `Catalog.tables`, and `Permanent` with scope table for a forbidden namespace. A missing
    namespace lists nothing.
    """

    def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """Yield the children of a namespace, or the outermost ones. Some catalogs yield all levels, and duplicates."""
        ...

    def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]: ...


@runtime_checkable
class CredentialVendor(Protocol):
    """A catalog that issues credentials for its tables' stores. Each is valid for one table only.

    Both methods raise as `Catalog.load`. Credentials are held in memory only, and no message contains them.
    """

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        """Return the credentials for the location of a table.

        They are cached until shortly before they expire. Unexpired ones are returned for a dropped table, too, and
        while the catalog is down.

        Returns:
            The credentials, empty if the catalog issues none for this table; `NoSuchTable` if there is no such table
            and no valid cached credential.
        """
        ...

    async def renew_credentials(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """Return new credentials after a store rejected some, or if none of them fits the table's present location.

        Args:
            table: the table.
            rejected: all credentials of the previous answer.

        Returns:
            See `vended_credentials`, but without cached ones that are among `rejected`. If the answer equals
            `rejected`, there is nothing else to try.
        """
        ...


@runtime_checkable
class ConfigAdvertiser(Protocol):
    """A catalog that sends configuration to its clients, including the listener."""

    async def advertised_config(self) -> Mapping[str, str]:
        """Return the configuration by the keys of Iceberg's REST specification ("getConfig"); overrides win.

        Raises:
            Transient, Permanent: scope catalog; there is no answer.
        """
        ...

    async def advertised_encoding(self) -> str:
        """Return the `Content-Encoding` of that answer, although none was requested; "" for none.

        Raises:
            Transient, Permanent: see `advertised_config`.
        """
        ...


_SHORTEST_SECRET: Final = 4
_LONGEST_FOUND: Final = 400


@dataclass(frozen=True, slots=True)
class CatalogFailure:
    """A query without an answer.

    Attributes:
        permanent: True if it fails until a person changes something.
        scope: scope of the error; None: another query decides between table and catalog.
        retry_after: seconds that the catalog asked us to wait.
    """

    where: str
    expected: str
    found: str
    remedy: str = ""
    permanent: bool = False
    scope: ErrorScope | None = None
    retry_after: float | None = None

    def to_error(self, scope: ErrorScope, secrets: Iterable[str]) -> Transient | Permanent:
        """Return the error to raise, on one line. Every secret of ours is masked, as a server may repeat it."""
        # Python represents stray bytes of a header as lone surrogates, which no log can write.
        found = self.found.encode("utf-8", "replace").decode()
        # The longest first, as one secret may be the beginning of another.
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                found = found.replace(secret, "***")
        found = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+", " ", found)
        if len(found) > _LONGEST_FOUND:
            found = found[:_LONGEST_FOUND] + " …"
        kind = Permanent if self.permanent else Transient
        return kind(
            self.where,
            scope=scope,
            expected=self.expected,
            found=found,
            remedy=self.remedy,
            retry_after=self.retry_after,
        )


class CatalogRequestFailed(Exception):
    """A failure on its way to the code that decides its scope; never leaves its adapter."""

    def __init__(self, failure: CatalogFailure) -> None:
        super().__init__(failure.where, failure.found)
        self.failure = failure


def combine(failure: CatalogFailure, other: CatalogFailure) -> CatalogFailure:
    """Combine the failure of a query with that of the query that was to decide the scope.

    The remedy is that of the second one, which concerns the whole catalog.
    """
    waits = [wait for wait in (failure.retry_after, other.retry_after) if wait is not None]
    return replace(
        failure,
        found=f"{failure.found}; and of {other.where}: {other.found}",
        remedy=other.remedy or failure.remedy,
        permanent=other.permanent,
        retry_after=max(waits, default=None),
    )
