"""Which events matter and whether they say enough: for those that arrive, and for those that are decoded once more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.formats import DecodedRequest, decode
from sfn.formats.event import EventRequest


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events matter.

    Attributes:
        covers: whether a table is published.
        event_only: catalogs that nobody can ask: what events do not say of them nobody will ever know.
    """

    covers: Callable[[TableIdentifier], bool]
    event_only: Collection[str] = ()

    def decode(self, request: EventRequest) -> DecodedRequest:
        """All that a request says; raises `Rejected` as `decode` does."""
        return decode(request, self.event_only)

    def relevant(self, notifications: Sequence[Notification]) -> list[Notification]:
        """Those hints that matter.

        What is told of a catalog that nobody can ask always does: the table may get files again, once its catalog comes
        back or the settings change, and then nobody could tell where it is.
        """
        return [notification for notification in notifications if self.is_relevant(notification.subject)]

    def is_relevant(self, subject: JobKey) -> bool:
        """Whether what is told of a table or a catalog matters."""
        return isinstance(subject, CatalogName) or subject.catalog in self.event_only or self.covers(subject)
