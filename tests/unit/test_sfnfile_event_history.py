"""Which table a name has by what was told of it: whatever the order of arrival, however often."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import EventHistory, ReportedChange, TableHistory, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.sfnfile import event_history
from sfn.sfnfile.event_history import (
    MAX_TABLES,
    apply_end,
    apply_known,
    apply_location,
    current,
    history_of,
    in_event_order,
)
from sfn.sfnfile.ordering import MetadataOrder

ELSEWHERE = TableIdentifier("prod", ("n",), "elsewhere")


def pointer(number: int, uuid: str = "u") -> str:
    """A metadata location of a table."""
    return f"s3://lake/{uuid}/metadata/{number:05d}-{UUID(int=number)}.metadata.json"


def heard(*tellings: ReportedChange, told: EventHistory | None = None) -> EventHistory:
    """What is known after these, of which all but ends tell a uuid."""
    return apply_known(replace(told or EventHistory(), reported_changes=tellings))


def commit(seq: int, number: int, uuid: str = "u", birth: TableOrigin | None = None) -> ReportedChange:
    return ReportedChange(seq, pointer(number, uuid), uuid, birth)


def end(seq: int, uuid: str | None = None, to: TableIdentifier | None = None) -> ReportedChange:
    return ReportedChange(seq, uuid=uuid, is_end=True, renamed_to=to)


def now(told: EventHistory) -> tuple[str | None, str | None] | None:
    """The table that has the name, and where it stands."""
    table = current(told)
    return (table.uuid, table.metadata_location) if table is not None else None


def test_the_first_that_is_told_of_a_name_is_its_table() -> None:
    assert now(heard(commit(1, 7))) == ("u", pointer(7))
    assert now(EventHistory()) is None


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 2, 1), (2, 3, 3), (3, 1, 2)])
def test_the_newest_of_all_counts(numbers: tuple[int, ...]) -> None:
    assert now(heard(*[commit(seq, number) for seq, number in enumerate(numbers)])) == ("u", pointer(3))


def test_of_an_unknown_order_the_later_told_counts() -> None:
    first, second = "s3://lake/u/metadata/one.json", "s3://lake/u/metadata/two.json"
    told = apply_location(EventHistory(), ReportedChange(1, first, "u"), "u", MetadataOrder.NEWER)
    assert now(apply_location(told, ReportedChange(2, second, "u"), "u", MetadataOrder.UNKNOWN)) == ("u", second)
    assert now(apply_location(told, ReportedChange(0, second, "u"), "u", MetadataOrder.UNKNOWN)) == ("u", first)


@pytest.mark.parametrize("birth", list(TableOrigin))
def test_another_table_takes_the_name_by_a_birth_alone(birth: TableOrigin) -> None:
    told = heard(commit(1, 5), commit(2, 9, "v"))
    assert now(told) == ("u", pointer(5))
    assert now(heard(commit(3, 8, "v", birth), told=told)) == ("v", pointer(9, "v"))


def test_what_was_created_is_never_created_again() -> None:
    told = heard(commit(1, 5, "u", TableOrigin.CREATE), end(2, "u"))
    assert now(told) is None
    assert now(heard(commit(3, 5, "u", TableOrigin.CREATE), told=told)) is None
    assert now(heard(commit(3, 6), told=told)) is None


def test_a_table_returns_by_a_registration_that_is_not_older() -> None:
    told = heard(commit(1, 5, "u", TableOrigin.CREATE), end(2, "u"))
    assert now(heard(commit(3, 4, "u", TableOrigin.REGISTER), told=told)) is None
    assert now(heard(commit(3, 5, "u", TableOrigin.REGISTER), told=told)) == ("u", pointer(5))
    assert now(heard(commit(1, 6, "u", TableOrigin.REGISTER), told=told)) is None


def test_what_a_table_takes_along_may_begin_with_an_older_file() -> None:
    told = heard(commit(1, 5, "u", TableOrigin.CREATE), end(2, "u"))
    back = (commit(3, 4, "u", TableOrigin.REGISTER), commit(3, 5), commit(3, 6))
    assert now(heard(*back, told=told)) == ("u", pointer(6))
    assert now(heard(*back[:2], told=told)) == ("u", pointer(5))


def test_an_end_that_names_no_table_ends_the_one_that_has_the_name() -> None:
    told = heard(commit(1, 5, "u", TableOrigin.CREATE), end(2, to=ELSEWHERE))
    assert now(told) is None
    assert history_of(told, "u").renamed_to == ELSEWHERE
    assert now(heard(commit(3, 0, "v", TableOrigin.CREATE), told=told)) == ("v", pointer(0, "v"))


def test_an_end_that_names_no_table_ends_none_that_was_born_later() -> None:
    told = heard(commit(5, 5, "u", TableOrigin.CREATE))
    assert now(apply_end(told, end(4))) == ("u", pointer(5))


def test_an_end_that_names_another_table_ends_nothing() -> None:
    assert now(heard(commit(1, 5, "u", TableOrigin.CREATE), end(2, "v"))) == ("u", pointer(5))


def test_after_an_end_of_what_nobody_knew_a_commit_brings_nothing() -> None:
    assert now(heard(end(1), commit(2, 5))) is None
    assert now(heard(end(1), commit(2, 5, "u", TableOrigin.CREATE))) == ("u", pointer(5))


def test_an_end_that_overtakes_its_tables_birth_still_ends_it() -> None:
    told = heard(end(1, "u"), commit(2, 5, "u", TableOrigin.CREATE))
    assert now(told) is None
    assert now(heard(commit(3, 6, "u", TableOrigin.REGISTER), told=told)) == ("u", pointer(6))


def test_the_oldest_of_too_many_tables_is_forgotten_but_never_the_one_that_has_the_name() -> None:
    told = heard(commit(1, 0, "mine", TableOrigin.CREATE))
    for number in range(3 * MAX_TABLES):
        told = heard(commit(10 + number, 0, f"late{number}"), told=told)
    assert len(told.tables) == MAX_TABLES
    assert now(told) == ("mine", pointer(0, "mine"))
    assert history_of(told, "late0") == TableHistory("late0")


@st.composite
def residences(draw: st.DrawFn) -> tuple[list[ReportedChange], tuple[str, str] | None]:
    """What is told of a few tables that had a name one after another, each once; and who has it in the end."""
    tellings, last = [], None
    for number in range(draw(st.integers(1, 4))):
        uuid = f"u{number}"
        birth = draw(st.sampled_from(TableOrigin))
        newest = draw(st.integers(0, 3))
        tellings.append(commit(0, 0, uuid, birth))
        tellings += [commit(0, version, uuid) for version in range(1, newest + 1)]
        last = (uuid, pointer(newest, uuid))
        tellings.append(end(0, uuid))
    if draw(st.booleans()):
        return tellings[:-1], last
    return tellings, None


@given(residences(), st.data())
def test_whatever_the_order_and_however_often_the_same_table_has_the_name_in_the_end(
    told: tuple[list[ReportedChange], tuple[str, str] | None], data: st.DataObject
) -> None:
    tellings, last = told
    # Of a registration that comes twice nobody can tell whether the table came back.
    repeatable = [one for one in tellings if one.origin is not TableOrigin.REGISTER]
    again = data.draw(st.lists(st.sampled_from(repeatable), max_size=3)) if repeatable else []
    arrived = data.draw(st.permutations([*tellings, *again]))
    numbered = [replace(one, seq=seq) for seq, one in enumerate(arrived, start=1)]
    known = EventHistory()
    while numbered:
        size = data.draw(st.integers(1, len(numbered)))
        known = heard(*numbered[:size], told=known)
        # A publish that was interrupted hears the same once more.
        known = heard(*numbered[:size], told=known)
        numbered = numbered[size:]
    assert now(known) == last


def test_what_arrives_at_once_with_a_birth_is_heard_before_it() -> None:
    told = [commit(3, 4, "u", TableOrigin.REGISTER), commit(3, 6), commit(2, 1)]
    assert in_event_order(told) == [commit(2, 1), commit(3, 6), commit(3, 4, "u", TableOrigin.REGISTER)]


def test_what_says_no_uuid_is_left_to_be_heard() -> None:
    told = apply_known(EventHistory(reported_changes=(ReportedChange(1, pointer(1)), commit(2, 2), end(3))))
    assert told.reported_changes == (ReportedChange(1, pointer(1)),)
    assert now(told) is None


def test_what_was_given_up_is_doubtful() -> None:
    assert [one.is_doubtful for one in event_history.mark_doubtful([commit(1, 1), end(2)])] == [True, True]
