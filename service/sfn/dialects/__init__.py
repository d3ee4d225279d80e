"""What senders say, turned into hints: one file a dialect, one line in `DIALECTS`.

A dialect is a pair of pure functions over one event. It imports neither another dialect nor this module, but what
belongs to none: `event`, `fields`, `outcome` and `envelope`. All events of a request are decoded, or none is.

Polaris' notifications stand beside the table: their path says what they are, one a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sfn.dialects import (
    cloudevents,
    envelope,
    glue,
    iceberg,
    lakekeeper,
    nessie,
    own,
    polaris,
    polaris_events,
    polaris_webhook,
    reports,
    splitting,
)
from sfn.dialects.envelope import Mode
from sfn.dialects.event import Arrived, Event, Headers, Sender
from sfn.dialects.fields import too_deep
from sfn.dialects.outcome import Said, Unmapped
from sfn.dialects.splitting import LOGGED, MAX_EVENTS, unknown
from sfn.errors import Rejected
from sfn.words import CatalogName, Hint

__all__ = [
    "DIALECTS",
    "LOGGED",
    "MAX_EVENTS",
    "MAX_HINTS",
    "NAMES",
    "OWN",
    "POLARIS",
    "Arrived",
    "Decoded",
    "Dialect",
    "Event",
    "Headers",
    "Sender",
    "decode",
    "self_contained",
    "unread",
]

MAX_HINTS: Final = 2 * MAX_EVENTS
"""Most hints of one request: as many as there are if each event is a rename."""

_THEIRS: Final = 8
"""Most names of unmapped catalogs that are told of a request."""
_FLAT: Final = 8
"""Levels of a document that has lists and objects of texts in it, and room for what a later version adds."""
_SCHEMAS: Final = 100
"""Levels of one that carries metadata: each struct in a schema is three, so that some thirty fit into one another."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One sender's event format.

    Attributes:
        name: for logs and metrics, and what a sender is pinned to.
        recognises: whether an event is of this format, whether or not its fields are right.
        hints: what a recognised event says, nothing where it is of no concern; raises `Rejected` with 422.
        depth: most levels of arrays and objects in each other, of which the event itself is the first.
    """

    name: str
    recognises: Callable[[Event], bool]
    hints: Callable[[Event], Said]
    depth: int


OWN: Final = "own"
POLARIS: Final = "polaris"
"""The dialect of notifications, which have paths of their own: elsewhere they are recognised to be refused."""
DIALECTS: Final[tuple[Dialect, ...]] = (
    Dialect(POLARIS, polaris.recognises, polaris.astray, _SCHEMAS),
    Dialect("lakekeeper", lakekeeper.recognises, lakekeeper.hints, _SCHEMAS),
    Dialect("polaris-webhook", polaris_webhook.recognises, polaris_webhook.hints, _FLAT),
    Dialect("polaris-events", polaris_events.recognises, polaris_events.hints, _FLAT),
    # What nobody reads may be as deep as what Lakekeeper's carry.
    Dialect("cloudevents", cloudevents.recognises, cloudevents.carrying(own.recognises, own.hints), _SCHEMAS),
    Dialect("glue", glue.recognises, glue.hints, _FLAT),
    Dialect("iceberg", iceberg.recognises, iceberg.hints, _SCHEMAS),
    # Other content than tables, and what operators add to events, is of shapes that nobody knows.
    Dialect("nessie", nessie.recognises, nessie.hints, 2 * _FLAT),
    # A scan's filter is as deep as it has terms.
    Dialect("reports", reports.recognises, reports.hints, _SCHEMAS),
    Dialect(OWN, own.recognises, own.hints, _FLAT),
)
"""In the order in which they are asked: the most telling first, our own last."""
NAMES: Final = tuple(dialect.name for dialect in DIALECTS)
"""Of all dialects."""

_BY_NAME: Final = {dialect.name: (dialect,) for dialect in DIALECTS}


class Decoded(NamedTuple):
    """What a request says.

    Attributes:
        hints: in the order of the events.
        ignored: events that are understood and of no concern.
        dialect: the format's name; of several that of the last event, None without any.
        unmapped: events of catalogs of which nobody said which of ours they are.
        theirs: what the events call these, some of them.
    """

    hints: tuple[Hint, ...]
    ignored: int
    dialect: str | None = None
    unmapped: int = 0
    theirs: tuple[str, ...] = ()


def decode(request: Arrived, told: Collection[str] = ()) -> Decoded:
    """The hints of a request: of a notification where the path is one's, else of one event or an array of events.

    Args:
        request: what arrived.
        told: our names of catalogs that nobody can ask: what events leave out of them nobody will ever know.

    Raises:
        Rejected: 400 not JSON (RFC 8259) or nested too deeply, 415 no known format or not the one that the sender is
            pinned to, 422 a known format with a wrong field, too many events, or one that says too little of a `told`
            catalog. Of a notification 400 for all of this but 415, and 404 for a catalog that the sender does not have.
            `where` points at the culprit.
    """
    address = polaris.addressed(request.path)
    return _events(request, told) if address is None else _notification(request, address)


def self_contained(request: Arrived) -> Arrived:
    """A request of which path, content type and body say all that it said, for whoever keeps no more of it.

    It is another one where a CloudEvent's attributes came as headers, unless these can't be read.
    """
    try:
        if polaris.addressed(request.path) is not None or envelope.mode(request.headers) is not Mode.BINARY:
            return request
        body = envelope.gathered(request.headers, request.body, "headers")
    except Rejected:
        return request
    return request._replace(headers=[(b"content-type", envelope.STRUCTURED)], body=body)


def unread(path: str, sender: Sender) -> tuple[Hint, ...]:
    """What makes up for a body that was too large to be read, which is none the less told of.

    A notification's path names the table; what events told of, a walk over the sender's catalogs finds.

    Args:
        path: of the request, percent-encoded.
        sender: who sent it.
    """
    address = polaris.addressed(path)
    if address is None:
        return tuple(Hint(CatalogName(ours), sender.name) for ours in dict.fromkeys(sender.catalogs.values()))
    try:
        return (Hint(polaris.named(address, sender.catalogs), sender.name),)
    except Rejected:
        return ()


def _notification(request: Arrived, address: polaris.Address) -> Decoded:
    sender = request.sender
    if sender.dialect not in {None, POLARIS}:
        raise unknown(sender, "#")
    table = polaris.named(address, sender.catalogs)
    content = splitting.parsed(request.body)
    _check_depth(content, _SCHEMAS, "#", status=400)
    told = polaris.hints(table, sender.name, content, request.body[:LOGGED])
    return Decoded(told, int(not told), POLARIS)


def _events(request: Arrived, told: Collection[str]) -> Decoded:
    sender, body = request.sender, request.body
    mode = envelope.mode(request.headers)
    is_ours = mode is Mode.PLAIN and (sender.dialect is None or sender.dialect == OWN)
    if is_ours and len(sender.catalogs) == 1 and len(body) <= LOGGED:
        hint = own.at_once(body, sender.name, *sender.catalogs.values())
        if hint is not None:
            _check_told((hint,), told, "#")
            return Decoded((hint,), 0, OWN)
    return _each(request, mode, told)


def _each(request: Arrived, mode: Mode, told: Collection[str]) -> Decoded:
    asked = DIALECTS if request.sender.dialect is None else _BY_NAME[request.sender.dialect]
    hints: list[Hint] = []
    ignored, unmapped, name = 0, 0, None
    theirs: dict[str, None] = {}
    for event in splitting.split(request, mode):
        dialect = next((one for one in asked if one.recognises(event)), None)
        if dialect is None:
            raise unknown(request.sender, event.at)
        name = dialect.name
        _check_depth(event.content, dialect.depth, event.at)
        said = dialect.hints(event)
        if isinstance(said, Unmapped):
            unmapped += 1
            if len(theirs) < _THEIRS:
                theirs[said.theirs] = None
            continue
        _check_told(said, told, event.at)
        hints.extend(said)
        ignored += not said
        if len(hints) > MAX_HINTS:
            raise Rejected("#", status=422, expected=f"events of at most {MAX_HINTS} changes", found="more")
    return Decoded(tuple(hints), ignored, name, unmapped, tuple(theirs))


def _check_depth(content: object, most: int, at: str, *, status: int = 422) -> None:
    if too_deep(content, most):
        raise Rejected(at, status=status, expected=f"at most {most} levels of nesting", found="more")


def _check_told(hints: Iterable[Hint], told: Collection[str], at: str) -> None:
    """Raise `Rejected` where a catalog would have to be asked that nobody can ask."""
    for hint in hints:
        is_news = hint.floor is not None or hint.drop or hint.renamed_to is not None or hint.renamed_from is not None
        if hint.subject.catalog in told and not is_news:
            expected = f"metadata_location, as nobody can ask {hint.subject.catalog} for it"
            raise Rejected(at, status=422, expected=expected, found=f"none for {hint.subject}")
