"""The tables of an event-only catalog, by one event after another."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from sfn.domain.events import Notification, TableOrigin, TableReport, current_table
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLetterReason, PendingChange, PublishedPointer, TableState
from sfn.inbox.model import Job
from sfn.inbox.transitions import MAX_LOCATIONS, MAX_TABLES, on_report, tables_of

NAME, OTHER, THIRD = (TableIdentifier("prod", ("n",), name) for name in ("name", "other", "third"))
CREATE, REGISTER = TableOrigin.CREATE, TableOrigin.REGISTER


def pointer(number: int, uuid: str = "u") -> str:
    """A metadata location of a table."""
    return f"s3://lake/{uuid}/metadata/{number:05d}-{UUID(int=number)}.metadata.json"


def opaque(name: str) -> str:
    """A metadata location without a number."""
    return f"s3://lake/u/metadata/{name}.metadata.json"


def commit(
    number: int, uuid: str | None = "u", origin: TableOrigin | None = None, name: TableIdentifier = NAME
) -> Notification:
    return Notification(name, min_metadata_location=pointer(number, uuid or "u"), uuid=uuid, origin=origin)


def drop(uuid: str | None = None, name: TableIdentifier = NAME) -> Notification:
    return Notification(name, drop=True, uuid=uuid)


def renamed(uuid: str | None = None, old: TableIdentifier = NAME, new: TableIdentifier = OTHER) -> list[Notification]:
    """Both halves of a rename."""
    return [Notification(old, renamed_to=new, uuid=uuid), Notification(new, renamed_from=old, uuid=uuid)]


class Names:
    """What is known of all names."""

    def __init__(self, *events: Notification) -> None:
        self.seq = 0
        self.tables: dict[TableIdentifier, tuple[TableReport, ...]] = {}
        self.hear(*events)

    def hear(self, *events: Notification) -> Names:
        for event in events:
            self.seq += 1
            assert isinstance(event.subject, TableIdentifier)
            self.tables |= on_report(event.subject, event, self.seq, lambda name: self.tables.get(name, ()))
        return self

    def now(self, name: TableIdentifier = NAME) -> tuple[str | None, tuple[str, ...]] | None:
        """The table that has a name, and the files that may be its newest one."""
        table = current_table(self.tables.get(name, ()))
        return (table.uuid, table.locations) if table is not None else None


def test_first_commit_of_a_name_is_its_table() -> None:
    assert Names(commit(7)).now() == ("u", (pointer(7),))
    assert Names().now() is None


@pytest.mark.parametrize("uuid", ["u", None])
@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 2, 1), (2, 3, 3), (3, 1, 2)])
def test_greatest_version_counts_in_any_order(numbers: tuple[int, ...], uuid: str | None) -> None:
    assert Names(*[commit(number, uuid) for number in numbers]).now() == (uuid, (pointer(3),))


def test_spellings_of_a_location_are_equal() -> None:
    spelled = Notification(NAME, min_metadata_location=pointer(7).replace("s3:", "s3a:"), uuid="u")
    assert Names(commit(7), spelled).now() == ("u", (pointer(7),))


def test_locations_of_unknown_order_stay_until_a_publish() -> None:
    locations = [opaque(str(number)) for number in range(MAX_LOCATIONS + 2)]
    names = Names(*[Notification(NAME, min_metadata_location=one, uuid="u") for one in locations])
    assert names.now() == ("u", tuple(locations[-MAX_LOCATIONS:]))


@pytest.mark.parametrize("origin", list(TableOrigin))
def test_another_table_takes_the_name_by_an_origin_alone(origin: TableOrigin) -> None:
    names = Names(commit(5), commit(9, "v"))
    assert names.now() == ("u", (pointer(5),))
    assert names.hear(commit(8, "v", origin)).now() == ("v", (pointer(9, "v"),))


def test_commit_of_an_unknown_table_has_a_name_that_no_table_has() -> None:
    assert Names(commit(5), commit(0, "v"), drop("u")).now() == ("v", (pointer(0, "v"),))
    assert Names(commit(5), drop("u"), commit(0, "v")).now() == ("v", (pointer(0, "v"),))


def test_ended_table_returns_by_no_create_event_and_no_commit() -> None:
    names = Names(commit(5, "u", CREATE), drop("u"))
    assert names.hear(commit(5, "u", CREATE), commit(6)).now() is None


def test_ended_table_returns_by_a_registration_that_is_not_older() -> None:
    names = Names(commit(5, "u", CREATE), drop("u"))
    assert names.hear(commit(4, "u", REGISTER)).now() is None
    assert names.hear(commit(5, "u", REGISTER)).now() == ("u", (pointer(5),))


def test_drop_without_a_uuid_ends_the_table_that_has_the_name() -> None:
    names = Names(commit(5, "u", CREATE), drop())
    assert names.now() is None
    assert names.hear(commit(0, "v", CREATE)).now() == ("v", (pointer(0, "v"),))


def test_drop_without_a_uuid_ends_no_table_with_a_late_create_event() -> None:
    assert Names(commit(5, "u", CREATE), commit(0, "v"), drop()).now() == ("v", (pointer(0, "v"),))


def test_drop_of_another_table_ends_nothing() -> None:
    assert Names(commit(5, "u", CREATE), drop("v")).now() == ("u", (pointer(5),))


def test_drop_ends_a_table_of_unknown_uuid() -> None:
    assert Names(commit(5, None, CREATE), drop("u")).now() is None


def test_drop_of_an_unknown_table_is_remembered() -> None:
    assert Names(drop(), commit(5, None, CREATE)).now() == (None, (pointer(5),))
    assert Names(drop("u"), commit(5, "u", CREATE)).now() is None
    assert Names(drop("u"), commit(5, "u", CREATE), commit(6, "u", REGISTER)).now() == ("u", (pointer(6),))


def test_without_uuids_the_order_of_arrival_decides() -> None:
    names = Names(commit(5, None, CREATE), drop())
    assert names.now() is None
    assert names.hear(commit(0, None, CREATE)).now() == (None, (pointer(0),))
    assert names.hear(commit(1, None), drop()).now() is None


def test_commit_without_a_uuid_after_an_end_is_left_to_its_file() -> None:
    names = Names(commit(5, "u", CREATE), drop(), commit(6, None), commit(0, None))
    assert names.now() == (None, (pointer(6), pointer(0)))
    assert [table.created_seq for table in names.tables[NAME]] == [1, -1]


def test_commit_without_a_uuid_replaces_no_file_of_a_known_table() -> None:
    names = Names(commit(0, "u", CREATE), commit(9, None))
    assert names.now() == ("u", (pointer(0), pointer(9)))


def test_known_table_is_never_forgotten_for_many_others() -> None:
    names = Names(commit(0, "mine", CREATE), *[commit(0, f"late{number}") for number in range(3 * MAX_TABLES)])
    assert len(names.tables[NAME]) == MAX_TABLES
    assert names.now() == ("mine", (pointer(0, "mine"),))


@pytest.mark.parametrize("uuid", ["u", None])
def test_rename_takes_the_newest_file_to_the_new_name(uuid: str | None) -> None:
    names = Names(commit(1, uuid, CREATE), commit(2, uuid), *renamed(uuid))
    assert (names.now(), names.now(OTHER)) == (None, (uuid, (pointer(2),)))


@pytest.mark.parametrize("half", [0, 1])
def test_one_half_of_a_rename_is_enough(half: int) -> None:
    names = Names(commit(1, None, CREATE), renamed()[half])
    assert (names.now(), names.now(OTHER)) == (None, (None, (pointer(1),)))


@pytest.mark.parametrize("uuid", ["u", None])
def test_rename_can_report_a_location(uuid: str | None) -> None:
    first, second = renamed(uuid)
    second = msgspec.structs.replace(second, min_metadata_location=pointer(4))
    assert Names(first, second).now(OTHER) == (uuid, (pointer(4),))
    assert Names(commit(3, uuid), first, second).now(OTHER) == (uuid, (pointer(4),))


@pytest.mark.parametrize("uuid", ["u", None])
def test_repeated_rename_brings_no_dropped_table_back(uuid: str | None) -> None:
    names = Names(commit(1, uuid, CREATE), *renamed(uuid), drop(uuid, OTHER), *renamed(uuid))
    assert (names.now(), names.now(OTHER)) == (None, None)


def test_rename_takes_no_file_of_an_earlier_table() -> None:
    names = Names(commit(7, None, CREATE), drop(), commit(0, None, CREATE), *renamed())
    assert names.now(OTHER) == (None, (pointer(0),))


def test_table_may_be_renamed_back() -> None:
    names = Names(commit(1, None, CREATE), *renamed(), commit(2, None, name=OTHER), *renamed(None, OTHER, NAME))
    assert (names.now(), names.now(OTHER)) == ((None, (pointer(2),)), None)


def test_late_event_follows_its_table_to_the_last_name() -> None:
    names = Names(*renamed("u", OTHER, THIRD), *renamed("u", NAME, OTHER))
    assert names.now(THIRD) == ("u", ())
    names.hear(commit(2), commit(0, "u", CREATE), commit(1, "u", None, OTHER))
    assert [names.now(name) for name in (NAME, OTHER, THIRD)] == [None, None, ("u", (pointer(2),))]


def test_late_event_of_another_table_follows_no_rename() -> None:
    names = Names(commit(1, "u", CREATE), *renamed("u"), commit(3, None), commit(2, "v"))
    assert names.now(OTHER) == ("u", (pointer(1),))


def test_rename_cycle_ends() -> None:
    names = Names(*renamed("u"), Notification(OTHER, renamed_to=NAME, uuid="u"), commit(1))
    assert {table for tables in names.tables.values() for table in tables}


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Notification], dict[TableIdentifier, tuple[str, str]]]:
    """Events of a few tables, and the name of each table in the end. No table returns to an earlier name."""
    events: list[Notification] = []
    truth: dict[TableIdentifier, tuple[str, str]] = {}
    for number in range(draw(st.integers(1, 4))):
        uuid = f"u{number}"
        path = draw(st.permutations([NAME, OTHER, THIRD]))[: draw(st.integers(1, 3))]
        version, name = 0, path[0]
        # Who has a name in the way is dropped first.
        events += [drop(table[0], known) for known, table in truth.items() if known in path]
        truth = {known: table for known, table in truth.items() if known not in path}
        events.append(commit(0, uuid, draw(st.sampled_from(TableOrigin)), name))
        for new in path:
            if new != name:
                events += renamed(uuid, name, new)
                name = new
            for _ in range(draw(st.integers(0, 2))):
                version += 1
                events.append(commit(version, uuid, None, name))
        if draw(st.booleans()):
            events.append(drop(uuid, name))
        else:
            truth[name] = (uuid, pointer(version, uuid))
    return events, truth


@given(lives(), st.data())
def test_events_with_uuids_have_the_same_result_in_any_order(
    life: tuple[list[Notification], dict[TableIdentifier, tuple[str, str]]], data: st.DataObject
) -> None:
    events, truth = life
    # An event that comes twice cannot be told from a table that came back, if it can bring one back.
    repeatable = [one for one in events if one.origin is not REGISTER and one.renamed_from is None]
    again = data.draw(st.lists(st.sampled_from(repeatable), max_size=3)) if repeatable else []
    names = Names(*data.draw(st.permutations([*events, *again])))
    found = {name: names.now(name) for name in (NAME, OTHER, THIRD)}
    expected = {name: (truth[name][0], (truth[name][1],)) if name in truth else None for name in found}
    assert found == expected


NOW = datetime(2026, 1, 1, tzinfo=UTC)
KNOWN = (TableReport(None, (pointer(1), pointer(2)), 1),)


def job(
    reason: DeadLetterReason | None = None,
    *,
    uuid: str | None = None,
    pending: PendingChange = PendingChange(),  # noqa: B008 - frozen
    published: int | None = 1,
) -> Job:
    live = PublishedPointer(pointer(published), "u", "s3://lake/u", NOW) if published is not None else None
    reported = tuple(structs.replace(one, uuid=uuid) for one in KNOWN)
    return Job(NAME, NOW, reason=reason, pending=pending, table_state=TableState(live, reported=reported))


def test_publish_of_all_events_decides_which_file_is_the_newest() -> None:
    (table,) = tables_of(job())
    assert (table.uuid, table.locations) == ("u", (pointer(1),))
    assert tables_of(None) == ()


def test_published_file_shows_the_uuid_before_all_events_are_published() -> None:
    (table,) = tables_of(job(pending=PendingChange(is_unspecific=True)))
    assert (table.uuid, table.locations) == ("u", (pointer(1), pointer(2)))


@pytest.mark.parametrize(
    "undecided",
    [job(uuid="u", pending=PendingChange(is_unspecific=True)), job(published=None), job(published=3), job(uuid="v")],
    ids=["events are pending", "nothing is published", "another file is published", "another table is published"],
)
def test_undecided_locations_stay(undecided: Job) -> None:
    assert tables_of(undecided) == undecided.table_state.reported


def test_table_of_a_known_uuid_is_the_only_one() -> None:
    known = job()
    former = TableReport("u", (pointer(0),), 0, 1)
    state = structs.replace(known.table_state, reported=(former, *known.table_state.reported))
    assert len(tables_of(Job(NAME, NOW, table_state=state))) == 1


@pytest.mark.parametrize("reason", [DeadLetterReason.PERMANENT, DeadLetterReason.LOCATION_REFUSED])
def test_dead_letter_leaves_the_published_location_alone(reason: DeadLetterReason) -> None:
    pending = PendingChange(is_unspecific=True)
    assert [one.locations for one in tables_of(job(reason, uuid="u", pending=pending))] == [(pointer(1),)]
    for other in (job(reason, pending=pending, published=3), job(reason, uuid="v", pending=pending)):
        assert [one.locations for one in tables_of(other)] == [()]


def test_dead_letter_with_another_cause_doubts_nothing() -> None:
    pending = PendingChange(is_unspecific=True)
    assert [one.locations for one in tables_of(job(DeadLetterReason.HELD_DROP, pending=pending))] == [
        KNOWN[0].locations
    ]
