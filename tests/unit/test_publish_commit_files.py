"""A file for each commit beside a head: what is written when, rebuilt, mended and pruned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sfn.domain.events import Notification
from sfn.domain.jobs import Rescheduled, StoredObject
from sfn.errors import Transient
from sfn.publish.decide import Decision, decide
from sfn.publish.policy import MAX_COMMIT_FILES, OnDrop
from sfn.sfnfile.document import render_ordinal
from sfn.sfnfile.naming import ORDINAL, FileLayout, FileOwner, commit_ordinal
from sfn.storage import PreconditionFailed
from tests.promises.inboxes import TERMS
from tests.support.publishing import AT, EVERYTHING, HEAD, SITE, A, FailingStore, Timeline, TornStore


async def test_each_commit_has_a_file_and_the_head_names_the_newest() -> None:
    line = Timeline()
    told = []
    for _ in range(3):
        told.append(line.commit())
        await line.hear(Notification(A), seconds=20)
    assert line.pointers == [table.metadata_location for table in told]
    assert line.head == line.commits[-1] | {"hint_was": line.head["hint_was"]}
    assert [body["snapshot_id"] for body in line.commits] == [table.snapshot_id for table in told]
    assert [body["Ordinal"] for body in line.commits] == [render_ordinal(table.last_updated_ms) for table in told]


async def test_whoever_writes_the_file_of_a_commit_has_written_the_head() -> None:
    """In one look at the table: a commit whose file no head speaks of has a number that nothing allotted."""
    line = Timeline()
    line.commit()
    await line.hear(Notification(A), seconds=20)
    last = line.commit()
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(EVERYTHING)).jobs
    await line.publish(claim)
    assert line.head["metadata_file_path"] == last.metadata_location == line.pointers[-1]


async def test_commits_that_came_as_one_are_rebuilt_from_the_log() -> None:
    line = Timeline()
    first = line.commit()
    await line.hear(Notification(A), seconds=20)
    last = line.commit(4)
    await line.hear(Notification(A), seconds=20)
    assert line.pointers == [*last.metadata_log, last.metadata_location]
    assert line.pointers[0] == first.metadata_location
    assert [body["Ordinal"] for body in line.commits[:-1]] == [render_ordinal(at) for at in last.log_times]
    assert all("gap" not in body and "between" not in body for body in line.commits)
    assert len(line.head["between"]) == 3


async def test_a_table_that_is_new_to_us_has_its_past_rebuilt() -> None:
    line = Timeline()
    last = line.commit(5)
    await line.hear(Notification(A), seconds=20)
    assert line.pointers == [*last.metadata_log, last.metadata_location]


async def test_what_cant_be_rebuilt_is_counted() -> None:
    line = Timeline()
    line.commit()
    await line.hear(Notification(A), seconds=20)
    last = line.commit(6)
    for lost in (last.metadata_log[2], last.metadata_log[3], last.metadata_log[5]):
        del line.store.files[lost]
    await line.hear(Notification(A), seconds=20)
    kept = [entry for entry in last.metadata_log if entry in line.store.files]
    assert line.pointers == [*kept, last.metadata_location]
    assert [body.get("gap", 0) for body in line.commits] == [0, 0, 2, 1]
    assert line.head["gap"] == 1


async def test_so_is_what_no_log_names_any_more() -> None:
    """By the numbers in the files' names."""
    line = Timeline()
    first = line.commit()
    await line.hear(Notification(A), seconds=20)
    last = line.commit(9)
    line.catalog.amend(A, replace(last, metadata_log=last.metadata_log[-3:], log_times=last.log_times[-3:]))
    await line.hear(Notification(A), seconds=20)
    assert line.pointers == [first.metadata_location, *last.metadata_log[-3:], last.metadata_location]
    assert [body.get("gap", 0) for body in line.commits] == [0, 5, 0, 0, 0]


