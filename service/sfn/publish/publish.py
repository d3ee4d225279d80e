"""One publish: run the decision, answer its queries, carry out its plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import assert_never, cast

from msgspec import structs

from sfn.catalogs import Catalog, Loaded, NoSuchTable, NotModified
from sfn.catalogs.spelling import ListingUnavailable, Spellings
from sfn.clock import Clock
from sfn.concurrency import run_all
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, Done, LeasedJob, PublishCache, Rescheduled
from sfn.errors import ErrorScope, LocationRefused, Transient
from sfn.inbox import JobQueue, TableIndex
from sfn.publish.context import PublishPlan, Put, Remove
from sfn.publish.decide import decide
from sfn.publish.existing_files import is_ours, parse_or_none, pointer_files
from sfn.publish.policy import Policy
from sfn.publish.queries import (
    MAX_LISTED_FILES,
    CatalogAnswer,
    FindFiles,
    IsListed,
    IsStepAllowed,
    ListedSpellings,
    ListFolder,
    LoadTable,
    Observations,
    ObservedFile,
    ProbeStore,
    PublishQuery,
    ReadFiles,
    RecordLocation,
    TablesAtLocation,
    TablesWithUuid,
    Together,
    folder_of,
)
from sfn.sfnfile import version_hint
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import GroupReader, Guarantees, PreconditionFailed, ReadGroup, StoreRouter

MAX_LOST_RACES = 8
"""Lost races after which a publish gives up and retries later."""


class LeaseLost(Exception):
    """The lease was lost during the publish; nothing may be settled."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that one publish uses.

    Attributes:
        spellings: the names that the catalog lists; None to skip that check.
    """

    queue: JobQueue
    table_index: TableIndex
    catalog: Catalog
    stores: StoreRouter
    clock: Clock
    spellings: Spellings | None = None


async def publish(job: LeasedJob, ports: Ports, policy: Policy, *, jitter: float) -> Done | Rescheduled | DeadLettered:
    """Update one table's files to match the catalog.

    Args:
        job: a leased job of a table.
        ports: catalog, stores, inbox and clock.
        policy: the settings of the catalog.
        jitter: a number in [0, 1) that spreads the refreshes.

    Raises:
        LeaseLost: the lease was lost.
        ExternalError: something outside failed, or other writers won every race. A later publish repairs a partial
            write.
    """
    return await _Publish(job, ports, policy, jitter).run()


class _Publish:
    def __init__(self, job: LeasedJob, ports: Ports, policy: Policy, jitter: float) -> None:
        if not isinstance(job.subject, TableIdentifier):
            raise TypeError(job.subject)
        self.job, self.ports, self.policy, self.jitter = job, ports, policy, jitter
        self.name = job.subject
        self.now = ports.clock.now()
        self.queries = QueryRunner(job, ports, policy)
        self.written_keys: dict[str, None] = {}

    async def run(self) -> Done | Rescheduled | DeadLettered:
        refresh_at = self.job.table_state.refresh_at
        refresh = refresh_at is not None and self.now >= refresh_at
        observations = (
            Observations() if refresh or self.job.pending.force else Observations.of_cache(self.job.cache.objects)
        )
        for _ in range(MAX_LOST_RACES):
            decision = await self._decide(observations)
            if not isinstance(decision, PublishPlan):
                return self._finish(decision, observations, planned=False)
            if await self._apply(decision, observations):
                return self._finish(decision.outcome, observations, planned=True)
            observations = Observations(must_list_folders=True)
        raise Transient(
            str(self.name),
            scope=ErrorScope.TABLE,
            expected="no other writer at its files",
            found=f"{MAX_LOST_RACES} lost races in a row",
        )

    async def _decide(self, observations: Observations) -> PublishPlan | Done | Rescheduled | DeadLettered:
        while True:
            decision = decide(self.job, observations, self.policy, now=self.now, jitter=self.jitter)
            if isinstance(decision, PublishPlan | Done | Rescheduled | DeadLettered):
                return decision
            await self.queries.run(decision, observations)

    async def _apply(self, plan: PublishPlan, observations: Observations) -> bool:
        """Make all changes in order. Return False if a race was lost; the later changes are not made then."""
        written: dict[bytes, str] = {}
        for change in plan.changes:
            if change.replacing is not None and written.get(change.replacing.body, change.key) != change.key:
                # This plan may have written the file under another name of the place. Decide again with both files.
                return False
            if isinstance(change, Put):
                # Unchanged bytes, as of a refreshed hint, are no sign of another name of the place.
                if change.replacing is None or change.replacing.body != change.body:
                    written[change.body] = change.key
                made = await (
                    self._put(change, observations) if change.check is None else self._put_hint(change, observations)
                )
            else:
                made = await self._delete(change, observations)
            if not made:
                return False
        return await self._is_confirmed(plan, observations)

    async def _is_confirmed(self, plan: PublishPlan, observations: Observations) -> bool:
        """Return whether the plan's assumptions hold after its changes."""
        for key, other in plan.aliases:
            stored, alias_stored = observations.file(key), await self.ports.stores.store_for(other).read(other)
            if (stored and stored.body) != (alias_stored and alias_stored.body):
                return False
        for key in plan.unchanged_keys:
            if await self.ports.stores.store_for(key).read(key) != observations.file(key):
                return False
        return True

    async def _put(self, change: Put, observations: Observations) -> bool:
        store = self.ports.stores.store_for(change.key)
        # A store that fails the probe gets no file at all.
        await self.queries.probe(change.key)
        written = await store.write(change.key, change.body, change.replacing)
        if isinstance(written, PreconditionFailed):
            return False
        self.written_keys[change.key] = None
        observations.files[change.key] = ObservedFile(written, observations.next_sequence())
        return True

    async def _delete(self, change: Remove, observations: Observations) -> bool:
        store = self.ports.stores.store_for(change.key)
        if isinstance(await store.delete(change.key, change.replacing), PreconditionFailed):
            return False
        self.written_keys[change.key] = None
        observations.files[change.key] = ObservedFile(None, observations.next_sequence())
        return True

    async def _put_hint(self, hint: Put, observations: Observations) -> bool:
        """Write the version hint and check that its preconditions still hold.

        A new hint is written in two steps with a check between them. "No file exists" can become true again while a
        writer sleeps; the unique text of the placeholder cannot.
        """
        if hint.replacing is None:
            nonce = f"{self.ports.clock.now():%Y%m%dT%H%M%S%f}-{self.job.fencing_token}"
            placeholder = replace(hint, body=version_hint.cleared_content(nonce), check=None)
            if not await self._put(placeholder, observations):
                return False
            if not await self._is_still_alone(hint, observations):
                await self._remove_placeholder(placeholder, observations)
                return False
            hint = replace(hint, replacing=observations.file(hint.key))
        return await self._put(hint, observations) and await self._is_still_valid(hint, observations)

    async def _remove_placeholder(self, placeholder: Put, observations: Observations) -> None:
        """Delete the placeholder; its text is unique, so only a store without conditional deletes keeps it."""
        store, stored = self.ports.stores.store_for(placeholder.key), observations.file(placeholder.key)
        if stored is not None and (await self.queries.probe(placeholder.key)).conditional_delete:
            await store.delete(placeholder.key, stored)

    async def _is_still_valid(self, hint: Put, observations: Observations) -> bool:
        """Return whether the document beside the hint is unchanged and no other job came to live there."""
        if hint.check is None:
            return True
        key, layout = hint.check
        if await self.ports.stores.store_for(key).read(key) != observations.file(key):
            return False
        uuid = next((query.uuid for query in observations.names_by_query if isinstance(query, RecordLocation)), None)
        return await self.ports.queue.record_location(self.job, layout.encoded, uuid) == frozenset()

    async def _is_still_alone(self, hint: Put, observations: Observations) -> bool:
        """Return whether no other file came into the folder since the listing, and the hint is still valid."""
        if hint.check is None or not await self._is_still_valid(hint, observations):
            return False
        key, layout = hint.check
        listed = await self.ports.stores.store_for(key).list(layout.folder, MAX_LISTED_FILES + 1)
        return set(pointer_files(listed)) <= {key, *self.written_keys, *observations.folders.get(layout.folder, ())}

    def _finish(
        self, outcome: Done | Rescheduled | DeadLettered, observations: Observations, *, planned: bool
    ) -> Done | Rescheduled | DeadLettered:
        """Return the outcome with the cache and the written keys of all rounds, also of those that lost a race."""
        if outcome.result is None:
            return outcome
        cache, written = self.queries.new_cache(observations), tuple(self.written_keys)
        cache = structs.replace(cache, has_woken=cache.has_woken or outcome.result.cache.has_woken)
        if not (planned or observations.is_from_cache or isinstance(outcome, Done)):
            # The decision may have stopped before it saw the files of an earlier publish that crashed.
            cache = structs.replace(cache, objects={})
        pause_ends = observations.answer_for(self.name).answered_at + self.policy.min_publish_interval
        result = replace(outcome.result, cache=cache, written_keys=written, not_before=pause_ends if written else None)
        return replace(outcome, result=result)


