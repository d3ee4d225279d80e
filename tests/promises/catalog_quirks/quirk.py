"""What a quirk is, and what a catalog with one may come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.promises.catalog_quirks.server import Answer, Changed, Question, QuirkServer


class Outcome(StrEnum):
    """What the product makes of a quirk."""

    RIGHT = "right"
    """Every promise of the contract suite holds."""
    GONE_UNSEEN = "right, but a dropped table keeps its file"
    WITHHELD = "that namespace is withheld, all others are right"
    NO_LISTING = "tables are right by events, the sweep fails"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Quirk:
    """One quirk of catalogs.

    Attributes:
        key: names it in tests.
        what: what such a catalog does.
        seen: on which catalogs.
        outcome: what the product makes of it.
        changed: makes the quirk's answer of a plain one.
        how: what the product does to be right, where that is not plain.
        but: promises of the contract suite that no such catalog can keep.
        separator: between the levels of a namespace, decoded.
        root: what stands before `namespaces` in each path.
        path: what stands behind host and port in the configured URI.
        any_case: tables are found by any spelling of their names.
        timeout: seconds that the adapter waits for an answer.
        has_tokens: the catalog is asked with client credentials.
    """

    key: str
    what: str
    seen: str
    outcome: Outcome
    changed: Changed
    how: str = ""
    but: frozenset[str] = field(default_factory=frozenset)
    separator: str = "\x1f"
    root: str = "/v1/"
    path: str = ""
    any_case: bool = False
    timeout: float = 60.0
    has_tokens: bool = False


Quirky = Callable[[QuirkServer, Question, Answer], Answer]


def of_kind(*kinds: str) -> Callable[[Quirky], Changed]:
    """Apply to the answers of some kinds of questions alone."""

    def limited(quirky: Quirky) -> Changed:
        def changed(server: QuirkServer, question: Question, answer: Answer) -> Answer:
            return quirky(server, question, answer) if question.kind in kinds else answer

        return changed

    return limited


def always(answer: Any, *kinds: str, namespace: str | None = None) -> Changed:  # noqa: ANN401 - an answer, or what makes one
    """Give one answer to questions of some kinds, or of one namespace alone."""

    def changed(server: QuirkServer, question: Question, plain: Answer) -> Answer:
        is_there = namespace is None or question.namespace == (namespace,)
        if question.kind not in kinds or not is_there:
            return plain
        made: Answer = answer(server, question, plain) if callable(answer) else answer
        return made

    return changed
