"""The target `decode`: requests of any sender, in any way that events come.

3 bytes: which sender, what it is pinned to, which path | header lines | an empty line | body
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from sfn.errors import Rejected
from sfn.formats.decode import FORMAT_NAMES, MAX_NOTIFICATIONS, DecodedRequest, decode, notifications_for_unread
from sfn.formats.event import EventRequest, Headers, Sender
from tests.dialects.requests import BATCH, ONE, SENDER, STRUCTURED, assert_well_formed
from tests.dialects.samples import SAMPLES, Sample
from tests.fuzz.fuzzer import Loaded

SENDERS: Final = (SENDER, ONE, Sender("nobody", {}))
PINS: Final = (None, *FORMAT_NAMES)
LONGEST_REFUSAL: Final = 2_000
"""Characters: what is wrong is not repeated at length."""
PATHS: Final = (
    "/v1/events",
    "/v1/theirs/namespaces/ns1/tables/orders/notifications",
    "/v1/theirs/namespaces/a%1Fb/tables/%2e/notifications",
)
TOLD: Final = frozenset({"git"})
"""Nobody can be asked for it."""

_END: Final = b"\n\n"
_BINARY: Final = ((b"ce-specversion", b"1.0"), (b"ce-id", b"e1"), (b"ce-source", b"/ci"), (b"ce-type", b"commit"))
_LAKEKEEPER: Final = (
    *_BINARY[:2],
    *((b"ce_source", b"uri:iceberg-catalog-service:h"), (b"ce_type", b"updateTable"), (b"ce_namespace", b"a%1Fb")),
    *((b"ce_name", b"t"), (b"ce_warehouse-id", next(iter(SENDER.catalogs)).encode())),
)
_MODES: Final[tuple[Headers, ...]] = ((), STRUCTURED, BATCH, _BINARY, _LAKEKEEPER, ((b"x-polaris-event", b"x"),))
_VALUES: Final[tuple[object, ...]] = (
    *(None, True, 0, -1, 1.5, 2**63, "", "x" * 600, "a\x1fb", "\u2028", "1.0", "main", "AFTER_DROP_TABLE"),
    *([], {}, [[[[[[[[[1]]]]]]]]], {"namespace": ["a"], "name": "t"}, ["a", "b"]),
)


def seeds() -> Iterator[bytes]:
    """An event of every type, in each way; and all of them together."""
    for sample in SAMPLES:
        content = json.dumps(sample.content).encode()
        for headers in _MODES:
            body = b"[" + content + b"]" if headers is BATCH else content
            yield _packed(sample, headers, body)
    yield _packed(SAMPLES[0], (), json.dumps([sample.content for sample in SAMPLES]).encode())


def run(data: bytes) -> None:
    """Decode a request: it is refused, or its hints are well formed."""
    if (request := _unpacked(data)) is None:
        return
    notifications_for_unread(request.path, request.sender)
    for told in (frozenset[str](), TOLD):
        said = _said(request, told)
        if isinstance(said, Rejected):
            assert said.status in {400, 404, 415, 422}
            assert len(str(said)) < LONGEST_REFUSAL
            continue
        assert len(said.notifications) <= MAX_NOTIFICATIONS
        for hint in said.notifications:
            assert_well_formed(hint, request.sender.catalogs)


def mutated(data: bytes, longest: int, number: int, otherwise: Callable[[bytes, int], bytes]) -> bytes:
    """The input with its JSON changed at one place, so that it is still some; or with its bytes changed."""
    chance = Random(number)
    head, end, body = data.partition(_END)
    if not end or chance.random() < 0.2:
        return otherwise(data, longest)
    try:
        content = json.loads(body)
        changed = json.dumps(_changed(content, chance, otherwise)).encode()
    except (ValueError, RecursionError):
        return otherwise(data, longest)
    if chance.random() < 0.2:
        head = otherwise(head, max(3, longest - len(changed) - len(end)))
    made = head + end + changed
    return made if len(made) <= longest else otherwise(data, longest)


def _said(request: EventRequest, told: frozenset[str]) -> DecodedRequest | Rejected:
    try:
        return decode(request, told)
    except Rejected as refusal:
        return refusal


def _packed(sample: Sample, headers: Headers, body: bytes) -> bytes:
    choice = bytes((SENDERS.index(sample.sender), 0, PATHS.index(sample.path)))
    return choice + b"\n".join(name + b": " + value for name, value in headers) + _END + body


def _unpacked(data: bytes) -> EventRequest | None:
    head, _, body = data.partition(_END)
    if len(head) < 3:
        return None
    sender, pin, path = head[0] % len(SENDERS), head[1] % len(PINS), head[2] % len(PATHS)
    fields = (line.partition(b": ") for line in head[3:].split(b"\n") if line)
    whose = SENDERS[sender]
    pinned = Sender(whose.name, whose.catalogs, PINS[pin])
    return EventRequest(PATHS[path], [(name.lower(), value) for name, _, value in fields], body, pinned)


def _changed(content: object, chance: Random, otherwise: Callable[[bytes, int], bytes]) -> object:
    """The document with another value somewhere, one more, or one less."""
    if isinstance(content, dict) and content and chance.random() < 0.9:
        key = chance.choice(sorted(content))
        match chance.randrange(4):
            case 0:
                return {name: value for name, value in content.items() if name != key}
            case 1:
                return content | {_changed_text(key, chance, otherwise): content[key]}
            case _:
                return content | {key: _changed(content[key], chance, otherwise)}
    if isinstance(content, list) and content and chance.random() < 0.9:
        index = chance.randrange(len(content))
        one = _changed(content[index], chance, otherwise)
        return [*content[:index], *([one] * chance.randrange(3)), *content[index + 1 :]]
    if isinstance(content, str) and chance.random() < 0.7:
        return _changed_text(content, chance, otherwise)
    return _other(chance)


def _changed_text(text: str, chance: Random, otherwise: Callable[[bytes, int], bytes]) -> str:
    raw = otherwise(text.encode("utf-8", "surrogatepass"), 2 * len(text) + 8)
    return raw.decode("utf-8", "replace") if chance.random() < 0.9 else raw.decode("latin-1")


def _other(chance: Random) -> object:
    """A value of another kind, or a part of another event."""
    if chance.random() < 0.6:
        return chance.choice(_VALUES)
    donor = chance.choice(SAMPLES).content
    if isinstance(donor, dict) and chance.random() < 0.7:
        return donor[chance.choice(sorted(donor))]
    return donor


DECODE: Final = Loaded(seeds, run, mutated)
