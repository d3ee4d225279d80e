"""A walk that tells what a sweep would find: each way in which files differ, and nothing changed by looking."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from sfn.publish.dry_run import DifferenceKind, TableDifference
from sfn.publish.policy import Policy, TableFilter
from sfn.publish.queries import IsListed, NeedsQuery
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import UUID
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.comparison import decide_with_queries
from sfn.worker.dry_run import DryRunResult, DryRunSweep
from tests.support.publishing import AT, A, B, CountingCatalog, CountingStore, Line, key_of, named


class Torn(CountingStore):
    """A store that refuses to read some files.

    Attributes:
        refused: the trouble, by what its key contains.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, ExternalError] = {}

    @override
    def store_for(self, _location: str) -> Torn:
        return self

    @override
    async def read(self, key: str) -> StoredObject | None:
        for part, trouble in self.refused.items():
            if part in key:
                raise trouble
        return await super().read(key)


class Defective(CountingCatalog):
    """A catalog whose walk ends as nobody foresaw."""

    @override
    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        yield A
        raise ZeroDivisionError


async def line(*tables: TableIdentifier) -> Line:
    """A catalog whose tables are published."""
    made = Line()
    made.store = Torn()
    for table in tables or (A,):
        made.catalog.create(table)
        await made.hear(Notification(table), seconds=1)
    return made


async def walked(world: Line) -> DryRunResult:
    """One walk, which changes no file."""
    before = dict(world.store.files)
    found = await DryRunSweep(ConnectedCatalog(world.catalog, world.policy), world.store, lambda _: None).run()
    assert world.store.files == before
    return found


async def difference(world: Line) -> TableDifference:
    (found,) = (await walked(world)).differences
    return found


def rewrite(world: Line, **more: Any) -> None:  # noqa: ANN401 - any attribute
    """Change what A's file says."""
    key = key_of(A)
    doc = document.parse(world.store.files[key])
    world.store.files[key] = document.render(replace(doc, **more))


async def test_nothing_differs_once_all_is_published() -> None:
    found = await walked(await line(A, B))
    assert (found.tables, found.listed, found.is_fully_listed) == (2, 2, True)
    assert (found.differences, found.unlisted, found.failed) == ([], [], [])


async def test_a_table_that_nobody_told_of_is_missing() -> None:
    world = await line(A)
    world.catalog.create(B)
    found = await difference(world)
    assert (found.table, found.kind) == (B, DifferenceKind.MISSING)


async def test_a_commit_that_nobody_told_of_leaves_the_file_behind() -> None:
    world = await line(A)
    pointer = world.catalog.commit(A).metadata_location
    found = await difference(world)
    assert found.kind is DifferenceKind.BEHIND
    assert found.detail.endswith(f"the catalog {pointer}")


async def test_a_rollback_leaves_the_file_ahead() -> None:
    world = await line(A)
    world.catalog.commit(A)
    await world.hear(Notification(A), seconds=1)
    world.catalog.roll_back(A)
    assert (await difference(world)).kind is DifferenceKind.AHEAD


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"state": DocumentState.DROPPED}, DifferenceKind.BEHIND, "the file has the state dropped"),
        ({"guid": "another"}, DifferenceKind.OTHER, "the file has the table-uuid another"),
        (
            {"metadata_file_path": "file:///elsewhere/x.metadata.json"},
            DifferenceKind.OTHER,
            "the order of the two is unknown",
        ),
        ({"catalog_id": "theirs"}, DifferenceKind.FOREIGN_CATALOG, "carries the catalog_id theirs"),
    ],
)
async def test_what_another_document_is(more: dict[str, Any], kind: DifferenceKind, said: str) -> None:
    world = await line(A)
    rewrite(world, **more)
    found = await difference(world)
    assert found.kind is kind
    assert said in found.detail


async def test_what_is_no_document_is_foreign() -> None:
    world = await line(A)
    world.store.files[key_of(A)] = b"no document"
    assert (await difference(world)).kind is DifferenceKind.FOREIGN_FILE


async def test_a_hint_of_ours_that_is_behind_is_told() -> None:
    world = await line(A)
    before = world.hint()
    world.catalog.commit(A)
    await world.hear(Notification(A), seconds=1)
    assert before is not None
    world.store.files[version_hint.key_of(AT)] = before
    assert (await difference(world)).kind is DifferenceKind.HINT_BEHIND
    world.policy = replace(world.policy, version_hint=False)
    assert (await walked(world)).differences == []


async def test_a_hint_of_ours_where_there_should_be_none_is_told() -> None:
    world = await line(A)
    before = world.catalog.current(A)
    assert before is not None
    log = (before.metadata_location,)
    world.catalog.amend(A, replace(before, metadata_location=f"{AT}/metadata/3.metadata.json", metadata_log=log))
    await world.hear(Notification(A), seconds=1)
    rewrite(world, hint_was=("3",))
    world.store.files[version_hint.key_of(AT)] = b"3"
    found = await difference(world)
    assert (found.kind, found.detail[-20:]) == (DifferenceKind.HINT_BEHIND, "there should be none")


