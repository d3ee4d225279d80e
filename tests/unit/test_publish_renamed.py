"""What is known of the two names of a table that was renamed, for whoever asks about either."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.inbox.model import TableStatus
from sfn.publish.policy import OnDrop
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import UUID
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, A, B, HintsNoted, Line, key_of

pytestmark = pytest.mark.anyio
ELSEWHERE = "file:///warehouse/n/other"


async def standing(line: Line, name: TableIdentifier) -> TableStatus:
    found = await line.inbox.table_status(name)
    assert found is not None
    return found


@pytest.fixture
async def line() -> Line:
    """One with a table that was renamed."""
    line = Line()
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    told = Notification(A, "etl", "e1", renamed_to=B, body=b"it was renamed")
    arrival = Notification(B, "etl", "e1/to", renamed_from=A, body=b"it was renamed")
    await line.hear(told, arrival, seconds=60)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("renamed", "current")
    return line


async def test_each_name_has_the_event_that_told_of_it(line: Line) -> None:
    for name, event_id in ((A, "e1"), (B, "e1/to")):
        event = (await standing(line, name)).last_event
        assert event is not None
        assert (event.event_id, event.body) == (event_id, b"it was renamed")


async def test_the_old_name_says_the_new_one_until_another_table_has_it(line: Line) -> None:
    assert [(await standing(line, name)).table_state.renamed_to for name in (A, B)] == [B, None]
    line.catalog.create(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert (await standing(line, A)).table_state.renamed_to is None


async def test_a_table_that_has_its_old_name_again_elsewhere_is_not_said_to_be_another(line: Line) -> None:
    line.catalog.rename(B, A)
    line.catalog.commit(A, location=ELSEWHERE)
    await line.hear(Notification(A), Notification(B), seconds=60)
    left = line.document(A)
    assert (left["state"], left["moved_to"]["name"], left.get("name_now")) == ("moved", "a", None)
    line.catalog.rename(A, B)
    await line.hear(Notification(B), Notification(A), seconds=60)
    assert [line.document(name)["state"] for name in (A, B)] == ["moved", "moved"]
    assert [line.document(name, ELSEWHERE)["state"] for name in (A, B)] == ["renamed", "current"]


async def test_nor_where_both_names_lead_to_the_same_file() -> None:
    line = Line()
    table = line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    line.policy = replace(line.policy, naming=UUID)
    line.catalog.rename(A, B)
    await line.hear(Notification(B), Notification(A, renamed_to=B), seconds=60)
    assert (line.document(A)["state"], line.document(A)["moved_to"]["name"]) == ("renamed", "b")
    line.catalog.rename(B, A)
    await line.hear(Notification(A), Notification(B), seconds=60)
    left = line.document(A)
    assert left["moved_to"]["sfn_file_path"].endswith(f"/{table.uuid}_main.ver")
    assert (left["state"], left["moved_to"]["name"], left.get("name_now")) == ("moved", "a", None)


async def test_a_table_that_moved_before_it_was_dropped_has_no_other_name(line: Line) -> None:
    line.policy = replace(line.policy, on_drop=OnDrop.DELETE)
    line.catalog.commit(B, location=ELSEWHERE)
    await line.hear(Notification(B), seconds=60)
    line.catalog.drop(B)
    await line.hear(Notification(B, drop=True), seconds=60)
    assert [line.document(B, place).get("state") for place in (AT, ELSEWHERE)] == ["moved", None]
    assert (await standing(line, B)).table_state.renamed_to is None


async def test_no_hint_says_what_only_the_old_names_file_said() -> None:
    """The table went back to an older version and to its first name, whose file had stayed as it was meanwhile."""
    line = Line()
    first = line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    second = line.catalog.commit(B)
    await line.inbox.put([Notification(B)])
    await line.work(only=lambda table: table == B)
    assert line.hint() == version_hint.content(second)
    line.catalog.drop(B)
    line.catalog.register(A, first)
    line.clock.turn(TERMS.lease.total_seconds())
    line.store = store = HintsNoted(line.store.files)
    await line.work(only=lambda table: table == A)
    await line.hear(Notification(B, renamed_to=A), seconds=3600)
    assert line.document(B)["state"] == "renamed"
    assert store.hints[key_of(B)] in {None, version_hint.content(first)}
    assert line.hint() == version_hint.content(first)
