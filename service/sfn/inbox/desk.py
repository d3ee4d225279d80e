"""The ports for operators: what they ask of the inbox, and what they tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.inbox.figures import DropLimitState, QueueStats
from sfn.inbox.letters import AdminCommand, AuditEntry, DeadLetter, DeadLetterFilter
from sfn.inbox.standing import TableStatus


class AdminQueries(Protocol):
    """How things stand. Every verb raises `Transient` with scope inbox, or `Broken`."""

    async def stats(self) -> QueueStats:
        """How many of what, without a look at every row."""
        ...

    async def table_status(self, subject: JobKey) -> TableStatus | None:
        """A table's row, or a catalog's; None where there is none."""
        ...

    async def drop_limit_state(self, catalog: str) -> DropLimitState:
        """A catalog's brake."""
        ...

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Orders with ids less than `before`, the newest first; None for the newest of all."""
        ...


class DeadLetters(Protocol):
    """Dead letters, found and dealt with. Every verb raises as `Desk`'s do."""

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        """So many of those that are wanted, with ids greater than `after`, by id."""
        ...

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        """So many of those that are wanted, the newest first."""
        ...

    async def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        """Those of these ids that there are, by id."""
        ...

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        """The request that a letter is about, None for one about a subject."""
        ...

    async def replay(self, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand) -> int:
        """Have the subjects of open letters looked at again, and close the letters, in one transaction.

        Args:
            ids: ids; those of letters that are not open are passed over.
            notifications: what the requests among them say, now that somebody understands them.
            command: for the audit log.

        Returns:
            How many were open.
        """
        ...

    async def discard(self, ids: Sequence[int], command: AdminCommand) -> int:
        """Close open letters; how many there were. Their subjects are left as they are."""
        ...


class CatalogAdmin(Protocol):
    """Whole catalogs: looked at, and whose files theirs are. Every verb raises as `Desk`'s do."""

    async def reconcile(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        """Have catalogs swept; each hint names one."""
        ...

    async def adopt(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        """Have tables take over what lies in their place; each hint names the catalog whose files they are."""
        ...

    async def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        """Say durably that a catalog's tables get no files any more, or that they do again."""
        ...

    async def owner_id(self, catalog: str) -> str | None:
        """The `catalog_id` that was noted last; None for none."""
        ...

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Note durably which `catalog_id` a catalog's files carry, see `sfn.inbox.whose`."""
        ...

    async def retired_catalogs(self) -> frozenset[str]:
        """Which catalogs' tables get none."""
        ...
