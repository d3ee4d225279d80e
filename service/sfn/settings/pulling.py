"""What does not fit together of the sources that events are fetched from."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from sfn.errors import SfnError
from sfn.formats import POLARIS_NOTIFICATIONS
from sfn.pull.source import subjects_overlap
from sfn.settings.bound import check_origin_catalogs
from sfn.settings.model import Settings, pull_origin_name
from sfn.settings.pulls import PullSettings
from sfn.settings.sources import SettingsSources, variable_name

_KEY_PAIRS: Final = (("stream", "durable"), ("user", "password_file"))
"""Keys that mean nothing one without the other."""
_LOGIN_KEYS: Final = ("credentials_file", "token_file", "user")
"""Keys that each say who asks."""


def check_pull_sources(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `pull.NAME`."""
    for name, pull in settings.pull.items():
        keys = ("pull", name)
        yield from _check_key_pairs(keys, pull, sources)
        yield from _check_single_login(keys, pull, sources)
        if "queue" in pull.model_fields_set and pull.stream is not None:
            yield SfnError(
                sources.location_of((*keys, "queue")),
                expected="no queue group with a stream",
                found="one",
                remedy="remove it: those who have one durable consumer share its messages",
            )
        if pull.dialect == POLARIS_NOTIFICATIONS:
            yield SfnError(
                sources.location_of((*keys, "dialect")),
                expected="a format that a message may have",
                found=f"{POLARIS_NOTIFICATIONS}, whose notifications are known by the path that they are sent to",
                remedy="have Polaris send them to the listener, or name the format that is published",
            )
        yield from check_origin_catalogs(keys, pull, settings.catalogs, sources)
        if pull_origin_name(name) in settings.senders:
            yield SfnError(
                sources.location_of(("senders", pull_origin_name(name))),
                expected="a name of its own",
                found=f"the one that events from [pull.{name}] come under",
                remedy="rename one of the two",
            )
    yield from _check_competing_sources(settings, sources)


def _check_key_pairs(keys: tuple[str, ...], pull: PullSettings, sources: SettingsSources) -> Iterator[SfnError]:
    for pair in _KEY_PAIRS:
        given = [key for key in pair if getattr(pull, key) is not None]
        for key in pair:
            if given and key not in given:
                yield SfnError(
                    sources.location_of((*keys, key)),
                    expected=f"a value, as {given[0]} is set",
                    found="none",
                    remedy=f"set it there or as {variable_name((*keys, key))}",
                )


def _check_single_login(keys: tuple[str, ...], pull: PullSettings, sources: SettingsSources) -> Iterator[SfnError]:
    first, *more = [key for key in _LOGIN_KEYS if getattr(pull, key) is not None] or [""]
    for key in more:
        yield SfnError(
            sources.location_of((*keys, key)),
            expected="one way to say who asks",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )


def _check_competing_sources(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """A message comes to one of those who share them: each source would miss what the other has."""
    for (name, first), (other, second) in combinations(settings.pull.items(), 2):
        if first.addresses & second.addresses and (key := _shared_key(first, second)) is not None:
            yield SfnError(
                sources.location_of(("pull", other, key)),
                expected=f"another than that of [pull.{name}]",
                found=f"{getattr(second, key)}: they would take each other's messages",
                remedy="name another one, or make the two sections one",
            )


def _shared_key(first: PullSettings, second: PullSettings) -> str | None:
    """The key that has two sources of one server share messages."""
    match (first.stream, first.durable), (second.stream, second.durable):
        case (None, None), (None, None):
            return "queue" if first.queue == second.queue and subjects_overlap(first.subject, second.subject) else None
        case (str(), str()) as one, another if one == another:
            return "durable"
        case _:
            return None
