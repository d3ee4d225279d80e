"""One walk over a catalog that tells what a sweep would find, and changes nothing: no inbox, no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from sfn.catalog import Catalog, Withheld
from sfn.errors import LocationRefused, Permanent, Scope, Trouble
from sfn.pointer.location import checked
from sfn.publish.comparison import Difference, Kind, compare
from sfn.publish.facts import Facts, Lacking, LoadTable, Look, ReadFiles, Seen
from sfn.publish.policy import Policy
from sfn.store import Stores
from sfn.words import Loaded, Missing, Table, TableName
from sfn.work.sources import Source
from sfn.work.vended import Vended

T = TypeVar("T")

_ANY_TIME = datetime.min.replace(tzinfo=UTC)
"""When the catalog was asked, which counts for nothing where nothing is written."""
WIDTH = 16
"""Tables that are looked at, at a time."""


@dataclass(slots=True)
class Found:
    """What a walk found, as far as it is.

    Attributes:
        listed: tables that the catalog lists and the policy covers.
        complete: no more will be listed.
        tables: those that were looked at.
        differences: what differs.
        withheld: namespaces that may not be listed, and why.
        failed: tables that could not be looked at, and why.
    """

    listed: int = 0
    complete: bool = False
    tables: int = 0
    differences: list[Difference] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)
    failed: list[tuple[TableName, str]] = field(default_factory=list)


class Survey:
    """One walk.

    Args:
        catalog: is listed, and asked for each table.
        stores: hold the files.
        policy: the catalog's settings.
        moved: called after each table.
        vended: what opens the tables' places, where the catalog says it.
    """

    def __init__(
        self,
        catalog: Catalog,
        stores: Stores,
        policy: Policy,
        moved: Callable[[Found], None],
        vended: Vended | None = None,
    ) -> None:
        self._source = Source(catalog, policy, vended)
        self._catalog, self._stores, self._policy, self._moved = catalog, stores, policy, moved
        self._found = Found()

    async def run(self) -> Found:
        """Walk.

        Raises:
            Trouble: the catalog can't be asked; what was found until then is lost.
        """
        send, receive = anyio.create_memory_object_stream[TableName](WIDTH)
        try:
            async with anyio.create_task_group() as tasks, send:
                for _ in range(WIDTH):
                    tasks.start_soon(self._each, receive.clone())
                receive.close()
                async for one in self._catalog.tables(self._policy.interest.leaves_out):
                    if isinstance(one, Withheld):
                        self._found.withheld.append(one)
                    elif self._policy.interest.covers(one):
                        self._found.listed += 1
                        await send.send(one)
                self._found.complete = True
        except ExceptionGroup as group:
            trouble = next((error for error in group.exceptions if isinstance(error, Trouble)), None)
            if trouble is None:
                raise
        else:
            self._found.differences.sort(key=lambda difference: difference.table)
            return self._found
        raise trouble

    async def _each(self, tables: MemoryObjectReceiveStream[TableName]) -> None:
        with tables:
            async for table in tables:
                try:
                    difference = await self._compared(table)
                except Trouble as trouble:
                    if trouble.scope is not Scope.TABLE:
                        raise
                    self._found.failed.append((table, str(trouble)))
                else:
                    self._found.differences += [difference] if difference is not None else []
                self._found.tables += 1
                self._moved(self._found)

    async def _compared(self, name: TableName) -> Difference | None:
        answer = await self._catalog.load(name, None)
        if not isinstance(answer, Loaded):
            # Dropped since it was listed, or not written yet: nothing that a file could say.
            return None
        try:
            return await self._at_its_place(name, answer.table)
        except LocationRefused as refused:
            return Difference(name, Kind.LOCATION_REFUSED, str(refused))
        except Permanent as refused:
            if refused.scope is not Scope.TABLE:
                raise
            return Difference(name, Kind.PERMANENT, str(refused))

    async def _at_its_place(self, name: TableName, table: Table) -> Difference | None:
        checked(table.metadata_location, self._policy.allowed)
        place = checked(table.location, self._policy.allowed)
        stores = self._source.stores(name, self._stores)
        return await learnt(lambda facts: compare(name, table, place, facts, self._policy), stores, self._catalog)


async def learnt(decide: Callable[[Facts], T], stores: Stores, catalog: Catalog) -> T:
    """What is decided from files, and from what the catalog says of other tables, once those were looked at.

    Raises:
        Trouble: a store or the catalog failed.
        LocationRefused: no store is configured for one of them.
    """
    facts = Facts()
    while True:
        try:
            return decide(facts)
        except Lacking as lacking:
            question = lacking.question
        match question:
            case ReadFiles(keys):
                for key in keys:
                    facts.files[key] = Seen(await stores.at(key).read(key), facts.next_turn())
            case LoadTable(other):
                answer = await catalog.load(other, None)
                found = answer.table if isinstance(answer, Loaded) else Missing()
                facts.looks[other] = Look(found, None, _ANY_TIME, _ANY_TIME, facts.next_turn())
            case _:
                raise TypeError(question)
