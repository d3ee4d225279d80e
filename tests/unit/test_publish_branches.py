"""Branches have files of their own, and all of a table's files speak of one metadata file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfn.domain.events import Notification
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.publish.policy import Policy
from sfn.sfnfile.naming import UUID, FileLayout, FileOwner
from tests.support.publishing import AT, LAG, A, B, Line

WHOSE, HERE = FileOwner(A.namespace, A.name), FileLayout(AT)


def line_of(*branches: str, **more: Any) -> Line:  # noqa: ANN401 - any setting
    """A line that publishes branches."""
    return Line(Policy("c1", replica_lag=LAG, is_swept=False, branches=("main", *branches), **more))


async def with_branch() -> Line:
    """A line that has published a table and its branch `dev`."""
    line = line_of("*")
    line.catalog.create(A)
    line.catalog.branch(A, "dev")
    await line.hear(Notification(A), seconds=20)
    return line


def said(line: Line, ref: str | None, whose: FileOwner = WHOSE, at: FileLayout = HERE) -> tuple[str, str, int | None]:
    """State, pointer and head snapshot of a branch's file."""
    body = json.loads(line.store.files[at.keys(whose, ref)[0]])
    assert body["ref"] == (ref or "main")
    return body["state"], body["metadata_file_path"], body["snapshot_id"]


async def test_a_branch_that_is_published_has_a_file() -> None:
    line = line_of("release-*")
    line.catalog.create(A)
    line.catalog.branch(A, "dev")
    table = line.catalog.branch(A, "release-1")
    await line.hear(Notification(A), seconds=20)
    assert said(line, None) == ("current", table.metadata_location, None)
    assert said(line, "release-1") == ("current", table.metadata_location, dict(table.branches)["release-1"])
    assert FileLayout(AT).keys(WHOSE, "dev")[0] not in line.store.files


async def test_every_file_follows_every_change_of_the_pointer() -> None:
    line = line_of("*")
    line.catalog.create(A)
    branched = line.catalog.branch(A, "dev")
    await line.hear(Notification(A), seconds=20)
    table = line.catalog.commit(A)
    await line.hear(Notification(A), seconds=20)
    assert said(line, None) == ("current", table.metadata_location, table.snapshot_id)
    assert said(line, "dev") == ("current", table.metadata_location, dict(branched.branches)["dev"])


async def test_a_branch_that_is_deleted_is_dropped_and_its_file_goes_in_time() -> None:
    line = line_of("*")
    line.catalog.create(A)
    branched = line.catalog.branch(A, "dev")
    await line.hear(Notification(A), seconds=20)
    table = line.catalog.drop_branch(A, "dev")
    await line.hear(Notification(A), seconds=20)
    assert said(line, None)[1] == table.metadata_location
    assert said(line, "dev")[:2] == ("dropped", branched.metadata_location)
    await line.work(line.policy.expire_after.total_seconds() + 60)
    assert FileLayout(AT).keys(WHOSE, "dev")[0] not in line.store.files
    assert said(line, None)[1] == table.metadata_location


async def test_a_branch_may_come_back() -> None:
    line = line_of("*")
    line.catalog.create(A)
    for step in (line.catalog.branch, line.catalog.drop_branch, line.catalog.branch):
        step(A, "dev")
        await line.hear(Notification(A), seconds=20)
    table = line.catalog.commit(A)
    await line.hear(Notification(A), seconds=20)
    assert said(line, "dev")[:2] == ("current", table.metadata_location)


async def test_one_that_is_not_published_any_more_is_dropped() -> None:
    line = await with_branch()
    line.policy = Policy("c1", replica_lag=LAG, is_swept=False)
    line.catalog.commit(A)
    await line.hear(Notification(A), seconds=20)
    assert said(line, "dev")[0] == "dropped"


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_drop_ends_every_branch(forgotten: bool) -> None:
    """Also where the process died before it could say which files it wrote."""
    line = line_of("*", absence_delay=LAG)
    line.catalog.create(A)
    table = line.catalog.branch(A, "dev")
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True, force=forgotten), seconds=60)
    assert (said(line, None)[0], said(line, "dev")[0]) == ("dropped", "dropped")


