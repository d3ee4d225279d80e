"""One directory under several names is one place: its live document and its version hint survive whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, Table, TableIdentifier
from sfn.domain.jobs import LeasedJob, StoredObject
from sfn.errors import Transient
from sfn.publish.dry_run import DifferenceKind, compare
from sfn.publish.policy import OnDrop, Policy
from sfn.publish.queries import NeedsQuery, Observations, ObservedFile, ReadFiles
from sfn.sfnfile import version_hint
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import NAMINGS, FileLayout, FileOwner, Naming, Placement
from sfn.storage import ObjectStore, PreconditionFailed
from sfn.storage.azure import IMPOSSIBLE_ETAG, AccountKey, AzureClient, AzureOptions
from sfn.storage.local import LocalStore
from sfn.storage.remote_store import HttpPool, RemoteStore, StoreService
from tests.servers.object_stores import ACCOUNT, ACCOUNT_KEY, Azure
from tests.support.publishing import LAG, A, B, Line, key_of, named
from tests.unit.aliased import AliasedStore, Guarded, Names

C = named("c")
REAL, LINK, MOUNT, ELSEWHERE = (f"file:///lake/{name}" for name in ("real", "link", "mount", "elsewhere"))
BUCKET = "s3://lake/real"
ALIASES = {LINK: REAL, MOUNT: REAL, BUCKET: REAL}
ROOT = "file:///sfn"


class Aliased(Line):
    """A line whose tables' directories have several names.

    Args:
        names: of directories.
        inner: where files are; in memory without one.

    Attributes:
        known: the places that each row knew when it was last published.
        teaches: a place that each row is to know beside its own.
        places: the directories, each by one of its names.
    """

    def __init__(self, policy: Policy, names: Names, inner: ObjectStore | None = None) -> None:
        super().__init__(policy)
        self.names, self.inner = names, inner or AliasedStore(names)
        self.guarded = Guarded(self.inner, names, self._is_right)
        self.known: dict[JobKey, frozenset[str]] = {}
        self.teaches: str | None = None
        self.places: tuple[str, ...] = (REAL, ELSEWHERE)

    @override
    async def publish(self, claim: LeasedJob) -> None:
        self.known[claim.subject] = claim.locations
        if self.teaches is not None:
            await self.inbox.record_location(claim, self.teaches, None)
        self.store = self.guarded
        try:
            await super().publish(claim)
        except Transient:
            """The worker dies, and its lease expires."""

    def _is_right(self, key: str, said: dict[str, Any]) -> bool:
        """Whether a document says what the catalog does, of a table that has its files there."""
        name = TableIdentifier("prod", tuple(said["namespace"]), said["name"])
        table = self.catalog.current(name)
        if table is None or said["guid"] != table.uuid or said["metadata_file_path"] != table.metadata_location:
            return False
        keys = self.site(name, table).keys(FileOwner(name.namespace, name.name, table.uuid))
        return any(self.names.are_one(key, mine) for mine in keys)

    def site(self, name: TableIdentifier, table: Table) -> FileLayout:
        """Where a table's files belong."""
        return self.policy.layout(name, table.location)

    async def lay(self, table: Table) -> Table:
        """The table with its metadata file."""
        await self.inner.write(table.metadata_location, b"{}", None)
        return table

    async def copy(self, name: TableIdentifier, location: str) -> None:
        """Register a copy of a table in another directory: its metadata file has the same name there."""
        table = self.catalog.current(name)
        assert table is not None
        file = location + table.metadata_location.removeprefix(table.location)
        self.catalog.amend(name, await self.lay(replace(table, location=location, metadata_location=file)))

    async def document_at(self, key: str) -> dict[str, Any]:
        """A document, empty where there is none."""
        held = await self.inner.read(key)
        found: dict[str, Any] = json.loads(held.body if held is not None else b"{}")
        return found

    async def check(self) -> None:
        """Every live table has a live document, and the hint beside it where it is alone. No other hint speaks."""
        assert self.guarded.harm == []
        live = {name: table for name in (A, B, C) if (table := self.catalog.current(name)) is not None}
        for name, table in live.items():
            site = self.site(name, table)
            documents = [
                await self.document_at(key) for key in site.keys(FileOwner(name.namespace, name.name, table.uuid))
            ]
            mine = next(one for one in documents if one.get("name") == name.name)
            assert (mine["state"], mine["guid"]) == ("current", table.uuid)
            assert mine["metadata_file_path"] == table.metadata_location
            if site.has_version_hint:
                beside = [one for one in live.values() if self.names.are_one(one.location, table.location)]
                hint = await self.inner.read(version_hint.key_of(table.location))
                said = None if hint is None or version_hint.is_cleared(hint.body) else hint.body
                wanted = version_hint.content(table) if len(beside) == 1 else None
                # What a dropped table leaves behind may be kept, and then the table is not alone.
                assert said == wanted or (said is None and self.policy.on_drop is OnDrop.KEEP)
        for location in self.places if self.policy.on_drop is not OnDrop.KEEP else ():
            if not any(self.names.are_one(table.location, location) for table in live.values()):
                left = await self.inner.read(version_hint.key_of(location))
                assert left is None or version_hint.is_cleared(left.body)


