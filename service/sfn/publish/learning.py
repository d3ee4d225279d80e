"""How a publish learns what its decision asks for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import assert_never

from sfn.catalogs import Catalog
from sfn.catalogs.spelling import ListingUnavailable, Spellings
from sfn.clock import Clock
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import LeasedJob, PublishCache
from sfn.errors import ErrorScope, LocationRefused, Transient
from sfn.inbox import JobQueue, TableIndex
from sfn.publish.facts import (
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
    folder_of,
)
from sfn.publish.inventory import is_ours, parse_or_none, pointer_files
from sfn.publish.learnt import recover_history
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import Guarantees, StoreRouter


class LeaseLost(Exception):
    """The lease was lost while publishing; nothing may be settled."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What one publish talks to.

    Attributes:
        spellings: how the catalog lists names; None: it is not asked.
    """

    queue: JobQueue
    table_index: TableIndex
    catalog: Catalog
    stores: StoreRouter
    clock: Clock
    spellings: Spellings | None = None


class QueryRunner:
    """Asks the world for one publish.

    Attributes:
        latest_cache: what is remembered, with the catalog's last answer.
    """

    def __init__(self, job: LeasedJob, ports: Ports, policy: Policy) -> None:
        if not isinstance(job.subject, TableIdentifier):
            raise TypeError(job.subject)
        self.job, self.ports, self.policy, self.name = job, ports, policy, job.subject
        self.latest_cache = job.cache

    async def run(self, query: PublishQuery, observations: Observations) -> None:
        """Ask the world what the decision lacks."""
        ports = self.ports
        match query:
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
        """Return what the store of a key is proven to do.

        The proof's file lies in a folder of SFN files, also where the key is a version hint: policies may permit no
        other name beside that.
        """
        location = version_hint.location_of(key)
        folder = key if location is None else FileLayout(location, placement=self.policy.placement).folder
        return await self.ports.stores.store_for(key).probe(folder)

    async def _query_files(
        self, query: ReadFiles | ListFolder | FindFiles | ProbeStore, observations: Observations
    ) -> None:
        """Look at files."""
        stores = self.ports.stores
        match query:
            case ReadFiles(keys):
                for key in keys:
                    observations.files[key] = ObservedFile(
                        await stores.store_for(key).read(key), observations.next_sequence()
                    )
            case ListFolder(prefix):
                observations.folders[prefix] = tuple(await stores.store_for(prefix).list(prefix, MAX_LISTED_FILES + 1))
            case ProbeStore(key):
                observations.guarantees_by_folder[folder_of(key)] = await self.probe(key)
            case FindFiles(keys):
                for key in keys:
                    observations.existence[key] = await self._exists(key)
            case _:
                assert_never(query)

    async def _list_spellings(self, table: TableIdentifier, observations: Observations, *, fresh: bool) -> None:
        """Compare a name with what the catalog lists."""
        spellings = self.ports.spellings
        try:
            alike = await spellings.matching_names(table, fresh=fresh) if spellings is not None else None
        except ListingUnavailable:
            alike = None
            observations.failed_listings.add(table)
        observations.spellings[table] = alike or ()

    async def _exists(self, key: str) -> bool:
        try:
            return await self.ports.stores.store_for(key).read_range(key, 0, 1) is not None
        except LocationRefused:
            return False

    async def _record_location(self, layout: str, uuid: str | None) -> Collection[TableIdentifier]:
        others = await self.ports.queue.record_location(self.job, layout, uuid)
        if others is None:
            raise LeaseLost
        return others

    async def _load(self, table: TableIdentifier, observations: Observations) -> CatalogAnswer:
        cached = self.latest_cache if table == self.name else PublishCache()
        asked = self.ports.clock.now()
        history = await self._event_history(table, observations) if self.policy.event_only else None
        loaded = await self.ports.catalog.load(table, cached.etag if cached.table is not None else None, history)
        answered = self.ports.clock.now()
        if isinstance(loaded, Loaded):
            if table == self.name:
                self.latest_cache = replace(self.latest_cache, table=loaded.table, etag=loaded.etag)
            return CatalogAnswer(
                loaded.table, loaded.etag, asked, answered, observations.next_sequence(), loaded.applied
            )
        if isinstance(loaded, NotModified) and cached.table is not None:
            return CatalogAnswer(
                cached.table, cached.etag, asked, answered, observations.next_sequence(), loaded.applied
            )
        if isinstance(loaded, NotModified):
            raise Transient(
                str(table),
                scope=ErrorScope.TABLE,
                expected="a table or its absence",
                found="304 without being asked for it",
            )
        applied = loaded.applied if isinstance(loaded, NoSuchTable) else None
        return CatalogAnswer(loaded, None, asked, answered, observations.next_sequence(), applied)

    async def _event_history(self, table: TableIdentifier, observations: Observations) -> EventHistory | None:
        """What was told of a table by now: the claim may be older, and a tag must be older than the answer."""
        history, table_state = await self.ports.table_index.event_history(table), self.job.table_state
        # Whatever lies at a place of a row that never settled was written for what is told.
        is_unsettled = bool(self.job.locations) and not table_state.has_settled
        if table != self.name or table_state.event_history is not None or is_unsettled:
            return history
        await self.run(ReadFiles(tuple(key for key in self._own_keys() if key not in observations.files)), observations)
        recovered = recover_history(self.job, self.name, observations.files.values(), self.policy)
        return replace(recovered, reported_changes=history.reported_changes) if history is not None else recovered

    def new_cache(self, observations: Observations) -> PublishCache:
        """What the next publish may begin with."""
        mine = set(self._own_keys())
        tags = {
            key: observed.stored
            for key, observed in observations.files.items()
            if key in mine or self._is_ours(observed, key)
        }
        return replace(self.latest_cache, objects=tags)

    def _own_keys(self) -> list[str]:
        """The keys of this row: only these may be remembered, others change behind its back."""
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
