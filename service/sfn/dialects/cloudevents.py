"""CloudEvents of anybody: those that carry our own format are read, all others are of no concern.

{"specversion": "1.0", "id": …, "source": …, "type": …, "data": {"namespace": …, "name": …}}
"""

from __future__ import annotations

from collections.abc import Callable

from sfn.dialects.event import Event
from sfn.dialects.outcome import identity
from sfn.words import Hint


def recognises(event: Event) -> bool:
    """Whether it is a CloudEvent."""
    return event.data_at is not None


def carrying(
    recognised: Callable[[Event], bool], told: Callable[[Event], tuple[Hint, ...]]
) -> Callable[[Event], tuple[Hint, ...]]:
    """What a CloudEvent says whose `data` is in a format.

    Args:
        recognised: whether an event is of that format.
        told: what it says then.
    """

    def hints(event: Event) -> tuple[Hint, ...]:
        """What is carried; the envelope's id is the event's. Raises `Rejected` as `told` does."""
        data, content = event.data, event.content
        if data is None:
            return ()
        event_id = identity(str(content["source"]), str(content["id"]))
        carried = Event(event.request, {**data, "event_id": event_id}, event.body, str(event.data_at))
        return told(carried) if recognised(carried) else ()

    return hints