async def test_a_table_that_moved_has_no_commit_twice_once_its_log_is_cut() -> None:
    """The file where it was leads on with a greater Ordinal, and names a pointer that the log lacks by then."""
    line = Timeline()
    line.store = store = FailingStore()
    old = "file:///warehouse/n/old"
    store.files[line.catalog.create(A, old).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=60)
    store.files[line.catalog.commit(A, AT).metadata_location] = b"{}"
    store.broken = FileLayout(old, ORDINAL).keys(FileOwner(A.namespace, A.name))[0]
    with pytest.raises(Transient):
        await line.hear(Notification(A))
    store.broken = ""
    line.clock.turn(TERMS.lease.total_seconds())
    await line.hear(Notification(A), seconds=60)
    last = line.commit(2)
    line.catalog.amend(A, replace(last, metadata_log=last.metadata_log[1:], log_times=last.log_times[1:]))
    await line.hear(Notification(A), seconds=60)
    keys = sorted(key for key in line.store.files if key.startswith(SITE.folder) and commit_ordinal(key) is not None)
    pointers = [line.read(key)["metadata_file_path"] for key in keys]
    assert pointers == [*last.metadata_log, last.metadata_location][-len(pointers) :]
    assert pointers[-3:] == [*last.metadata_log[-2:], last.metadata_location]


async def test_ordinals_rise_whatever_the_clocks_say() -> None:
    line = Timeline()
    line.commit()
    await line.hear(Notification(A), seconds=20)
    last = line.commit(3)
    times = tuple(at - 3_600_000 for at in last.log_times)
    line.catalog.amend(A, replace(last, last_updated_ms=times[0], log_times=times))
    await line.hear(Notification(A), seconds=20)
    ordinals = [body["Ordinal"] for body in line.commits]
    assert ordinals == sorted(set(ordinals))
    assert line.pointers == [*last.metadata_log, last.metadata_location]
    assert line.head["Ordinal"] == ordinals[-1]


async def test_whoever_comes_next_creates_what_a_writer_that_died_did_not() -> None:
    line = Timeline()
    line.commit(4)
    await line.hear(Notification(A), seconds=20)
    written = {key: body for key, body in line.store.files.items() if commit_ordinal(key) is not None}
    for key in written:
        del line.store.files[key]
    await line.hear(Notification(A, force=True), seconds=20)
    assert {key: line.store.files.get(key) for key in written} == written


async def test_also_after_a_look_that_ended_before_it_saw_them() -> None:
    """A replica that lags answered it."""
    line = Timeline(replica_lag=timedelta(minutes=2))
    line.store = store = TornStore()
    before = line.commit(2)
    await line.hear(Notification(A), seconds=600)
    after = line.commit()
    store.torn = True
    with pytest.raises(Transient):
        await line.hear(Notification(A))
    store.torn = False
    assert line.head["metadata_file_path"] == after.metadata_location
    assert line.pointers[-1] == before.metadata_location
    line.clock.turn(TERMS.lease.total_seconds())
    line.catalog.roll_back(A)
    await line.hear(Notification(A))
    assert isinstance(line.outcomes[-1], Rescheduled)
    line.catalog.drop(A)
    line.catalog.register(A, after)
    await line.hear(Notification(A), seconds=600)
    assert line.pointers[-1] == after.metadata_location


async def test_also_where_the_head_moves_on_at_once_or_the_table_is_gone() -> None:
    for is_dropped in (False, True):
        line = Timeline()
        past = line.commit(4)
        await line.hear(Notification(A), seconds=20)
        for key in [key for key in line.store.files if commit_ordinal(key) is not None]:
            del line.store.files[key]
        if is_dropped:
            line.catalog.drop(A)
        else:
            line.commit()
        await line.hear(Notification(A, drop=is_dropped, force=True), seconds=60)
        assert line.pointers[:4] == [*past.metadata_log, past.metadata_location]
        assert line.head["state"] == ("dropped" if is_dropped else "current")


async def test_a_drop_that_deletes_makes_nothing_again_that_it_deleted() -> None:
    """Of one that failed in the middle the head is still there, and what it names is gone."""
    line = Timeline(on_drop=OnDrop.DELETE)
    line.commit(4)
    await line.hear(Notification(A), seconds=20)
    for key in [key for key in line.store.files if commit_ordinal(key) is not None]:
        del line.store.files[key]
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True, force=True), seconds=60)
    assert not [key for key in line.store.files if key.endswith(".ver")]


