"""What each event comes to, as `docs/reference/event-formats.md` shows it: found by decoding a sample."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName
from sfn.formats.decode import FORMAT_NAMES, DecodedRequest, decode
from sfn.formats.event import EventRequest
from tests.dialects.samples import Sample, by_dialect
from tests.support.pages import Shown

MODULE: Final = "tests.dialects"
TITLES: Final = {
    "polaris": "Apache Polaris' notifications",
    "polaris-events": "Apache Polaris' events",
    "polaris-webhook": "Apache Polaris' webhook",
    "lakekeeper": "Lakekeeper",
    "nessie": "Nessie",
    "glue": "AWS Glue",
    "iceberg": "Iceberg's events endpoint",
    "reports": "Iceberg's metrics reports",
    "cloudevents": "CloudEvents",
    "own": "Our own format",
}

_BIRTHS: Final = {
    TableOrigin.CREATE: "check the table: it is new",
    TableOrigin.REGISTER: "check the table: its metadata existed before",
}


def outcome(sample: Sample) -> str:
    """What a sample comes to, in words."""
    request = EventRequest(sample.path, sample.headers, json.dumps(sample.content).encode(), sample.sender)
    return _words(decode(request))


def page() -> Shown:
    """The tables of all dialects, in the order in which they are recognised."""
    samples = by_dialect()
    tables = "\n".join(f"`{name}`: {TITLES[name]}\n\n{_table(samples[name])}" for name in FORMAT_NAMES)
    return Shown("docs/reference/event-formats.md", MODULE, f"\n{tables}\n")


def _words(said: DecodedRequest) -> str:
    if said.unmapped_events:
        return "ignored, and counted as `unmapped`"
    match said.notifications:
        case ():
            return "ignored"
        case (hint,):
            return _of_one(hint)
        case _:
            return "check both tables: one was renamed to the other"


def _of_one(hint: Notification) -> str:
    if isinstance(hint.subject, CatalogName):
        return "sweep the catalog"
    if hint.drop:
        return f"check the table: it was dropped{' with its files' if hint.purge else ''}"
    return "check the table" if hint.origin is None else _BIRTHS[hint.origin]


def _table(samples: Iterable[Sample]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in _lines(samples))


def _lines(samples: Iterable[Sample]) -> Iterator[tuple[str, str]]:
    yield "event", "result"
    yield "---", "---"
    for words, alike in groupby(samples, outcome):
        yield ", ".join(sample.title for sample in alike), words
