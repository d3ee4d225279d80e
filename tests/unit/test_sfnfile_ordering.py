"""The order of a table's pointers: true, and the same whatever order answers come in (specification, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.sfnfile.locations import (
    MetadataOrder,
    canonical,
    compare_metadata,
    is_at_or_after,
    metadata_version,
    newer_floor,
)

MIRRORED = {
    MetadataOrder.SAME: MetadataOrder.SAME,
    MetadataOrder.NEWER: MetadataOrder.OLDER,
    MetadataOrder.OLDER: MetadataOrder.NEWER,
    MetadataOrder.UNKNOWN: MetadataOrder.UNKNOWN,
}
FORWARD = {MetadataOrder.NEWER, MetadataOrder.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Version:
    """One metadata file of a table.

    Attributes:
        pointer: its location.
        log: its metadata-log, cut off at the table's `write.metadata.previous-versions-max`.
        ancestors: all that it really goes back to, oldest first.
    """

    pointer: str
    log: tuple[str, ...] = ()
    ancestors: tuple[Version, ...] = ()


def location(serial: int, number: int | None) -> str:
    uuid = f"9c12d441-03fe-4693-9a96-{serial:012x}"
    return f"s3://lake/t/metadata/{uuid if number is None else f'{number:05d}-{uuid}'}.metadata.json"


@st.composite
def histories(draw: st.DrawFn, *, back: bool = True, opaque: bool = True) -> list[Version]:
    """Every metadata file that a table ever had, in the order of its commits.

    Writers count on from the number of the file that they start from, and a file's log never changes: so after a
    rollback there are two branches, and numbers come twice.

    Args:
        back: the catalog may be set back to an older file.
        opaque: some names have no number.
    """
    kept = draw(st.integers(0, 4))
    current = Version(location(0, 0))
    versions = [current]
    for serial in range(1, draw(st.integers(1, 7))):
        if back and current.ancestors and draw(st.booleans()):
            current = draw(st.sampled_from(current.ancestors))
        number = None if opaque and draw(st.booleans()) else len(current.ancestors) + 1
        log = (*current.log, current.pointer)[-kept:] if kept else ()
        current = Version(location(serial, number), log, (*current.ancestors, current))
        versions.append(current)
    return versions


def relation(held: Version, candidate: Version) -> MetadataOrder:
    return compare_metadata(held.pointer, held.log, candidate.pointer, candidate.log)


@given(histories())
def test_a_pointer_is_the_same_as_itself_alone(history: list[Version]) -> None:
    for held, candidate in product(history, repeat=2):
        assert (relation(held, candidate) is MetadataOrder.SAME) == (held is candidate)


@given(histories())
def test_what_is_newer_from_here_is_older_from_there(history: list[Version]) -> None:
    for held, candidate in product(history, repeat=2):
        assert relation(candidate, held) is MIRRORED[relation(held, candidate)]


@given(histories())
def test_the_order_never_goes_in_a_circle(history: list[Version]) -> None:
    for first, second, third in permutations(history, 3):
        if relation(first, second) is relation(second, third) is MetadataOrder.NEWER:
            assert relation(first, third) in FORWARD


@given(histories(opaque=False))
def test_where_all_are_numbered_newer_than_newer_is_newer(history: list[Version]) -> None:
    for first, second, third in permutations(history, 3):
        if relation(first, second) is relation(second, third) is MetadataOrder.NEWER:
            assert relation(first, third) is MetadataOrder.NEWER


@given(histories())
def test_what_a_pointer_goes_back_to_is_never_newer_than_it(history: list[Version]) -> None:
    for candidate in history:
        for held in candidate.ancestors:
            known = held.pointer in candidate.log or None not in {
                metadata_version(held.pointer),
                metadata_version(candidate.pointer),
            }
            assert relation(held, candidate) is (MetadataOrder.NEWER if known else MetadataOrder.UNKNOWN)


@given(histories())
def test_a_lost_log_makes_an_order_unknown_at_most(history: list[Version]) -> None:
    for held, candidate in product(history, repeat=2):
        possible = {relation(held, candidate), MetadataOrder.UNKNOWN}
        assert compare_metadata(held.pointer, (), candidate.pointer, candidate.log) in possible
        assert compare_metadata(held.pointer, held.log, candidate.pointer, ()) in possible
        assert compare_metadata(held.pointer, (), candidate.pointer, ()) in possible


@given(st.data(), histories(back=False, opaque=False))
def test_answers_in_any_order_end_at_the_newest(data: st.DataObject, history: list[Version]) -> None:
    answers = data.draw(st.lists(st.sampled_from(history), min_size=1, max_size=12))
    held = answers[0]
    for answer in answers:
        held = answer if relation(held, answer) is MetadataOrder.NEWER else held
    assert held == max(answers, key=history.index)


@given(st.data(), histories(back=False))
def test_answers_in_any_order_never_lead_back(data: st.DataObject, history: list[Version]) -> None:
    answers = data.draw(st.lists(st.sampled_from(history), min_size=1, max_size=12))
    held = answers[0]
    for answer in answers:
        if relation(held, answer) is MetadataOrder.NEWER:
            assert held in answer.ancestors
            held = answer


@given(st.data(), histories())
def test_how_a_place_is_spelled_changes_nothing(data: st.DataObject, history: list[Version]) -> None:
    def respelled(pointer: str) -> str:
        return pointer.replace("s3:", data.draw(st.sampled_from(["s3:", "s3a:", "s3n:", "S3A:"])))

    for held, candidate in product(history, repeat=2):
        log = [respelled(entry) for entry in candidate.log]
        again = compare_metadata(respelled(held.pointer), held.log, respelled(candidate.pointer), log)
        assert again is relation(held, candidate)


@given(histories())
def test_a_floor_is_reached_by_itself_and_by_what_is_newer(history: list[Version]) -> None:
    for floor, answer in product(history, repeat=2):
        reached = compare_metadata(floor.pointer, (), answer.pointer, answer.log) in {
            MetadataOrder.SAME,
            MetadataOrder.NEWER,
        }
        assert is_at_or_after(answer.pointer, answer.log, floor.pointer) is reached
        if answer in floor.ancestors:
            assert not reached


floors = st.none() | st.builds(location, st.integers(0, 9), st.integers(0, 99))


@given(st.lists(floors, max_size=8))
def test_of_numbered_floors_the_highest_is_kept_in_whatever_order_they_come(told: list[str | None]) -> None:
    kept = None
    for floor in told:
        kept = newer_floor(kept, floor)
    numbers = [metadata_version(floor) for floor in told if floor is not None]
    assert kept in told or not told
    assert (metadata_version(kept) if kept is not None else None) == max(
        (number for number in numbers if number is not None), default=None
    )


@given(floors, st.sampled_from(["s3://lake/t/metadata/v9.metadata.json", "s3://lake/t/metadata/9.metadata.json"]))
def test_of_floors_that_cannot_be_compared_the_later_told_is_kept(numbered: str | None, other: str) -> None:
    assert newer_floor(numbered, other) == other
    assert newer_floor(other, numbered) == (numbered or other)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("00003-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", 3),
        ("3-9C12D441-03FE-4693-9A96-A0705DDF69C1.gz.metadata.json", 3),
        ("100000-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json.gz", 100_000),
        ("9" * 5_000 + "-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", None),
        ("๓-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", None),
        ("00003-9c12d441-03fe-4693-9a96-a0705ddf69c1a.metadata.json", None),
        ("00003-9c12d441.metadata.json", None),
        ("9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", None),
        ("v3.metadata.json", None),
        ("-3-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", None),
    ],
)
def test_only_names_that_a_writer_numbers_have_a_number(name: str, number: int | None) -> None:
    assert metadata_version(f"s3://lake/00007-00000000-0000-0000-0000-000000000000/metadata/{name}") == number


schemes = st.sampled_from(["s3://", "S3N://", "file:", "file://", "abfss://", "wasb://", "other:", ""])
authorities = st.sampled_from(["", "lake", "Lake", "c@Acc.blob.core.windows.net", "c@acc.dfs.core.windows.net"])
paths = st.sampled_from(["", "/", "/v1", "/a/v1", "/v1/a", "/v11", "//v1", "/v1/", "/v1//"])
places = st.tuples(schemes, authorities, paths).map("".join)


@given(st.lists(places, max_size=6), places)
def test_a_log_has_a_location_in_every_spelling(log: list[str], published: str) -> None:
    is_newer = compare_metadata(published, (), "gs://lake/another", log) is MetadataOrder.NEWER
    assert is_newer is (canonical(published) in map(canonical, log))