def policy_of(naming: Naming = NAMINGS["identifier"], placement: Placement = Placement.INSIDE) -> Policy:
    """With which tables are published quickly."""
    return Policy(
        "c1", replica_lag=LAG, absence_delay=LAG, is_swept=False, naming=naming, placement=placement, root=ROOT
    )


@pytest.mark.parametrize("other", [LINK, MOUNT, BUCKET])
@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("placement", Placement)
async def test_a_table_that_gets_another_name_of_its_directory_stays_live(
    other: str, naming: Naming, placement: Placement
) -> None:
    """There, back, and there again: the row then knows the place by one name."""
    line = Aliased(policy_of(naming, placement), Names(ALIASES))
    await line.lay(line.catalog.create(A, REAL))
    await line.hear(Notification(A), seconds=60)
    for location in (other, REAL, other):
        table = await line.lay(line.catalog.commit(A, location))
        await line.hear(Notification(A), seconds=60)
        await line.check()
        await line.hear(Notification(A), seconds=60)
        assert line.known[A] == {line.site(A, table).encoded}


@pytest.mark.parametrize("knows_both", [False, True])
@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
async def test_a_directory_that_says_it_moved_to_itself_is_repaired_without_a_commit(
    naming: Naming, *, knows_both: bool
) -> None:
    line = Aliased(policy_of(naming), Names(ALIASES))
    table = await line.lay(line.catalog.create(A, REAL))
    if knows_both:
        line.teaches = FileLayout(LINK, naming).encoded
    await line.hear(Notification(A), seconds=60)
    key = line.site(A, table).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
    held, hint = await line.inner.read(key), await line.inner.read(version_hint.key_of(REAL))
    assert held is not None
    assert hint is not None
    assert compared(line, table, key, held) is None
    link = {"table_identifier": A.dotted, "namespace": ["n"], "name": "a", "sfn_file_path": key}
    damage = {"state": "moved", "moved_to": link, "expires_at": "2026-12-31T00:00:00Z"}
    damaged = await line.inner.write(key, json.dumps(json.loads(held.body) | damage).encode(), held)
    assert isinstance(damaged, StoredObject)
    assert compared(line, table, key, damaged) is DifferenceKind.BEHIND
    await line.inner.delete(version_hint.key_of(REAL), hint)
    # An event that tells of nothing new, as one that is sent again.
    await line.hear(Notification(A), seconds=60)
    await line.check()


def compared(line: Aliased, table: Table, key: str, held: StoredObject) -> DifferenceKind | None:
    """What a rehearsal of A's publish finds where this lies."""
    facts = Observations()
    while True:
        try:
            difference = compare(A, table, table.location, facts, line.policy).difference
        except NeedsQuery as lacking:
            keys = lacking.query.keys if isinstance(lacking.query, ReadFiles) else ()
            for asked in keys:
                facts.files[asked] = ObservedFile(held if asked == key else None, facts.next_sequence())
        else:
            return None if difference is None else difference.kind


