"""Why a catalog gave no answer, before it is known whose trouble that is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sfn.errors import ErrorScope, Permanent, Transient

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
