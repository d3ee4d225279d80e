"""From the settings to which events are taken, when they arrive and when an operator has them decoded once more."""

from __future__ import annotations

from collections.abc import Sequence

from sfn.admin.operators import RetiredCatalogs
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.event import Sender
from sfn.http.events import EventFilter, to_request
from sfn.http.senders import ANONYMOUS
from sfn.settings import Settings
from sfn.wiring.terms import table_filter


def build_event_filter(settings: Settings, retirement: RetiredCatalogs) -> EventFilter:
    """Which events matter, for as long as a catalog does not retire."""
    interests = {name: table_filter(one) for name, one in settings.catalogs.items()}

    def covers(table: TableIdentifier) -> bool:
        return table.catalog not in retirement.names and interests[table.catalog].covers(table)

    return EventFilter(covers, frozenset(settings.event_only_catalogs))


def decode_undecodable(
    settings: Settings, event_filter: EventFilter, event: UndecodableRequest
) -> Sequence[Notification]:
    """The hints of a request that nobody understood when it came, as far as they matter.

    Raises:
        Rejected: nobody understands it now, its sender is not configured any more, or what would be believed of it is
            not what was signed.
    """
    decoded = event_filter.decode(to_request(event, _sender_named(settings, event.sender), event_filter.event_only))
    return event_filter.relevant(decoded.notifications)


def _sender_named(settings: Settings, name: str) -> Sender:
    origins = settings.origins
    if name in origins:
        return Sender(name, settings.catalogs_of(name), origins[name].dialect)
    if name == ANONYMOUS and not settings.senders:
        return Sender(name, {catalog: catalog for catalog in settings.catalogs})
    known = ", ".join(origins) or "none is"
    raise Rejected("sender", status=422, expected=f"a configured sender: {known}", found=name)
