"""A version hint that somebody else wrote where ours was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.jobs import Outcome, PublishResult
from sfn.publish.plan import MAX_FOREIGN_HINT_BYTES
from sfn.sfnfile import version_hint
from tests.unit.publishing import AT, A, Line, key_of

pytestmark = pytest.mark.anyio
HINT_AT = version_hint.key_of(AT)


def findings_of(outcome: Outcome) -> PublishResult:
    found = getattr(outcome, "result", None)
    assert isinstance(found, PublishResult)
    return found


@pytest.fixture
async def line() -> Line:
    """One with a table whose hint was overwritten."""
    line = Line()
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    line.store.files[HINT_AT] = b"7"
    return line


async def test_what_was_written_before_the_race_for_the_hint_was_lost_is_told_and_pauses_the_next(line: Line) -> None:
    table = line.catalog.commit(A)
    await line.hear(Notification(A, min_metadata_location=table.metadata_location))
    assert line.document(A)["metadata_file_path"] == table.metadata_location
    assert line.hint() == b"7"
    done = findings_of(line.outcomes[-1])
    assert done.written_keys == (key_of(A),)
    assert done.not_before == line.clock.now() + line.policy.min_publish_interval


async def test_that_a_hint_is_not_ours_is_known_until_it_is_removed(line: Line) -> None:
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint == "7"
    assert line.hint() == b"7"
    del line.store.files[HINT_AT]
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint is None
    assert line.hint() not in {b"7", None}


async def test_of_a_long_hint_its_beginning_is_enough(line: Line) -> None:
    line.store.files[HINT_AT] = b"\xff" + b"x" * 9_000
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint == "\ufffd" + "x" * (
        MAX_FOREIGN_HINT_BYTES - 1
    )


async def test_a_hint_that_somebody_else_wrote_as_ours_would_be_is_right() -> None:
    line = Line()
    line.store.files[HINT_AT] = version_hint.content(line.catalog.create(A)) or b""
    await line.hear(Notification(A), seconds=20)
    assert {findings_of(outcome).table_state.foreign_version_hint for outcome in line.outcomes} == {None}


async def test_who_wants_no_hint_is_told_of_none(line: Line) -> None:
    line.policy = replace(line.policy, version_hint=False)
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint is None