async def test_a_writer_that_slept_while_others_went_on_moves_nothing_back() -> None:
    """It stopped between the read and the swap, and fifty commits passed."""
    line = Timeline(keep_commits=10)
    line.commit()
    await line.hear(Notification(A), seconds=20)
    stale = line.store.files[HEAD]
    slept = StoredObject(stale, (await line.store.read(HEAD)).etag)  # type: ignore[union-attr]
    for _ in range(50):
        line.commit()
        await line.hear(Notification(A), seconds=20)
    ordinal = line.head["Ordinal"]
    assert isinstance(await line.store.write(HEAD, stale, slept), PreconditionFailed)
    assert line.head["Ordinal"] == ordinal
    assert len(line.commits) == 10


async def test_only_so_many_stay_and_those_that_are_young() -> None:
    line = Timeline(keep_commits=3, keep_commits_for=timedelta(seconds=2))
    line.clock.turn(-(line.clock.now().timestamp() - 1_700_000_000))
    for _ in range(8):
        line.commit()
        await line.hear(Notification(A), seconds=20)
    assert line.pointers == [*line.commit().metadata_log[-3:]]
    line.policy = replace(line.policy, keep_commits_for=timedelta(days=1))
    for _ in range(4):
        line.commit()
        await line.hear(Notification(A), seconds=20)
    assert len(line.commits) == 8


async def test_however_many_commits_the_folder_is_one_page_of_a_listing() -> None:
    """However long they are to be kept: so many keys is what S3 and Azure list at a time at least."""
    line = Timeline(keep_commits=100, keep_commits_for=timedelta(days=9999))
    for _ in range(12):
        line.commit(100)
        await line.hear(Notification(A), seconds=20)
    assert len(line.commits) == MAX_COMMIT_FILES
    assert len([key for key in line.store.files if key.startswith(SITE.folder)]) == MAX_COMMIT_FILES + 1 <= 1000
    assert sum(body.get("gap", 0) for body in line.commits) == 0


async def test_files_of_others_are_left_where_they_are() -> None:
    line = Timeline(keep_commits=1)
    theirs = f"{SITE.folder}n_a_20200101T000000000.ver"
    line.store.files[theirs] = b"not ours"
    for _ in range(3):
        line.commit()
        await line.hear(Notification(A), seconds=20)
    assert line.store.files.pop(theirs) == b"not ours"
    assert len(line.commits) == 1


async def test_what_becomes_of_a_table_goes_to_its_head_and_its_commits_go_with_it() -> None:
    line = Timeline()
    past = line.commit(3)
    await line.hear(Notification(A), seconds=20)
    await line.drop()
    assert line.head["state"] == "dropped"
    assert line.pointers == [*past.metadata_log, past.metadata_location]
    await line.work(line.policy.expire_after.total_seconds() + 60)
    assert not [key for key in line.store.files if key.endswith(".ver")]


async def test_a_refresh_writes_all_of_it_anew_and_changes_nothing() -> None:
    line = Timeline()
    line.commit(3)
    await line.hear(Notification(A), seconds=20)
    before = {key: line.read(key) for key in line.store.files if key.endswith(".ver")}
    await line.work(line.policy.refresh_after.total_seconds() + 60)
    written = {key for outcome in line.outcomes[-1:] for key in outcome.result.written_keys}  # type: ignore[union-attr]
    assert set(before) <= written
    for key, body in before.items():
        assert line.read(key) | {"written_at": 0, "asked_at": 0} == body | {"written_at": 0, "asked_at": 0}


async def test_a_refresh_reads_a_full_folder_in_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Timeline(keep_commits=200)
    line.commit(150)
    await line.hear(Notification(A), seconds=20)
    verdicts: list[Decision] = []

    def noted(*asked: Any, **more: Any) -> Decision:  # noqa: ANN401 - whatever the decision is given
        verdicts.append(decide(*asked, **more))
        return verdicts[-1]

    monkeypatch.setattr("sfn.publish.publish.decide", noted)
    await line.work(line.policy.refresh_after.total_seconds() + 60)
    assert len(line.commits) == 150
    assert 0 < len(verdicts) < 20


async def test_nothing_new_costs_no_listing() -> None:
    line = Timeline()
    line.commit(3)
    await line.hear(Notification(A), seconds=60)
    listed: list[str] = []
    known = line.store.list

    async def counted(prefix: str, limit: int) -> list[str]:
        listed.append(prefix)
        return await known(prefix, limit)

    line.store.list = counted  # type: ignore[method-assign]
    await line.hear(Notification(A), seconds=60)
    assert not listed
