"""Which requests concern us: of which catalog, which tables, and whose. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from sfn.domain.identifiers import TableIdentifier

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
        """Whether one more of a client is one too many within this second."""
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._counts = second, Counter()
        self._counts[peer] += 1
        return self._counts[peer] > MAX_MISSING_PER_SECOND
