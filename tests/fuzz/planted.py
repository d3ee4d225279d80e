"""A target with an error in it: what begins with three letters breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def seeds() -> Iterable[bytes]:
    """Nothing that breaks it."""
    return [b"b", b"bu"]


def run(data: bytes) -> None:
    """Raises for what begins with `bug`."""
    if data[:1] == b"b" and data[1:2] == b"u" and data[2:3] == b"g":
        raise LookupError("found it")


def mutated(data: bytes, longest: int, _number: int, otherwise: Callable[[bytes, int], bytes]) -> bytes:
    """The input with its bytes changed."""
    return otherwise(data, longest)
