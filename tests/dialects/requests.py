"""Requests of senders, what becomes of them, and strategies that draw names and documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import Rejected
from sfn.formats.decode import MAX_STORED_EVENT, DecodedRequest, decode
from sfn.formats.event import MAX_LEVELS, MAX_LOCATION, MAX_NAME, EventRequest, Headers, Sender

GOLDEN: Final = Path(__file__).parent / "golden"
STRUCTURED: Final = ((b"content-type", b"application/cloudevents+json; charset=utf-8"),)
BATCH: Final = ((b"content-type", b"application/cloudevents-batch+json"),)

WAREHOUSE: Final = "5f0c2a9e-7d1b-11f0-8a3e-0242ac120002"
UUID: Final = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
ACCOUNT: Final = "123456789012/eu-central-1"

SENDER: Final = Sender("catalogs", {"theirs": "prod", WAREHOUSE: "lake", "main": "git", ACCOUNT: "aws"})
"""It speaks for a catalog of each kind."""
ONE: Final = Sender("one", {"prod": "prod"})
"""It has a single catalog, under our own name of it."""

names: Final = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=30)
levels: Final = st.lists(names, max_size=4)
identifiers: Final = st.fixed_dictionaries({"namespace": levels, "name": names})

scalars: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["a\x1fb", "\x7f", "main", "x" * 600, "AFTER_DROP_TABLE", "1.0"])
)
anything: Final = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
"""Any JSON that both sides can read."""


def golden(name: str) -> bytes:
    """A sample, as it would arrive."""
    return (GOLDEN / f"{name}.json").read_bytes().rstrip(b"\n")


def document(name: str) -> dict[str, Any]:
    """What a sample holds."""
    content: dict[str, Any] = json.loads(golden(name))
    return content


def decoded(body: object, sender: Sender = SENDER, headers: Headers = (), path: str = "/v1/events") -> DecodedRequest:
    """What is said by a body, or by what makes one."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode(EventRequest(path, headers, raw, sender))


def hints(body: object, sender: Sender = SENDER, headers: Headers = ()) -> tuple[Notification, ...]:
    """The hints, where no event is of no concern."""
    said = decoded(body, sender, headers)
    assert (said.ignored, said.unmapped_events) == (0, 0)
    return said.notifications


def outcome(body: object, sender: Sender = SENDER, headers: Headers = ()) -> tuple[str | None, int, int, int]:
    """The dialect, and how many hints, ignored and unmapped events there are."""
    said = decoded(body, sender, headers)
    return said.event_format, len(said.notifications), said.ignored, said.unmapped_events


def refusal_of(body: object, sender: Sender = SENDER, headers: Headers = ()) -> Rejected | None:
    """Anything else that is raised fails the test; so does a hint that is none."""
    try:
        said = decoded(body, sender, headers)
    except Rejected as refusal:
        return refusal
    for hint in said.notifications:
        assert_well_formed(hint, sender.catalogs)
    assert all(plain(name, 2 * MAX_NAME + 1) for name in said.unmapped_catalogs)
    return None


def refused(body: object, sender: Sender = SENDER, headers: Headers = ()) -> tuple[int, str]:
    """Status and place of a refusal."""
    refusal = refusal_of(body, sender, headers)
    assert refusal is not None
    assert str(refusal)
    return refusal.status, refusal.where


def plain(text: str, most: int) -> bool:
    """Whether a text is neither empty nor too long, and without control characters."""
    return 0 < len(text) <= most and not any(character in text for character in _CONTROLS)


def assert_well_formed(hint: Notification, catalogs: Mapping[str, str]) -> None:
    """Nothing in a hint is what a name, an id or a location can't be."""
    for name in (hint.subject, hint.renamed_to, hint.renamed_from):
        assert name is None or name.catalog in catalogs.values()
        if isinstance(name, TableIdentifier):
            assert plain(name.name, MAX_NAME)
            assert len(name.namespace) <= MAX_LEVELS
            assert all(plain(level, MAX_NAME) for level in name.namespace)
    if hint.event_id is not None:
        first, *others = hint.event_id.split("\x1f")
        assert plain(first, MAX_NAME)
        assert len(others) <= 1
    assert hint.min_metadata_location is None or plain(hint.min_metadata_location, MAX_LOCATION)
    assert hint.uuid is None or plain(hint.uuid, MAX_NAME)
    assert len(hint.body) <= MAX_STORED_EVENT
    assert hint.drop or not hint.purge
    assert hint.renamed_to != hint.subject
    assert not isinstance(hint.subject, CatalogName) or hint.is_unspecific


_CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]
"""As `sfn.formats.event.CONTROL_CHARACTERS` says it to a regular expression."""


@st.composite
def nearly(draw: st.DrawFn, content: object) -> object:
    """A document with some of its values left out, replaced, added to or wrapped."""
    for _ in range(draw(st.integers(0, 3))):
        content = draw(_once(content))
    return content


@st.composite
def _once(draw: st.DrawFn, content: object) -> object:
    """The document with one change, somewhere in it."""
    if isinstance(content, dict) and content and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(content)))
        return content | {key: draw(_once(content[key]))}
    if isinstance(content, list) and content and draw(st.booleans()):
        index = draw(st.integers(0, len(content) - 1))
        return [*content[:index], draw(_once(content[index])), *content[index + 1 :]]
    if isinstance(content, dict) and content and draw(st.booleans()):
        left_out = draw(st.sampled_from(sorted(content)))
        return {key: value for key, value in content.items() if key != left_out}
    if isinstance(content, dict) and draw(st.booleans()):
        return content | draw(st.dictionaries(st.text(max_size=8), anything, max_size=3))
    return draw(anything)
