"""A target that keeps whatever it is given, many times over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

KEPT: list[bytes] = []


def seeds() -> Iterable[bytes]:
    """Something to keep."""
    return [b"x"]


def run(data: bytes) -> None:
    """Takes a MiB more each time, slowly: the fuzzer looks once a second."""
    time.sleep(0.005)
    KEPT.append(data[:1].ljust(2**20, b"x"))


def mutated(data: bytes, longest: int, _number: int, otherwise: Callable[[bytes, int], bytes]) -> bytes:
    """The input with its bytes changed."""
    return otherwise(data, longest)
