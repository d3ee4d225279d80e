"""The port to a catalog: the only place where truth comes from."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, runtime_checkable

from sfn.domain.catalog_answer import LoadResult, NoSuchTable, VendedCredential
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient

# ── catalog: The port to a catalog

SkipNamespace: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Whether a namespace, and all that lies below it, is left out."""


@dataclass(frozen=True, slots=True)
class UnlistedNamespace:
    """What a catalog does not let us see: whether a table of that namespace exists, or of one below it, is not known.

    Attributes:
        namespace: its levels, outermost first; none for the whole catalog.
        reason: what happened, for a person.
        remedy: the setting that is wrong, and what to set it to; empty where a permission is missing.
        is_failure: the catalog failed to list the namespace, which may pass; else our principal may not list it.
    """

    namespace: tuple[str, ...]
    reason: str
    remedy: str = ""
    is_failure: bool = False

    @property
    def message(self) -> str:
        """All of it in one line."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class Catalog(Protocol):
    """One configured catalog.

    Every verb raises `Transient` or `Permanent` with scope table or catalog for whatever is not an answer: time-outs,
    refused connections, 401, 403, 429, 5xx, a body that is no JSON, a 404 that is not in Iceberg's error shape.
    """

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        """What the catalog says about a table now.

        Args:
            table: whose metadata.
            known_etag: entity tag of an answer that the caller still has; `NotModified` is returned only where it
                was given.
            history: all that was told of the table, for a catalog that has no other source; every other passes over it.
        """
        ...

    async def is_listed(self, table: TableIdentifier) -> bool:
        """Whether a complete listing of the table's namespace names it; a missing namespace lists nothing."""
        ...

    def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """Every table of every namespace, pages followed, and once each namespace that is withheld.

        No trouble is raised for one namespace that may not be listed, or cannot be: all others are walked.
        Some of its tables may come all the same.

        Args:
            skip: namespaces that nothing is asked about; None for none.

        Raises:
            Transient, Permanent: the catalog is down, no namespace can be listed, or the outermost namespaces could not
                be listed whole; what was listed of them has come by then.
        """
        ...


@runtime_checkable
class NamespaceLister(Protocol):
    """A catalog whose listing can be shared out, namespace by namespace. Both verbs raise trouble as `Catalog.tables`,
    and `Permanent` with scope table for a namespace that may not be looked into; one that is missing lists nothing.
    """

    def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """Those right below another, or the outermost; some catalogs name all of them at once, and more than once."""
        ...

    def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        """The tables of one."""
        ...


@runtime_checkable
class CredentialVendor(Protocol):
    """A catalog that gives credentials for its tables' stores. What they open is the table's and nobody else's.

    Both verbs raise trouble as `Catalog.load`. What they give is kept in memory alone, and shows in no message.
    """

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        """What opens the place of a table now.

        Given from memory while it is good, which ends a little before the grants do. A grant that has not ended is
        given for a dropped table too, and while the catalog has trouble.

        Returns:
            None at all where the catalog vends none for this table; `Missing` where it has no such table, and none that
            was given before is good any more.
        """
        ...

    async def renew_credentials(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """What opens it after a store refused some, or where none of them is for the place that the table has now.

        Args:
            table: whose.
            rejected: as they were given: all of them.

        Returns:
            As of `grants`, but never by memory where that is of these. Where they are the same again there is nothing
            else to try.
        """
        ...


@runtime_checkable
class ConfigAdvertiser(Protocol):
    """A catalog that tells its clients how to go on, ourselves among them."""

    async def advertised_config(self) -> Mapping[str, str]:
        """What it tells them, by the keys of Iceberg's REST specification ("getConfig"); what it insists on wins.

        Raises:
            Transient, Permanent: scope catalog; it can't be told, or the catalog does not answer.
        """
        ...

    async def advertised_encoding(self) -> str:
        """What that came encoded with (`Content-Encoding`), although it was asked for as it is; "" for nothing.

        Raises:
            Transient, Permanent: as of `advertised`.
        """
        ...


# ── refusal: Why a catalog gave no answer

_SHORTEST_SECRET: Final = 4
_LONGEST_FOUND: Final = 400


@dataclass(frozen=True, slots=True)
class CatalogFailure:
    """Why a question has no answer.

    Attributes:
        permanent: somebody must change something first.
        scope: whose trouble it is; None: another question decides between table and catalog.
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
        """The error to raise, on one line, with every secret of ours blotted out, whoever repeated it."""
        # A header's stray bytes are lone surrogates in Python, which no log can write.
        found = self.found.encode("utf-8", "replace").decode()
        # The longest first: one secret may be the beginning of another.
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
    """Carries a refusal to where its scope is decided; never leaves its adapter."""

    def __init__(self, failure: CatalogFailure) -> None:
        super().__init__(failure.where, failure.found)
        self.failure = failure


def combine(failure: CatalogFailure, other: CatalogFailure) -> CatalogFailure:
    """One refusal of two: of a question, and of the one that was to decide whose trouble that is.

    What is wrong with the whole catalog says what to do.
    """
    waits = [wait for wait in (failure.retry_after, other.retry_after) if wait is not None]
    return replace(
        failure,
        found=f"{failure.found}; and of {other.where}: {other.found}",
        remedy=other.remedy or failure.remedy,
        permanent=other.permanent,
        retry_after=max(waits, default=None),
    )
