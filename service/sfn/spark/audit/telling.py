"""What differs is told to the service, which looks for itself and writes the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sfn.cli.client import EventAccess, ServiceClient, event_access
from sfn.cli.options import ServiceOptions
from sfn.errors import SfnError
from sfn.spark.audit.outcome import AuditNotification

EVENTS_PER_REQUEST: Final = 1_000
"""Events in one request, as many as the service takes."""
MAX_FAILURES_IN_A_ROW: Final = 3
"""Requests in a row that the service does not take until it is asked no more."""


class EventPoster:
    """Posts hints as events, as a configured sender.

    Where the service takes none again and again it is asked no more: what is not told of is in the report all the same,
    and the next audit finds it.

    Args:
        voices: by catalog.

    Attributes:
        accepted: hints that were taken, or that were known already.
        ignored: those that the service passes over: its configuration leaves the tables out, or their catalog retired.
        error: why the first of those were not taken that were not.
    """

    def __init__(self, senders: Mapping[str, EventAccess]) -> None:
        self._senders = senders
        self._failures_in_a_row = 0
        self.accepted = self.ignored = 0
        self.error = ""

    def post(self, notifications: Iterable[AuditNotification]) -> int:
        """Tell of some tables; how many of these the service was not told of. It raises nothing."""
        by_catalog = defaultdict[str, list[AuditNotification]](list)
        for notification in notifications:
            by_catalog[notification.catalog].append(notification)
        return sum(
            self._post_batch(self._senders[catalog], its[start : start + EVENTS_PER_REQUEST])
            for catalog, its in by_catalog.items()
            for start in range(0, len(its), EVENTS_PER_REQUEST)
        )

    def _post_batch(self, sender: EventAccess, notifications: Sequence[AuditNotification]) -> int:
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            return len(notifications)
        events = [_event(sender, notification) for notification in notifications]
        try:
            with ServiceClient(sender.access) as service:
                taken = service.post_events(events)
        except SfnError as error:
            self._failures_in_a_row += 1
            self.error = self.error or str(error)
            return len(notifications)
        self._failures_in_a_row = 0
        self.accepted += taken.accepted + taken.duplicates
        self.ignored += taken.ignored
        return 0


def event_senders(flags: ServiceOptions, catalogs: Iterable[str], sender: str | None) -> dict[str, EventAccess]:
    """How the service is told of each catalog's tables.

    Raises:
        Misconfigured: no sender may.
    """
    return {catalog: event_access(flags, catalog, sender) for catalog in catalogs}


def _event(sender: EventAccess, notification: AuditNotification) -> Mapping[str, object]:
    event: dict[str, object] = {"namespace": notification.namespace, "name": notification.name}
    said = {"catalog": sender.sender_catalog, "metadata_location": notification.metadata_location}
    return event | {key: text for key, text in said.items() if text is not None}
