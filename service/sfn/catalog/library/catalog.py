"""The catalog port over PyIceberg."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from sfn.catalog import Skip, Withheld
from sfn.catalog.library.settings import LibrarySettings
from sfn.catalog.refusal import Refusal, Refused, both
from sfn.catalog.walk import walk
from sfn.errors import Permanent, Scope, Transient
from sfn.threads import Late, Threads
from sfn.words import Answer, TableName, Told

if TYPE_CHECKING:
    from sfn.catalog.library.desk import Desk

T = TypeVar("T")

LEFT_BEHIND: Final = 56
"""Calls that may hang for ever without keeping others from being made: Hive's socket and REST's have no time-out."""
CLOSED_WITHIN: Final = 2.0
"""Seconds for saying goodbye to a server."""


class LibraryCatalog:
    """A catalog behind PyIceberg. It is only read: nothing is made or changed in it.

    Scope of trouble: as in behaviour.md; where one error cannot tell, one listing of the outermost namespaces decides.
    In `tables` scope table means that the walk has that trouble while the catalog answers other questions. A metadata
    file that can't be read is its table's trouble, unless one that could be read before can't be any more.

    Args:
        settings: which, as whom, how long.

    Raises:
        SfnError: PyIceberg, or what it needs for such a catalog, is not installed.
    """

    def __init__(self, settings: LibrarySettings) -> None:
        self._settings = settings
        self._desk = _desk(settings)
        self._threads = Threads(
            settings.max_in_flight, settings.request_timeout, Scope.CATALOG, spare=LEFT_BEHIND, only_looks=True
        )
        self._deciding = anyio.Lock()
        self._decided_at = -1.0
        self._decision: Refusal | None = None

    async def load(self, table: TableName, known: str | None, told: Told | None = None) -> Answer:
        """As the port promises.

        The entity tag stands for the location of the metadata file, which is not opened while it stays the same. A
        table of another kind than Iceberg's, as Hive and Glue may hold, is `Missing`: `listed` and `tables` pass over
        it too, and where an Iceberg table made way for it, that one is gone.
        """
        return await self._told(f"load {table.identifier}", lambda: self._desk.load(table, known))

    async def listed(self, table: TableName) -> bool:
        """As the port promises."""
        async with aclosing(self._tables(table.namespace)) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.identifier:
                    return True
        return False

    async def tables(self, skip: Skip | None = None) -> AsyncGenerator[TableName | Withheld]:
        """As the port promises.

        A SQL catalog is withheld as a whole where its database holds others and nothing under its own name: PyIceberg's
        users often call theirs `default`, and under a wrong name all tables would be gone.
        """
        is_empty = True
        async with aclosing(walk(self._settings.name, self._tables, self.namespaces, skip)) as found:
            async for one in found:
                is_empty = False
                yield one
        if is_empty and self._settings.kind == "sql":
            others = await self._told("list the catalogs", self._desk.namesakes)
            if others:
                yield self._misnamed(others)

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """As `Divided` promises."""
        for found in await self._listing(f"list below {'.'.join(parent)}", lambda: self._desk.namespaces(parent)):
            yield found

    async def within(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableName]:
        """As `Divided` promises."""
        async with aclosing(self._tables(namespace)) as found:
            async for levels, name in found:
                yield TableName(self._settings.name, levels, name)

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files; see `LibrarySettings.identity`.

        Raises:
            Transient, Permanent: scope catalog; it does not answer.
        """
        refusal = await self._decided()
        if refusal is not None:
            raise self._trouble(refusal, Scope.CATALOG)
        return self._settings.identity()

    async def close(self) -> None:
        """Close all connections but those that hang."""
        with anyio.move_on_after(CLOSED_WITHIN, shield=True):
            await self._threads.run(f"catalog {self._settings.name}: close", lambda _: self._desk.close())

    def _misnamed(self, others: list[str]) -> Withheld:
        why = f"its database holds {', '.join(others)}, and nothing of {self._settings.own_name}"
        right = f"= {json.dumps(others[0], ensure_ascii=False)}" if len(others) == 1 else "to one of these"
        return Withheld((), why, f"set {self._settings.place('name')} {right}")

    async def _tables(self, namespace: tuple[str, ...]) -> AsyncGenerator[tuple[tuple[str, ...], str]]:
        for found in await self._listing(f"list {'.'.join(namespace)}", lambda: self._desk.tables(namespace)):
            yield found

    async def _listing(self, what: str, ask: Callable[[], T]) -> T:
        """As `_told`, of a listing: one namespace may hang while the catalog lists others."""
        return await self._told(what, ask, late=None)

    async def _told(self, what: str, ask: Callable[[], T], late: Scope | None = Scope.CATALOG) -> T:
        """What an answer gives; raises Transient or Permanent where there is none.

        Args:
            what: is asked.
            ask: asks it.
            late: the scope of an answer that does not come in time; None: another question decides.
        """
        try:
            return await self._answer(what, ask, late)
        except Refused as refused:
            refusal = refused.refusal
        scope = refusal.reach
        if scope is None:
            other = await self._decided()
            scope = Scope.TABLE if other is None else Scope.CATALOG
            refusal = refusal if other is None else both(refusal, other)
        raise self._trouble(refusal, scope)

    async def _answer(self, what: str, ask: Callable[[], T], late: Scope | None = Scope.CATALOG) -> T:
        where = f"catalog {self._settings.name}: {what}"
        answer = await self._threads.run(where, lambda _: ask())
        if not isinstance(answer, Late):
            return answer
        found = "none" if answer.begun else "no free thread: earlier calls have not returned"
        raise Refused(
            Refusal(
                where,
                expected=f"an answer to PyIceberg within {self._settings.request_timeout:g} s",
                found=found,
                remedy="look into the catalog's own log and its load, and what is between here and there",
                reach=late if answer.begun else Scope.CATALOG,
            )
        )

    async def _decided(self) -> Refusal | None:
        """Why the catalog answers nothing at all, or None, by an answer that came after this call."""
        since = anyio.current_time()
        async with self._deciding:
            # Without sharing, the last of many that wait on a dead catalog would wait for all their time-outs in turn.
            if self._decided_at < since:
                try:
                    await self._answer("list all", lambda: self._desk.namespaces(()))
                except Refused as refused:
                    self._decision = refused.refusal
                else:
                    self._decision = None
                self._decided_at = anyio.current_time()
            return self._decision

    def _trouble(self, refusal: Refusal, scope: Scope) -> Transient | Permanent:
        return refusal.trouble(scope, self._settings.secrets())


def check(settings: LibrarySettings) -> None:
    """See whether a catalog can be opened, without asking it.

    Raises:
        SfnError: PyIceberg, or what it needs for such a catalog, is not installed.
    """
    _desk(settings)


def _desk(settings: LibrarySettings) -> Desk:
    """PyIceberg takes a second to be imported, and it is optional."""
    try:
        from sfn.catalog.library import desk, opening
    except ImportError as error:
        raise settings.not_installed(error) from None
    opening.check(settings)
    return desk.Desk(settings)
