"""What differs is told to the service, which looks for itself and writes the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sfn.cli.access import Voice, senders
from sfn.cli.options import Flags
from sfn.cli.service import Service
from sfn.errors import SfnError
from sfn.spark.audit.outcome import Hinted

BATCH: Final = 1_000
"""Events in one request, as many as the service takes."""
TRIES: Final = 3
"""Requests in a row that the service does not take until it is asked no more."""


class Teller:
    """Posts hints as events, as a configured sender.

    Where the service takes none again and again it is asked no more: what is not told of is in the report all the same,
    and the next audit finds it.

    Args:
        voices: by catalog.

    Attributes:
        told: hints that were taken, or that were known already.
        ignored: those that the service passes over: its configuration leaves the tables out, or their catalog retired.
        error: why the first of those were not taken that were not.
    """

    def __init__(self, voices: Mapping[str, Voice]) -> None:
        self._voices = voices
        self._refused = 0
        self.told = self.ignored = 0
        self.error = ""

    def tell(self, hints: Iterable[Hinted]) -> int:
        """Tell of some tables; how many of these the service was not told of. It raises nothing."""
        by_catalog = defaultdict[str, list[Hinted]](list)
        for hint in hints:
            by_catalog[hint.catalog].append(hint)
        return sum(
            self._post(self._voices[catalog], its[start : start + BATCH])
            for catalog, its in by_catalog.items()
            for start in range(0, len(its), BATCH)
        )

    def _post(self, voice: Voice, hints: Sequence[Hinted]) -> int:
        if self._refused >= TRIES:
            return len(hints)
        events = [_event(voice, hint) for hint in hints]
        try:
            with Service(voice.access) as service:
                taken = service.tell(events)
        except SfnError as error:
            self._refused += 1
            self.error = self.error or str(error)
            return len(hints)
        self._refused = 0
        self.told += taken.accepted + taken.duplicates
        self.ignored += taken.ignored
        return 0


def voices(flags: Flags, catalogs: Iterable[str], sender: str | None) -> dict[str, Voice]:
    """How the service is told of each catalog's tables.

    Raises:
        Misconfigured: no sender may.
    """
    return {catalog: senders(flags, catalog, sender) for catalog in catalogs}


def _event(voice: Voice, hint: Hinted) -> Mapping[str, object]:
    event: dict[str, object] = {"namespace": hint.namespace, "name": hint.name}
    said = {"catalog": voice.theirs, "metadata_location": hint.metadata_location}
    return event | {key: text for key, text in said.items() if text is not None}
