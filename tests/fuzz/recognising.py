"""The target `recognise`: requests that pass through a gateway, and what is read of them and of their answers.

method | line | target | line | namespace separator | line | the body, of the request and of the answer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from sfn.gateway.commits import notifications_of
from sfn.gateway.routes import (
    MAX_TABLES_PER_TRANSACTION,
    NAMED_IN_BODY,
    CatalogChange,
    UnknownTables,
    recognise_change,
    tables_of_change,
)
from sfn.gateway.streams import MAX_SCANNED, MetadataLocationScanner
from sfn.gateway.upstream import rewrite_configuration

_LINE: Final = b"\n"
_PARTS: Final = 4
_TABLE: Final = {"namespace": ["a", "b.c"], "name": "t"}
_BODIES: Final[tuple[object, ...]] = (
    {"name": "t", "schema": {"type": "struct", "fields": []}, "stage-create": False},
    {"name": "t", "stage-create": True},
    {"name": "t", "metadata-location": "s3://lake/t/metadata/00001-a.metadata.json", "overwrite": True},
    {"source": _TABLE, "destination": {"namespace": ["a"], "name": "u"}},
    {"table-changes": [{"identifier": _TABLE, "requirements": [], "updates": []}]},
    {"metadata-location": "s3://lake/t/metadata/00001-\\u00e9.metadata.json", "metadata": {"properties": {}}},
    {"defaults": {"uri": "http://catalog"}, "overrides": {"namespace-separator": "%2E", "uri": "http://catalog/"}},
)
_TARGETS: Final = (
    b"/v1/namespaces/a%1Fb/tables",
    b"/v1/p/q/namespaces/a%2Eb.c/tables/t%2Fu",
    b"/v1/p/namespaces/n/register",
    b"/v1/p/namespaces/n/tables/t/unregister",
    b"/v1/tables/rename",
    b"/v1/p%7Cw/transactions/commit",
    b"/v1/p/namespaces/n?purgeRequested=true",
    b"/v1/config",
)
_SEPARATORS: Final = (b"", b"%1F", b"%2E", b".", b"\x00", b"%")


def seeds() -> Iterator[bytes]:
    """Each kind of request with each body."""
    for number, target in enumerate(_TARGETS):
        for method in (b"POST", b"DELETE"):
            for body in _BODIES:
                separator = _SEPARATORS[number % len(_SEPARATORS)]
                yield _LINE.join((method, target, separator, json.dumps(body).encode()))


def run(data: bytes) -> None:
    """Recognise a request, name its tables, and read an answer; nothing but `UnknownTables` may come of it."""
    method, target, separator, body = _split(data)
    path, _, query = target.partition("?")
    change = recognise_change(method, path, query)
    if change is not None:
        _name(change, body, separator or None)
    _read(body)


def mutated(data: bytes, longest: int, number: int, mutate: Callable[[bytes, int], bytes]) -> bytes:
    """Another input: mostly one of its parts changes, at times for one that is known to matter."""
    chance = Random(number)
    parts = data.split(_LINE, _PARTS - 1)
    if len(parts) < _PARTS or chance.random() < 0.1:
        return mutate(data, longest)
    which = chance.randrange(_PARTS)
    known = ((b"POST", b"DELETE"), _TARGETS, _SEPARATORS, tuple(json.dumps(body).encode() for body in _BODIES))[which]
    parts[which] = chance.choice(known) if chance.random() < 0.3 else mutate(parts[which], longest // 2 or 1)
    return _LINE.join(parts)[:longest]


def _split(data: bytes) -> tuple[str, str, str, bytes]:
    method, target, separator, body, *_ = (*data.split(_LINE, _PARTS - 1), b"", b"", b"", b"")
    return method.decode("latin-1"), target.decode("latin-1"), separator.decode("latin-1"), body


def _name(change: CatalogChange, body: bytes, separator: str | None) -> None:
    try:
        named = tables_of_change(
            change, body if change.kind in NAMED_IN_BODY else b"", "prod", [separator] if separator else []
        )
    except UnknownTables:
        named = ()
    assert len(named) <= max(MAX_TABLES_PER_TRANSACTION, 2)
    assert all(name.namespace and name.name for name in named)
    told = notifications_of(change, named, "prod", "gateway", None, b"")
    assert {hint.subject for hint in told} <= {*named} or not named


def _read(body: bytes) -> None:
    for encoding in ("identity", "gzip"):
        floor, half = MetadataLocationScanner(encoding), len(body) // 2
        floor.feed(body[:half])
        floor.feed(body[half:])
        assert floor.found is None or 0 < len(floor.found) <= MAX_SCANNED
    rewrite_configuration(body, "http://catalog", "https://sfn/catalog/prod")
