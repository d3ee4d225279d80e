"""What does not fit together of the sources that events are fetched from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sfn.errors import SfnError
from sfn.settings.bound import unbound
from sfn.settings.model import Settings, pulled
from sfn.settings.pulls import PullSettings
from sfn.settings.sources import Sources, variable

_PAIRS: Final = (("stream", "durable"), ("user", "password_file"))
"""Keys that mean nothing one without the other."""
_WAYS: Final = ("credentials_file", "token_file", "user")
"""Keys that each say who asks."""


def mispulled(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    """Everything of the sections `pull.NAME`."""
    for name, pull in settings.pull.items():
        keys = ("pull", name)
        yield from _halves(keys, pull, sources)
        yield from _ways(keys, pull, sources)
        if "queue" in pull.model_fields_set and pull.stream is not None:
            yield SfnError(
                sources.place((*keys, "queue")),
                expected="no queue group with a stream",
                found="one",
                remedy="remove it: those who have one durable consumer share its messages",
            )
        yield from unbound(keys, pull, settings.catalogs, sources)
        if pulled(name) in settings.senders:
            yield SfnError(
                sources.place(("senders", pulled(name))),
                expected="a name of its own",
                found=f"the one that events from [pull.{name}] come under",
                remedy="rename one of the two",
            )


def _halves(keys: tuple[str, ...], pull: PullSettings, sources: Sources) -> Iterator[SfnError]:
    for pair in _PAIRS:
        given = [key for key in pair if getattr(pull, key) is not None]
        for key in pair:
            if given and key not in given:
                yield SfnError(
                    sources.place((*keys, key)),
                    expected=f"a value, as {given[0]} is set",
                    found="none",
                    remedy=f"set it there or as {variable((*keys, key))}",
                )


def _ways(keys: tuple[str, ...], pull: PullSettings, sources: Sources) -> Iterator[SfnError]:
    first, *more = [key for key in _WAYS if getattr(pull, key) is not None] or [""]
    for key in more:
        yield SfnError(
            sources.place((*keys, key)),
            expected="one way to say who asks",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )
