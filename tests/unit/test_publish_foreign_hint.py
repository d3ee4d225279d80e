"""A version hint that somebody else wrote where ours was."""

from __future__ import annotations

import pytest

from sfn.pointer import hintfile
from sfn.words import Hint, Outcome
from sfn.words.outcome import Findings
from tests.unit.publishing import AT, A, Line, key_of

pytestmark = pytest.mark.anyio
HINT_AT = hintfile.key(AT)


def findings_of(outcome: Outcome) -> Findings:
    found = getattr(outcome, "findings", None)
    assert isinstance(found, Findings)
    return found


@pytest.fixture
async def line() -> Line:
    """One with a table whose hint was overwritten."""
    line = Line()
    line.catalog.create(A)
    await line.hear(Hint(A), seconds=20)
    line.store.files[HINT_AT] = b"7"
    return line


async def test_what_was_written_before_the_race_for_the_hint_was_lost_is_told_and_pauses_the_next(line: Line) -> None:
    table = line.catalog.commit(A)
    await line.hear(Hint(A, floor=table.metadata_location))
    assert line.document(A)["metadata_file_path"] == table.metadata_location
    assert line.hint() == b"7"
    done = findings_of(line.outcomes[-1])
    assert done.did == (key_of(A),)
    assert done.not_before == line.clock.now() + line.policy.min_publish_interval