async def test_a_purge_leaves_no_file_of_any_branch() -> None:
    line = await with_branch()
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True, purge=True), seconds=60)
    assert not line.store.files


async def test_a_move_leads_each_branch_on_to_its_own() -> None:
    line = await with_branch()
    line.catalog.commit(A, location="file:///warehouse/n/elsewhere")
    await line.hear(Notification(A), seconds=20)
    there = FileLayout("file:///warehouse/n/elsewhere")
    for ref in (None, "dev"):
        assert said(line, ref)[0] == "moved"
        assert said(line, ref, at=there)[0] == "current"
        moved = json.loads(line.store.files[FileLayout(AT).keys(WHOSE, ref)[0]])
        assert moved["moved_to"]["sfn_file_path"] == there.keys(WHOSE, ref)[0]


async def test_a_rename_leads_each_branch_on_to_its_own() -> None:
    line = await with_branch()
    line.catalog.rename(A, B)
    await line.hear(Notification(A, renamed_to=B), Notification(B), seconds=60)
    for ref in (None, "dev"):
        there = FileLayout(AT).keys(FileOwner(B.namespace, B.name), ref)[0]
        assert said(line, ref)[0] == "renamed"
        assert json.loads(line.store.files[FileLayout(AT).keys(WHOSE, ref)[0]])["moved_to"]["sfn_file_path"] == there
        assert json.loads(line.store.files[there])["state"] == "current"


async def test_a_place_that_is_taken_costs_one_branch_and_is_told() -> None:
    line = line_of("*")
    taken = FileLayout(AT).keys(WHOSE, "dev")[0]
    line.store.files[taken] = b"somebody else's"
    line.catalog.create(A)
    table = line.catalog.branch(A, "dev")
    await line.hear(Notification(A), seconds=20)
    assert said(line, None)[1] == table.metadata_location
    assert line.store.files[taken] == b"somebody else's"
    assert isinstance(line.outcomes[-1], DeadLettered)
    assert line.outcomes[-1].reason is DeadLetterReason.FOREIGN_FILE
    assert taken in line.outcomes[-1].detail


async def test_refs_that_would_be_taken_for_a_head_or_a_commit_have_files_like_any_other() -> None:
    line = line_of("*")
    line.catalog.create(A)
    for ref in ("head", "20260821T120000123", "a_head", "b/c"):
        line.catalog.branch(A, ref)
    table = line.catalog.commit(A)
    await line.hear(Notification(A), seconds=20)
    for ref, head in table.branches:
        assert said(line, ref) == ("current", table.metadata_location, head)


async def test_with_names_by_uuid_branches_have_theirs_too() -> None:
    line = line_of("*", naming=UUID)
    line.catalog.create(A)
    table = line.catalog.branch(A, "dev")
    await line.hear(Notification(A), seconds=20)
    whose, site = FileOwner((), "", table.uuid), FileLayout(AT, UUID)
    assert sorted(key for key in line.store.files if key.endswith(".ver")) == sorted(
        [f"{site.folder}{table.uuid}_main.ver", f"{site.folder}{table.uuid}_dev.ver"]
    )
    assert said(line, "dev", whose, site)[:2] == ("current", table.metadata_location)


async def test_a_branch_that_was_deleted_before_a_rename_ends_though_its_table_keeps_its_file() -> None:
    """The new name has no file of that branch to take over."""
    line = line_of("*", naming=UUID)
    line.catalog.create(A)
    table = line.catalog.branch(A, "dev")
    whose = FileOwner(A.namespace, A.name, table.uuid)
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop_branch(A, "dev")
    line.catalog.rename(A, B)
    after = line.catalog.commit(B)
    await line.hear(Notification(B), seconds=60)
    await line.hear(Notification(A), seconds=3600)
    here = FileLayout(AT, UUID)
    assert said(line, None, whose, here)[:2] == ("current", after.metadata_location)
    assert said(line, "dev", whose, here)[:2] == ("dropped", table.metadata_location)
    await line.work(line.policy.expire_after.total_seconds() + 86400)
    assert here.keys(whose, "dev")[0] not in line.store.files
    assert here.keys(whose)[0] in line.store.files
