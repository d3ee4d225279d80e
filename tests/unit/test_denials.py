"""Whose trouble a missing permission is."""

from __future__ import annotations

import pytest

from sfn.errors import Scope
from sfn.store.denials import KEPT, SETTLED, Denials


class Seconds:
    """A clock to turn by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def denials(seconds: Seconds) -> Denials:
    return Denials(seconds)


def test_what_is_denied_everywhere_is_never_a_tables_trouble(denials: Denials, seconds: Seconds) -> None:
    denials.permitted("write", "s3://b/before")
    for turn in range(100):
        seconds.now += SETTLED
        assert denials.denied("write", f"s3://b/{turn % 3}") is Scope.STORE


def test_what_is_permitted_elsewhere_long_after_is_denied_to_one_table(denials: Denials, seconds: Seconds) -> None:
    assert denials.denied("write", "s3://b/a") is Scope.STORE
    seconds.now += SETTLED
    denials.permitted("write", "s3://b/b")
    assert denials.denied("write", "s3://b/a") is Scope.STORE
    seconds.now += SETTLED
    assert denials.denied("write", "s3://b/a") is Scope.TABLE


def test_the_end_of_a_mistake_that_has_not_reached_all_of_a_service_tells_nothing(
    denials: Denials, seconds: Seconds
) -> None:
    denials.denied("write", "s3://b/a")
    seconds.now += 10 * SETTLED
    denials.permitted("write", "s3://b/b")
    assert denials.denied("write", "s3://b/a") is Scope.STORE
    seconds.now += SETTLED - 1
    assert denials.denied("write", "s3://b/a") is Scope.STORE
    denials.permitted("write", "s3://b/a")


def test_a_change_that_has_not_reached_all_of_a_service_tells_nothing(denials: Denials, seconds: Seconds) -> None:
    denials.denied("write", "s3://b/a")
    seconds.now += SETTLED - 1
    denials.permitted("write", "s3://b/b")
    seconds.now += SETTLED
    assert denials.denied("write", "s3://b/a") is Scope.STORE


def test_each_verb_is_judged_by_itself(denials: Denials, seconds: Seconds) -> None:
    denials.denied("write", "s3://b/a")
    seconds.now += SETTLED
    denials.permitted("read", "s3://b/b")
    assert denials.denied("write", "s3://b/a") is Scope.STORE


def test_what_was_permitted_since_begins_anew(denials: Denials, seconds: Seconds) -> None:
    denials.denied("write", "s3://b/a")
    seconds.now += SETTLED
    denials.permitted("write", "s3://b/a")
    assert denials.denied("write", "s3://b/a") is Scope.STORE


def test_what_is_remembered_has_an_end(denials: Denials, seconds: Seconds) -> None:
    for number in range(KEPT + 1):
        denials.denied("write", f"s3://b/{number}")
    seconds.now += SETTLED
    denials.permitted("write", "s3://b/elsewhere")
    for number in (KEPT, 0):
        assert denials.denied("write", f"s3://b/{number}") is Scope.STORE
    seconds.now += SETTLED
    assert denials.denied("write", "s3://b/0") is Scope.STORE
    assert denials.denied("write", f"s3://b/{KEPT}") is Scope.TABLE