async def test_a_copy_of_the_directory_is_no_other_name_of_it() -> None:
    """It has the same bytes until the table is published, and then it leads on."""
    line = Aliased(policy_of(), Names({}))
    table = await line.lay(line.catalog.create(A, REAL))
    await line.hear(Notification(A), seconds=60)
    names = (version_hint.key_of(""), "/metadata/_sfn/n_a_main.ver", table.metadata_location.removeprefix(REAL))
    for name in names:
        held = await line.inner.read(REAL + name)
        assert held is not None
        await line.inner.write(ELSEWHERE + name, held.body, None)
    # As a tool does that copies a table and names its files as they were.
    file = table.metadata_location.replace(REAL, ELSEWHERE)
    line.catalog.commit(A)
    line.catalog.amend(A, replace(table, location=ELSEWHERE, metadata_location=file))
    await line.hear(Notification(A), seconds=60)
    await line.check()
    left = await line.document_at(REAL + names[1])
    assert left.get("moved_to", {}).get("sfn_file_path") == ELSEWHERE + names[1]
    assert await line.inner.read(version_hint.key_of(REAL)) is None


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("location", [ELSEWHERE, LINK, MOUNT, BUCKET])
async def test_a_copied_table_keeps_its_file_names_when_its_refresh_is_due(
    location: str, naming: Naming, *, late: bool
) -> None:
    """A refresh writes the hint with the bytes that it has, and the old hint has the same bytes."""
    line = Aliased(policy_of(naming), Names(ALIASES))
    table = await line.lay(line.catalog.create(A, REAL))
    await line.hear(Notification(A), seconds=60)
    key = line.site(A, table).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
    await line.copy(A, location)
    if late:
        line.clock.turn(line.policy.refresh_after.total_seconds())
    # One publish: no attempt is lost.
    await line.hear(Notification(A), seconds=1)
    await line.check()
    if location == ELSEWHERE:
        assert (await line.document_at(key))["state"] == "moved"
        assert await line.inner.read(version_hint.key_of(REAL)) is None


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
async def test_two_tables_in_one_directory_by_two_names_have_no_hint(naming: Naming) -> None:
    line = Aliased(policy_of(naming), Names(ALIASES))
    await line.lay(line.catalog.create(A, REAL))
    await line.lay(line.catalog.create(B, LINK))
    await line.hear(Notification(A), Notification(B), seconds=60)
    await line.check()
    assert await line.inner.read(version_hint.key_of(REAL)) is None
    for name in (A, B, A):
        await line.lay(line.catalog.commit(name))
        await line.hear(Notification(name), seconds=60)
        await line.check()
    line.catalog.drop(B)
    await line.lay(line.catalog.commit(A))
    await line.hear(Notification(B, drop=True), Notification(A), seconds=120)
    await line.lay(line.catalog.commit(A))
    await line.hear(Notification(A), seconds=60)
    await line.check()


async def test_a_hint_that_is_made_while_a_second_table_comes_does_not_stay() -> None:
    """The one found nobody beside it yet, the other one found no hint yet."""

    class Meanwhile(AliasedStore):
        hint = b""

        @override
        async def write(
            self, key: str, body: bytes, replacing: StoredObject | None
        ) -> StoredObject | PreconditionFailed:
            if key == key_of(B, LINK) and self.hint:
                self.files[version_hint.key_of(REAL)], self.hint = self.hint, b""
            return await super().write(key, body, replacing)

    names = Names(ALIASES)
    store = Meanwhile(names)
    line = Aliased(policy_of(), names, store)
    await line.lay(line.catalog.create(A, REAL))
    await line.hear(Notification(A), seconds=60)
    store.hint = store.files.pop(version_hint.key_of(REAL))
    await line.lay(line.catalog.create(B, LINK))
    await line.hear(Notification(B), seconds=60)
    assert not store.hint
    await line.check()
    assert version_hint.key_of(REAL) not in store.files


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
async def test_a_table_may_be_renamed_and_get_another_name_of_its_directory_at_once(naming: Naming) -> None:
    """The new name's row is published some time later."""
    line = Aliased(policy_of(naming), Names(ALIASES))
    table = await line.lay(line.catalog.create(A, REAL))
    await line.hear(Notification(A), seconds=60)
    line.catalog.rename(A, B)
    await line.lay(line.catalog.commit(B, LINK))
    await line.inbox.put([Notification(A, renamed_to=B)])
    await line.work(20, only=lambda name: name == A)
    key = FileLayout(REAL, naming).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
    assert (await line.document_at(key))["state"] == "current"
    await line.hear(Notification(B), seconds=200)
    await line.check()


