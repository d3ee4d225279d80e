"""CloudEvents of anybody: those that carry our own format are read, all others are of no concern.

{"specversion": "1.0", "id": …, "source": …, "type": …, "data": {"namespace": …, "name": …}}
"""

from __future__ import annotations

from collections.abc import Callable

from sfn.dialects.event import Event
from sfn.dialects.outcome import global_event_id
from sfn.words import Notification


def is_cloud_event(event: Event) -> bool:
    """Whether it is a CloudEvent."""
    return event.data_at is not None


def decoder_of_data(
    matches: Callable[[Event], bool], decode: Callable[[Event], tuple[Notification, ...]]
) -> Callable[[Event], tuple[Notification, ...]]:
    """What a CloudEvent says whose `data` is in a format.

    Args:
        matches: whether an event is of that format.
        decode: what it says then.
    """

    def hints(event: Event) -> tuple[Notification, ...]:
        """What is carried; the envelope's id is the event's. Raises `Rejected` as `told` does."""
        data, content = event.data, event.content
        if data is None:
            return ()
        event_id = global_event_id(str(content["source"]), str(content["id"]))
        carried = Event(event.request, {**data, "event_id": event_id}, event.body, str(event.data_at))
        return decode(carried) if matches(carried) else ()

    return hints