class QueryRunner:
    """The queries of one publish: asks catalog, stores and inbox, and fills the observations.

    Attributes:
        latest_cache: the cache of the job, updated with the catalog's last answer.
    """

    def __init__(self, job: LeasedJob, ports: Ports, policy: Policy) -> None:
        if not isinstance(job.subject, TableIdentifier):
            raise TypeError(job.subject)
        self.job, self.ports, self.policy, self.name = job, ports, policy, job.subject
        self.latest_cache = job.cache

    async def run(self, query: PublishQuery | Together, observations: Observations) -> None:
        """Answer what the decision asks."""
        ports = self.ports
        match query:
            case Together(queries):
                await self._run_together(queries, observations)
            case ReadFiles() | ListFolder() | FindFiles() | ProbeStore():
                await self._query_files(query, observations)
            case LoadTable(table):
                observations.answers[table] = await self._load(table, observations)
            case IsListed(table):
                observations.checks[query] = await ports.catalog.is_listed(table)
            case ListedSpellings(table, fresh):
                await self._list_spellings(table, observations, fresh=fresh)
            case IsStepAllowed(step):
                observations.checks[query] = await ports.queue.allow_step(self.job, step, ports.clock.now())
            case TablesWithUuid(uuid):
                observations.tables_by_uuid[uuid] = tuple(await ports.table_index.with_uuid(self.name.catalog, uuid))
            case TablesAtLocation(location):
                observations.names_by_query[query] = await ports.table_index.at_location(self.name, location)
            case RecordLocation(site, uuid):
                observations.names_by_query[query] = await self._record_location(site, uuid)
            case _:
                assert_never(query)

    async def probe(self, key: str) -> Guarantees:
        """Return the proven guarantees of a key's store.

        The probe file lies in a folder of SFN files, also for a version hint, because a store's access policy may
        permit no other name.
        """
        location = version_hint.location_of(key)
        folder = key if location is None else FileLayout(location, placement=self.policy.placement).folder
        return await self.ports.stores.store_for(key).probe(folder)

    async def _query_files(
        self, query: ReadFiles | ListFolder | FindFiles | ProbeStore, observations: Observations
    ) -> None:
        if isinstance(query, ProbeStore):
            observations.guarantees_by_folder[folder_of(query.key)] = await self.probe(query.key)
        else:
            await run_all(self._file_calls((query,), observations))

    async def _run_together(self, queries: Iterable[PublishQuery], observations: Observations) -> None:
        files: list[ReadFiles | ListFolder | FindFiles] = []
        others: list[Callable[[], Awaitable[None]]] = []
        for query in queries:
            if isinstance(query, ReadFiles | ListFolder | FindFiles):
                files.append(query)
            else:
                others.append(partial(self.run, query, observations))
        await run_all([*self._file_calls(files, observations), *others])

    def _file_calls(
        self, queries: Iterable[ReadFiles | ListFolder | FindFiles], observations: Observations
    ) -> list[Callable[[], Awaitable[None]]]:
        """Return the calls that answer questions about files: one for all questions to a store that groups them."""
        calls: list[Callable[[], Awaitable[None]]] = []
        groups: dict[GroupReader, list[tuple[type[PublishQuery], str]]] = {}
        for query in queries:
            match query:
                case ReadFiles(keys):
                    answer: Callable[[str, Observations], Awaitable[None]] = self._read
                case FindFiles(keys):
                    answer = self._find
                case ListFolder(prefix):
                    keys, answer = (prefix,), self._list
                case _:
                    assert_never(query)
            for key in keys:
                store = self._group_reader(key)
                if store is None:
                    calls.append(partial(answer, key, observations))
                else:
                    groups.setdefault(store, []).append((type(query), key))
        return [*calls, *(partial(self._read_group, *one, observations) for one in groups.items())]

    def _group_reader(self, key: str) -> GroupReader | None:
        """Return the store of a key if it answers questions together; None also without a store."""
        try:
            store = self.ports.stores.store_for(key)
        except LocationRefused:
            return None
        return cast("GroupReader", store) if _is_group_reader(type(store)) else None

    async def _read_group(
        self, store: GroupReader, questions: Iterable[tuple[type[PublishQuery], str]], observations: Observations
    ) -> None:
        keys: dict[type[PublishQuery], list[str]] = {ReadFiles: [], FindFiles: [], ListFolder: []}
        for kind, key in questions:
            keys[kind].append(key)
        answers = await store.read_group(
            ReadGroup(tuple(keys[ReadFiles]), tuple(keys[FindFiles]), tuple(keys[ListFolder]), MAX_LISTED_FILES + 1)
        )
        for key, stored in answers.contents.items():
            observations.files[key] = ObservedFile(stored, observations.next_sequence())
        observations.existence |= answers.existence
        observations.folders |= {prefix: tuple(listed) for prefix, listed in answers.folders.items()}

    async def _list(self, prefix: str, observations: Observations) -> None:
        listed = await self.ports.stores.store_for(prefix).list(prefix, MAX_LISTED_FILES + 1)
        observations.folders[prefix] = tuple(listed)

    async def _read(self, key: str, observations: Observations) -> None:
        stored = await self.ports.stores.store_for(key).read(key)
        observations.files[key] = ObservedFile(stored, observations.next_sequence())

    async def _list_spellings(self, table: TableIdentifier, observations: Observations, *, fresh: bool) -> None:
        spellings = self.ports.spellings
        try:
            alike = await spellings.matching_names(table, fresh=fresh) if spellings is not None else None
        except ListingUnavailable:
            alike = None
            observations.failed_listings.add(table)
        observations.spellings[table] = alike or ()

    async def _find(self, key: str, observations: Observations) -> None:
        try:
            found = await self.ports.stores.store_for(key).read_range(key, 0, 1)
        except LocationRefused:
            found = None
        observations.existence[key] = found is not None

    async def _record_location(self, layout: str, uuid: str | None) -> Collection[TableIdentifier]:
        others = await self.ports.queue.record_location(self.job, layout, uuid)
        if others is None:
            raise LeaseLost
        return others

    async def _load(self, table: TableIdentifier, observations: Observations) -> CatalogAnswer:
        cached = self.latest_cache if table == self.name else PublishCache()
        asked_at = self.ports.clock.now()
        if self.policy.event_only and not self.policy.publishes(table):
            # It gets no files, so a metadata file that cannot be read is no trouble.
            return CatalogAnswer(NoSuchTable(), None, asked_at, asked_at, observations.next_sequence())
        loaded = await self.ports.catalog.load(table, cached.etag if cached.table is not None else None)
        answered_at = self.ports.clock.now()
        if isinstance(loaded, Loaded):
            if table == self.name:
                self.latest_cache = structs.replace(self.latest_cache, table=loaded.table, etag=loaded.etag)
            return CatalogAnswer(loaded.table, loaded.etag, asked_at, answered_at, observations.next_sequence())
        if isinstance(loaded, NotModified) and cached.table is not None:
            return CatalogAnswer(cached.table, cached.etag, asked_at, answered_at, observations.next_sequence())
        if isinstance(loaded, NotModified):
            raise Transient(
                str(table),
                scope=ErrorScope.TABLE,
                expected="a table or its absence",
                found="304 (not modified) to a request without an etag",
            )
        return CatalogAnswer(loaded, None, asked_at, answered_at, observations.next_sequence())

    def new_cache(self, observations: Observations) -> PublishCache:
        """Return the cache for the next publish."""
        own_keys = set(self._own_keys())
        objects = {
            key: observed.stored
            for key, observed in observations.files.items()
            if key in own_keys or self._is_ours(observed, key)
        }
        return structs.replace(self.latest_cache, objects=objects)

    def _own_keys(self) -> list[str]:
        """Return the keys of this job. Only these may be cached; other jobs change the other files."""
        table, layouts = self.latest_cache.table, {FileLayout.parse(text) for text in self.job.locations}
        if table is not None:
            layouts.add(self.policy.layout(self.name, canonical(table.location)))
        owner = FileOwner(self.name.namespace, self.name.name, table.uuid if table is not None else None)
        refs = [None, *(self.policy.branch_heads(table) if table is not None else ())]
        keys = [key for layout in layouts for ref in refs for key in layout.keys(owner, ref)]
        return sorted({*keys, *(version_hint.key_of(layout.location) for layout in layouts if layout.has_version_hint)})

    def _is_ours(self, observed: ObservedFile, key: str) -> bool:
        doc = parse_or_none(observed.stored) if pointer_files([key]) else None
        return doc is not None and is_ours(doc, self.name, self.policy)


@cache
def _is_group_reader(kind: type) -> bool:
    # Cached, because `issubclass` with a protocol takes longer than reading a file.
    return issubclass(kind, GroupReader)
