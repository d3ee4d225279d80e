"""What senders say, turned into hints: one file a dialect, one line in `DIALECTS`.

A dialect is a pair of pure functions over one event. It imports neither another dialect nor this module: it names in
a protocol of its own what it needs of an `Event`. All events of a request are decoded, or none is.

Polaris' notifications stand beside the table: their path says what they are, one a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from sfn.dialects import own, polaris
from sfn.errors import Rejected
from sfn.words import CatalogName, Hint

MAX_EVENTS: Final = 1_000
"""Most events of one request."""
LOGGED: Final = 4_096
"""Bytes of an event that are kept, for whoever asks what was told of a table last."""

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case, in the order of arrival."""

_T = TypeVar("_T")
_ONE: Final = msgspec.json.Decoder()
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Sender:
    """A configured origin of events, after its secret was checked.

    Attributes:
        name: as the configuration calls it.
        catalogs: the catalogs that it may speak for: its own name of each, and ours.
    """

    name: str
    catalogs: Mapping[str, str]


class Arrived(NamedTuple):
    """A request whose sender is known.

    Attributes:
        path: of the request, percent-encoded as it came, without a query.
        headers: of the request.
        body: all of it.
        sender: who sent it.
    """

    path: str
    headers: Headers
    body: bytes
    sender: Sender


class Event(NamedTuple):
    """One event of a request: what a dialect is given.

    Attributes:
        request: what it came in.
        content: the JSON object.
        body: its bytes as they arrived, the first `LOGGED`: what waits for the disk must fit into memory.
        at: the event's place in the body, a JSON pointer as URI fragment (RFC 6901, section 6).
    """

    request: Arrived
    content: Mapping[str, object]
    body: bytes
    at: str

    @property
    def sender(self) -> str:
        """The sender's name."""
        return self.request.sender.name

    def catalog(self, theirs: str | None, at: str) -> str:
        """Our name of the catalog that the sender calls `theirs`; None is the only one it speaks for.

        Args:
            theirs: the sender's name of it.
            at: where that was said.

        Raises:
            Rejected: 422, where the sender has no such catalog, or several and named none.
        """
        catalogs = self.request.sender.catalogs
        if theirs is None and len(catalogs) == 1:
            return next(iter(catalogs.values()))
        if theirs is not None and theirs in catalogs:
            return catalogs[theirs]
        raise Rejected(
            at,
            status=422,
            expected=f"one of {', '.join(catalogs)}" if catalogs else "a sender with a catalog",
            found="none" if theirs is None else "another one",
        )


@dataclass(frozen=True, slots=True)
class Dialect:
    """One sender's event format.

    Attributes:
        name: for logs and metrics.
        recognises: whether an event is of this format, whether or not its fields are right.
        hints: what a recognised event says, nothing where it is of no concern; raises `Rejected` with 422.
    """

    name: str
    recognises: Callable[[Event], bool]
    hints: Callable[[Event], tuple[Hint, ...]]


OWN: Final = "own"
DIALECTS: Final[tuple[Dialect, ...]] = (Dialect(OWN, own.recognises, own.hints),)
"""In the order in which they are asked: the most telling first, our own last."""


POLARIS: Final = "polaris"
"""The dialect of notifications: it has paths of its own, so nothing need be recognised."""
NAMES: Final = (*(dialect.name for dialect in DIALECTS), POLARIS)
"""Of all dialects."""


class Decoded(NamedTuple):
    """What a request says.

    Attributes:
        hints: in the order of the events.
        ignored: events that are understood and of no concern.
        dialect: the format's name; of several that of the last event, None without any.
    """

    hints: tuple[Hint, ...]
    ignored: int
    dialect: str | None = None


def decode(request: Arrived, told: Collection[str] = ()) -> Decoded:
    """The hints of a request: of a notification where the path is one's, else of one event or an array of events.

    Args:
        request: what arrived.
        told: our names of catalogs that nobody can ask: what events leave out of them nobody will ever know.

    Raises:
        Rejected: 400 not JSON (RFC 8259) or nested too deeply, 415 no known format, 422 a known format with a wrong
            field, too many events, or one that says too little of a `told` catalog. Of a notification 400 for all of
            this, and 404 for a catalog that the sender does not have. `where` points at the culprit.
    """
    address = polaris.addressed(request.path)
    return _events(request, told) if address is None else _notification(request, address)


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
    table = polaris.named(address, sender.catalogs)
    content = _json(_ONE, request.body, "#")
    told = polaris.hints(table, sender.name, content, request.body[:LOGGED])
    return Decoded(told, int(not told), POLARIS)


def _events(request: Arrived, told: Collection[str]) -> Decoded:
    sender, body = request.sender, request.body
    if len(sender.catalogs) == 1 and len(body) <= LOGGED:
        hint = own.at_once(body, sender.name, *sender.catalogs.values())
        if hint is not None:
            _check_told((hint,), told, "#")
            return Decoded((hint,), 0, OWN)
    hints: list[Hint] = []
    ignored, name = 0, None
    for event in _split(request):
        dialect = _dialect(event)
        said = dialect.hints(event)
        _check_told(said, told, event.at)
        hints.extend(said)
        ignored += not said
        name = dialect.name
    return Decoded(tuple(hints), ignored, name)


def _check_told(hints: Iterable[Hint], told: Collection[str], at: str) -> None:
    """Raise `Rejected` where a catalog would have to be asked that nobody can ask."""
    for hint in hints:
        is_news = hint.floor is not None or hint.drop or hint.renamed_to is not None or hint.renamed_from is not None
        if hint.subject.catalog in told and not is_news:
            expected = f"metadata_location, as nobody can ask {hint.subject.catalog} for it"
            raise Rejected(at, status=422, expected=expected, found=f"none for {hint.subject}")


def _dialect(event: Event) -> Dialect:
    for dialect in DIALECTS:
        if dialect.recognises(event):
            return dialect
    raise _unknown(event.at)


def _split(request: Arrived) -> Iterator[Event]:
    body = request.body
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        yield _event(request, body, "#")
        return
    parts = _json(_MANY, body, "#")
    if len(parts) > MAX_EVENTS:
        raise Rejected("#", status=422, expected=f"at most {MAX_EVENTS} events", found=str(len(parts)))
    for index, part in enumerate(parts):
        yield _event(request, bytes(part), f"#/{index}")


def _event(request: Arrived, body: bytes, at: str) -> Event:
    content = _json(_ONE, body, at)
    if not isinstance(content, dict):
        raise _unknown(at)
    return Event(request, content, body[:LOGGED], at)


def _json(decoder: msgspec.json.Decoder[_T], body: bytes, at: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(at, status=400, expected="JSON in UTF-8", found=str(error)) from error
    except RecursionError as error:
        raise Rejected(at, status=400, expected="JSON", found="too many levels of nesting") from error


def _unknown(at: str) -> Rejected:
    return Rejected(
        at,
        status=415,
        expected="an event in a known format",
        found="something else",
        remedy='our own format is an object with "namespace" and "name"',
    )