async def test_a_container_that_a_second_host_leads_to_is_one_place(azure: Azure) -> None:
    """On a real store, whose files say nothing of it: only what is written tells."""
    container, pool = azure.container(), HttpPool()
    first, second = (f"abfss://{container}@{ACCOUNT}{zone}.dfs.core.windows.net/t" for zone in ("", ".z7"))
    terms = AzureOptions(identity=AccountKey(ACCOUNT_KEY), endpoint=f"{azure.url}/{ACCOUNT}")
    line = Aliased(
        policy_of(), Names({second: first}), RemoteStore(AzureClient(terms, pool), StoreService(IMPOSSIBLE_ETAG))
    )
    await line.lay(line.catalog.create(A, first))
    await line.hear(Notification(A), seconds=60)
    # One that is known by its spelling alone, and then the other host, there and back.
    blobs = f"wasbs://{container}@{ACCOUNT.upper()}.blob.core.windows.net/t"
    for location in (blobs, second, first):
        table = line.catalog.commit(A, location)
        await line.hear(Notification(A), seconds=60)
        assert line.guarded.harm == []
        held = await line.inner.read(key_of(A, canonical(location)))
        hint = await line.inner.read(version_hint.key_of(canonical(location)))
        assert held is not None
        assert hint is not None
        document = json.loads(held.body)
        assert (document["state"], document["metadata_file_path"]) == ("current", table.metadata_location)
        assert hint.body == version_hint.content(table)
    await pool.close()


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Attributes:
        verb: what.
        table: to which table.
        other: and which other one.
        location: where its table is from then on.
        naming: what files are called from then on.
        fails_after: so many changes of the next publish are made before its worker dies; None for all.
        pause: seconds that pass until the next step.
        late: the table's refresh is due by then as well.
    """

    verb: str
    table: TableIdentifier
    other: TableIdentifier
    location: str
    naming: str
    fails_after: int | None
    pause: float
    late: bool = False


def histories(locations: Sequence[str], longest: int) -> st.SearchStrategy[list[Step]]:
    """What may happen to tables in these locations."""
    verbs = ["commit"] * 2 + ["relocate"] * 4 + ["copy"] * 2
    verbs += ["create", "create", "drop", "rename", "naming", "refresh"]
    tables = st.sampled_from([A, B, C])
    return st.lists(
        st.builds(
            Step,
            st.sampled_from(verbs),
            tables,
            tables,
            st.sampled_from(locations),
            st.sampled_from(list(NAMINGS)),
            st.sampled_from([None, None, None, 0, 1, 2]),
            st.sampled_from([0.5, 30, 200]),
            st.booleans(),
        ),
        min_size=2,
        max_size=longest,
    )


async def lived(line: Aliased, steps: Sequence[Step]) -> None:
    """Let it happen, and see what is there in the end."""
    catalog = line.catalog
    await line.lay(catalog.create(A, steps[0].location))
    await line.hear(Notification(A), seconds=30)
    for step in steps:
        line.guarded.fails_after = step.fails_after
        hints = await happened(line, step)
        await line.hear(*hints, seconds=step.pause)
        line.guarded.fails_after = None
    # A sweep finds them all, and everything that waits has its turn.
    await line.hear(*(Notification(name) for name in (A, B, C)), seconds=1_000)
    await line.hear(*(Notification(name) for name in (A, B, C)), seconds=1_000)
    await line.check()


async def happened(line: Aliased, step: Step) -> list[Notification]:
    """Do one thing in the catalog or the settings, and say what is told of it."""
    catalog, name, other = line.catalog, step.table, step.other
    if step.late:
        line.clock.turn(line.policy.refresh_after.total_seconds())
    match step.verb:
        case "naming":
            line.policy = replace(line.policy, naming=NAMINGS[step.naming])
            return [Notification(A), Notification(B), Notification(C)]
        case "refresh":
            line.clock.turn(line.policy.refresh_after.total_seconds())
            return []
        case "create" if catalog.current(name) is None:
            await line.lay(catalog.create(name, step.location))
            return [Notification(name)]
        case "rename" if catalog.current(name) is not None and catalog.current(other) is None:
            catalog.rename(name, other)
            await line.lay(catalog.commit(other, step.location))
            return [Notification(name, renamed_to=other), Notification(other)]
        case "drop" if catalog.current(name) is not None:
            catalog.drop(name)
            return [Notification(name, drop=True)]
        case "copy" if (table := catalog.current(name)) is not None and table.location != step.location:
            await line.copy(name, step.location)
            return [Notification(name)]
        case verb if catalog.current(name) is not None:
            await line.lay(catalog.commit(name, step.location if verb == "relocate" else None))
            return [Notification(name)]
    return []


@pytest.mark.slow
@settings(max_examples=150)
@given(
    histories([REAL, LINK, MOUNT, BUCKET, ELSEWHERE], 6),
    st.sampled_from(list(NAMINGS)),
    st.sampled_from(list(Placement)),
    st.sampled_from(list(OnDrop)),
    st.booleans(),
)
def test_no_plan_harms_the_live_document_whatever_its_place_is_called(
    steps: list[Step], naming: str, placement: Placement, on_drop: OnDrop, conditional: bool
) -> None:
    note(f"{steps} {naming} {placement} {on_drop} {conditional}")

    async def run() -> None:
        names = Names(ALIASES)
        policy = replace(policy_of(NAMINGS[naming], placement), on_drop=on_drop)
        line = Aliased(policy, names, AliasedStore(names, conditional_delete=conditional))
        await lived(line, steps)

    anyio.run(run)


@pytest.mark.slow
@settings(max_examples=8)
@given(histories([REAL, LINK, MOUNT, ELSEWHERE], 4), st.sampled_from(list(NAMINGS)))
def test_nor_does_one_on_a_file_system_with_symbolic_links(steps: list[Step], naming: str) -> None:
    note(f"{steps} {naming}")
    with TemporaryDirectory() as name:
        lake = lake_in(Path(name))
        (lake / "mount").symlink_to(lake / "link")
        anyio.run(lived_below, lake, steps, naming)


@pytest.mark.slow
def test_nor_does_one_where_a_folder_is_mounted_twice(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    (lake / "mount").mkdir()
    mounted = 'mount --bind "$0/real" "$0/mount" && exec "$@"'
    launcher = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted, str(lake)]
    code = "import sys; from tests.unit.test_publish_aliases import by_mounts; by_mounts(sys.argv[1])"
    done = subprocess.run([*launcher, sys.executable, "-c", code, lake], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "lived"), done.stderr


def by_mounts(lake: str) -> None:
    """There and back by each name, with commits between them, a rename and a drop at last."""
    assert Path(lake, "real").stat().st_ino == Path(lake, "mount").stat().st_ino
    places, plain = (MOUNT, REAL, LINK, MOUNT), Step("relocate", A, A, REAL, "identifier", None, 30)
    steps = [replace(plain, location=place) for place in places]
    steps += [replace(plain, verb="rename", other=B), replace(plain, table=B, location=MOUNT, fails_after=1)]
    steps += [replace(plain, table=B, location=ELSEWHERE), replace(plain, verb="create", location=MOUNT)]
    for naming in NAMINGS:
        for folder in ("real", "elsewhere"):
            for path in Path(lake, folder).rglob("*.*"):
                path.unlink()
        anyio.run(lived_below, Path(lake), steps, naming)
    sys.stdout.write("lived")


def lake_in(folder: Path) -> Path:
    """The directories, and one more name of one of them."""
    lake = folder / "lake"
    for name in ("real", "elsewhere"):
        (lake / name / "metadata").mkdir(parents=True)
    (lake / "link").symlink_to("real")
    return lake


async def lived_below(lake: Path, steps: Sequence[Step], naming: str) -> None:
    """A history in a folder of this machine, of which `link` and `mount` are names of `real`."""
    at = {place: f"file://{lake}/{place.rpartition('/')[2]}" for place in (REAL, LINK, MOUNT, ELSEWHERE)}
    names = Names({at[LINK]: at[REAL], at[MOUNT]: at[REAL]})
    line = Aliased(policy_of(NAMINGS[naming]), names, LocalStore(f"file://{lake}", lock_timeout=1.0))
    line.places = at[REAL], at[ELSEWHERE]
    await lived(line, [replace(step, location=at[step.location]) for step in steps])
