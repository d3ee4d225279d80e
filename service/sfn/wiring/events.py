"""From the settings to which events are taken, when they arrive and when an operator has them decoded once more."""

from __future__ import annotations

from collections.abc import Sequence

from sfn.admin.operators import Retirement
from sfn.dialects import Sender
from sfn.errors import Rejected
from sfn.receiver.concern import Concern
from sfn.receiver.letter import revived
from sfn.receiver.senders import ANONYMOUS
from sfn.settings import Settings
from sfn.wiring.terms import interest
from sfn.words import Hint, TableName, Undecodable


def concern(settings: Settings, retirement: Retirement) -> Concern:
    """Which events matter, for as long as a catalog does not retire."""
    interests = {name: interest(one) for name, one in settings.catalogs.items()}

    def covers(table: TableName) -> bool:
        return table.catalog not in retirement.names and interests[table.catalog].covers(table)

    return Concern(covers, frozenset(settings.told))


def understood(settings: Settings, ours: Concern, event: Undecodable) -> Sequence[Hint]:
    """The hints of a request that nobody understood when it came, as far as they matter.

    Raises:
        Rejected: nobody understands it now, its sender is not configured any more, or what would be believed of it is
            not what was signed.
    """
    decoded = ours.decoded(revived(event, _sender(settings, event.sender), ours.told))
    return ours.of(decoded.hints)


def _sender(settings: Settings, name: str) -> Sender:
    origins = settings.origins
    if name in origins:
        return Sender(name, settings.catalogs_of(name), origins[name].dialect)
    if name == ANONYMOUS and not settings.senders:
        return Sender(name, {catalog: catalog for catalog in settings.catalogs})
    known = ", ".join(origins) or "none is"
    raise Rejected("sender", status=422, expected=f"a configured sender: {known}", found=name)
