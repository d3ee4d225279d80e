"""What acceptance tests stand on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _heeded() -> Iterator[None]:
    """A shell has what runs in its background ignore SIGINT, and that would be inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
