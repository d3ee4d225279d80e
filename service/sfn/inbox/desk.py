"""The ports for operators: what they ask of the inbox, and what they tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sfn.inbox.figures import BrakeState, Figures
from sfn.inbox.letters import Audited, DeadLetter, Order, Wanted
from sfn.inbox.standing import Standing
from sfn.words import Hint, Subject, Undecodable


class Desk(Protocol):
    """How things stand. Every verb raises `Transient` with scope inbox, or `Broken`."""

    async def figures(self) -> Figures:
        """How many of what, without a look at every row."""
        ...

    async def standing(self, subject: Subject) -> Standing | None:
        """A table's row, or a catalog's; None where there is none."""
        ...

    async def brake(self, catalog: str) -> BrakeState:
        """A catalog's brake."""
        ...

    async def audited(self, before: int | None, limit: int) -> list[Audited]:
        """Orders with ids less than `before`, the newest first; None for the newest of all."""
        ...


class DeadLetters(Protocol):
    """Dead letters, found and dealt with. Every verb raises as `Desk`'s do."""

    async def find(self, wanted: Wanted, after: int, limit: int) -> list[DeadLetter]:
        """So many of those that are wanted, with ids greater than `after`, by id."""
        ...

    async def newest(self, wanted: Wanted, limit: int) -> list[DeadLetter]:
        """So many of those that are wanted, the newest first."""
        ...

    async def numbered(self, numbers: Sequence[int]) -> list[DeadLetter]:
        """Those of these ids that there are, by id."""
        ...

    async def event(self, number: int) -> Undecodable | None:
        """The request that a letter is about, None for one about a subject."""
        ...

    async def replay(self, numbers: Sequence[int], hints: Sequence[Hint], order: Order) -> int:
        """Have the subjects of open letters looked at again, and close the letters, in one transaction.

        Args:
            numbers: ids; those of letters that are not open are passed over.
            hints: what the requests among them say, now that somebody understands them.
            order: for the audit log.

        Returns:
            How many were open.
        """
        ...

    async def discard(self, numbers: Sequence[int], order: Order) -> int:
        """Close open letters; how many there were. Their subjects are left as they are."""
        ...


class Custody(Protocol):
    """Whole catalogs: looked at, and whose files theirs are. Every verb raises as `Desk`'s do."""

    async def reconcile(self, hints: Sequence[Hint], order: Order) -> None:
        """Have catalogs swept; each hint names one."""
        ...

    async def adopt(self, hints: Sequence[Hint], order: Order) -> None:
        """Have tables take over what lies in their place; each hint names the catalog whose files they are."""
        ...

    async def retire(self, catalog: str, *, retired: bool, order: Order) -> None:
        """Say durably that a catalog's tables get no files any more, or that they do again."""
        ...

    async def owner(self, catalog: str) -> str | None:
        """The `catalog_id` that was noted last; None for none."""
        ...

    async def own(self, catalog: str, catalog_id: str) -> None:
        """Note durably which `catalog_id` a catalog's files carry, see `sfn.inbox.whose`."""
        ...

    async def retired(self) -> frozenset[str]:
        """Which catalogs' tables get none."""
        ...
