"""How far a refusal of a store reaches: one table, or everything."""

from __future__ import annotations

import pytest

from sfn.store.denials import ASKED, KEPT, SETTLED, STALE, WITNESSES, Denials, Reach

A, B, C = (f"s3://b/{table}/metadata/_sfn/x.ver" for table in "abc")


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


def reach(denials: Denials, key: str = A, verb: str = "write", *, elsewhere: bool | None = None) -> Reach:
    denials.denied(verb, key)
    return denials.reach(verb, key, elsewhere=elsewhere)


def test_a_refusal_is_the_stores_until_a_table_is_served(denials: Denials, seconds: Seconds) -> None:
    denials.permitted("write", B)
    seconds.now += 1
    assert reach(denials) is Reach.STORE
    seconds.now += 1
    denials.permitted("write", B)
    assert reach(denials) is Reach.TABLE


def test_a_store_that_refuses_everything_never_reaches_one_table(denials: Denials, seconds: Seconds) -> None:
    denials.permitted("write", B)
    for turn in range(100):
        seconds.now += SETTLED
        assert reach(denials, (A, B, C)[turn % 3]) is Reach.STORE


def test_the_answer_of_a_witness_decides_at_once(denials: Denials) -> None:
    assert reach(denials, elsewhere=True) is Reach.TABLE
    assert reach(denials, elsewhere=False) is Reach.STORE


def test_a_table_that_alone_is_refused_for_long_is_refused_for_good(denials: Denials, seconds: Seconds) -> None:
    found = []
    for _ in range(4):
        found.append(reach(denials, elsewhere=True))
        seconds.now += SETTLED
    assert found == [Reach.TABLE, Reach.TABLE, Reach.LASTING, Reach.LASTING]


def test_without_witnesses_others_that_are_served_tell_the_same(denials: Denials, seconds: Seconds) -> None:
    found = []
    for _ in range(4):
        found.append(reach(denials))
        seconds.now += SETTLED
        denials.permitted("write", B)
    assert found == [Reach.STORE, Reach.TABLE, Reach.LASTING, Reach.LASTING]


def test_the_end_of_an_outage_that_has_not_reached_every_table_makes_no_dead_letter(
    denials: Denials, seconds: Seconds
) -> None:
    """The first table that is served again says nothing yet about one that is refused a while longer."""
    reach(denials, elsewhere=False)
    seconds.now += 10 * SETTLED
    assert reach(denials, elsewhere=False) is Reach.STORE
    seconds.now += 1
    assert reach(denials, elsewhere=True) is Reach.TABLE
    seconds.now += SETTLED - 2
    assert reach(denials, elsewhere=True) is Reach.TABLE
    denials.permitted("write", A)
    assert reach(denials) is Reach.STORE


def test_the_begin_of_an_outage_that_has_not_reached_every_table_makes_no_dead_letter(
    denials: Denials, seconds: Seconds
) -> None:
    assert reach(denials, elsewhere=True) is Reach.TABLE
    seconds.now += SETTLED
    assert reach(denials, elsewhere=True) is Reach.TABLE
    for _ in range(10):
        seconds.now += SETTLED / 2
        assert reach(denials, elsewhere=False) is Reach.STORE
    assert reach(denials, elsewhere=True) is Reach.TABLE


def test_an_attempt_that_asks_twice_is_one_refusal(denials: Denials, seconds: Seconds) -> None:
    """Credentials that are refused are renewed, and the same is asked once more."""
    reach(denials)
    seconds.now += 60
    denials.permitted("write", B)
    seconds.now += 10
    denials.denied("write", A)
    seconds.now += 1
    assert reach(denials) is Reach.TABLE


def test_a_table_that_was_refused_long_ago_begins_anew(denials: Denials, seconds: Seconds) -> None:
    reach(denials)
    seconds.now += STALE + 1
    denials.permitted("write", B)
    seconds.now += 1
    assert reach(denials) is Reach.STORE


def test_no_answer_takes_nothing_back(denials: Denials, seconds: Seconds) -> None:
    while reach(denials, elsewhere=True) is not Reach.LASTING:
        seconds.now += SETTLED
    seconds.now += SETTLED
    assert reach(denials, elsewhere=None) is Reach.LASTING
    assert reach(denials, elsewhere=False) is Reach.STORE


@pytest.mark.parametrize(
    ("verb", "key"),
    [
        ("read", B),
        ("write", "s3://b/b/metadata/version-hint.text"),
        ("write", "s3://b/b/metadata/00001-x.metadata.json"),
        ("write", A),
    ],
    ids=["another verb", "hints", "metadata files", "the same folder"],
)
def test_another_verb_or_kind_of_file_is_no_witness(denials: Denials, verb: str, key: str) -> None:
    reach(denials)
    denials.permitted(verb, key)
    assert denials.denied("write", A) == []
    assert denials.reach("write", A, elsewhere=None) is Reach.STORE


def test_witnesses_are_the_last_that_were_served_and_not_refused_since(denials: Denials) -> None:
    folders = [f"s3://b/{number}/metadata/_sfn/x.ver" for number in range(WITNESSES + 2)]
    for key in folders:
        denials.permitted("write", key)
    assert denials.denied("write", A) == folders[: -ASKED - 1 : -1]
    for key in folders[1:]:
        denials.denied("write", key)
    assert denials.denied("write", A) == []
    denials.permitted("write", B)
    assert denials.denied("write", A) == [B]


def test_what_is_remembered_has_an_end(denials: Denials, seconds: Seconds) -> None:
    for number in range(KEPT + 1):
        denials.denied("write", f"s3://b/{number}/x.ver")
    seconds.now += SETTLED
    assert reach(denials, "s3://b/0/x.ver", elsewhere=True) is Reach.TABLE
    seconds.now += SETTLED
    assert reach(denials, "s3://b/0/x.ver", elsewhere=True) is Reach.TABLE
    assert denials.reach("write", f"s3://b/{KEPT}/x.ver", elsewhere=None) is Reach.STORE
