"""The limit of open files: raised as far as may be, never lowered, and shared between listeners and work."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from sfn import limits


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("soft", [256, 512])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits.raise_limit() == limits.hard_limit() == limits.limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard


def test_a_limit_that_is_higher_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_RAISED_LIMIT", 64)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limits.raise_limit() == before[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize(("soft", "listeners", "each"), [(1024, 1, 512), (1024, 4, 128), (1024, 0, 512), (256, 99, 8)])
def test_listeners_share_half_of_all_files(soft: int, listeners: int, each: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert limits.connections_per_listener(listeners) == each