@pytest.mark.parametrize("body", [None, b"somebody-elses"])
async def test_a_hint_that_is_not_ours_to_write_is_none_of_our_business(body: bytes | None) -> None:
    world = await line(A)
    del world.store.files[version_hint.key_of(AT)]
    if body is not None:
        world.store.files[version_hint.key_of(AT)] = body
    assert (await walked(world)).differences == []


async def test_a_table_that_gets_no_files_and_has_one_is_told() -> None:
    world = await line(A)
    world.catalog.commit(A, left_alone="encrypted")
    assert (await difference(world)).kind is DifferenceKind.LEFT_OVER
    world.store.files.clear()
    assert (await walked(world)).differences == []


async def test_a_location_that_is_refused_is_told() -> None:
    world = await line()
    world.catalog.create(B, location="http://elsewhere/b")
    assert (await difference(world)).kind is DifferenceKind.LOCATION_REFUSED
    world.policy = replace(world.policy, allowed_locations=("file:///other",))
    assert [one.kind for one in (await walked(world)).differences] == [DifferenceKind.LOCATION_REFUSED] * 2


async def test_a_file_that_may_not_be_read_is_told() -> None:
    world = await line(A, B)
    assert isinstance(world.store, Torn)
    world.store.refused["n_a_"] = Permanent("a", scope=ErrorScope.TABLE, expected="a file", found="a pipe")
    world.store.refused["n_b_"] = Transient("b", scope=ErrorScope.TABLE, expected="a file", found="a busy one")
    found = await walked(world)
    assert [(one.table, one.kind) for one in found.differences] == [(A, DifferenceKind.PERMANENT)]
    assert [table for table, _ in found.failed] == [B]


async def test_trouble_of_a_store_ends_the_walk() -> None:
    world = await line(A)
    assert isinstance(world.store, Torn)
    world.store.refused["n_a_"] = Transient("lake", scope=ErrorScope.STORE, expected="a mount", found="none")
    with pytest.raises(Transient, match="expected a mount"):
        await walked(world)


async def test_trouble_of_the_catalog_ends_the_walk() -> None:
    world = await line(A)
    world.catalog.error = Transient("prod", scope=ErrorScope.CATALOG, expected="an answer", found="none")
    with pytest.raises(Transient, match="expected an answer"):
        await walked(world)


async def test_what_nobody_foresaw_is_raised_as_it_is() -> None:
    world = await line(A)
    world.catalog = Defective("prod")
    with pytest.raises(ExceptionGroup) as caught:
        await walked(world)
    assert caught.group_contains(ZeroDivisionError)


async def test_what_is_withheld_is_told_and_what_is_excluded_is_not_asked_about() -> None:
    world = await line(A, B)
    world.catalog.create_namespace("closed")
    world.catalog.create(TableIdentifier("prod", ("closed",), "c"))
    world.catalog.close_namespace("closed")
    world.policy = replace(world.policy, table_filter=TableFilter(exclude=("n.b",)))
    world.store.files.clear()
    found = await walked(world)
    assert [one.namespace for one in found.unlisted] == [("closed",)]
    assert [one.table for one in found.differences] == [A]


async def test_a_table_that_goes_while_it_is_looked_at_differs_in_nothing() -> None:
    world = await line(A)
    world.catalog.create(B)
    world.catalog.hidden = frozenset({B})
    assert (await walked(world)).differences == []


async def test_differences_come_in_order_and_each_table_is_told_of() -> None:
    world = Line()
    tables = [named(f"t{number:02}") for number in range(40)]
    for table in tables:
        world.catalog.create(table)
    seen: list[int] = []
    found = await DryRunSweep(
        ConnectedCatalog(world.catalog, world.policy), world.store, lambda so_far: seen.append(so_far.tables)
    ).run()
    assert [one.table for one in found.differences] == tables
    assert seen == list(range(1, 41))


async def test_nothing_is_learnt_but_files_and_what_the_catalog_says_of_tables() -> None:
    def wants_more(_: object) -> None:
        raise NeedsQuery(IsListed(A))

    with pytest.raises(TypeError):
        await decide_with_queries(wants_more, CountingStore(), CountingCatalog("prod"))


async def test_a_table_that_was_renamed_and_keeps_its_file_is_behind_until_the_file_says_so() -> None:
    """With names by uuid; and it is not taken for a stranger's."""
    world = Line(Policy("c1", is_swept=False, naming=UUID))
    table = world.catalog.create(A, AT)
    await world.hear(Notification(A), seconds=1)
    world.catalog.rename(A, B)
    found = await difference(world)
    assert (found.table, found.kind) == (B, DifferenceKind.BEHIND)
    assert f"{table.uuid}_main.ver still calls the table n.a" in found.detail
