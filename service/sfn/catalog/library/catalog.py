"""The catalog port over PyIceberg."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from sfn.catalog import SkipNamespace, UnlistedNamespace
from sfn.catalog.library.settings import PyIcebergSettings
from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed, combine
from sfn.catalog.walk import walk_tables
from sfn.concurrency import AbandonableThreads, TimedOut
from sfn.domain.catalog_answer import LoadResult
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient

if TYPE_CHECKING:
    from sfn.catalog.library.desk import PyIcebergClient

T = TypeVar("T")

MAX_HANGING_CALLS: Final = 56
"""Calls that may hang for ever without keeping others from being made: Hive's socket and REST's have no time-out."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds for saying goodbye to a server."""


class PyIcebergCatalog:
    """A catalog behind PyIceberg. It is only read: nothing is made or changed in it.

    Scope of trouble: as in behaviour.md; where one error cannot tell, one listing of the outermost namespaces decides.
    In `tables` scope table means that the walk has that trouble while the catalog answers other questions. A metadata
    file that can't be read is its table's trouble, unless one that could be read before can't be any more.

    Args:
        settings: which, as whom, how long.

    Raises:
        SfnError: PyIceberg, or what it needs for such a catalog, is not installed.
    """

    def __init__(self, settings: PyIcebergSettings) -> None:
        self._settings = settings
        self._client = _client(settings)
        self._threads = AbandonableThreads(
            settings.max_in_flight,
            settings.request_timeout,
            ErrorScope.CATALOG,
            max_abandoned=MAX_HANGING_CALLS,
            read_only=True,
        )
        self._checking = anyio.Lock()
        self._checked_at = -1.0
        self._last_outage: CatalogFailure | None = None

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        """As the port promises.

        The entity tag stands for the location of the metadata file, which is not opened while it stays the same. A
        table of another kind than Iceberg's, as Hive and Glue may hold, is `Missing`: `listed` and `tables` pass over
        it too, and where an Iceberg table made way for it, that one is gone.
        """
        return await self._call(f"load {table.dotted}", lambda: self._client.load(table, known_etag))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """As the port promises."""
        async with aclosing(self._tables(table.namespace)) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.dotted:
                    return True
        return False

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """As the port promises.

        A SQL catalog is withheld as a whole where its database holds others and nothing under its own name: PyIceberg's
        users often call theirs `default`, and under a wrong name all tables would be gone.
        """
        is_empty = True
        async with aclosing(walk_tables(self._settings.name, self._tables, self.namespaces, skip)) as found:
            async for one in found:
                is_empty = False
                yield one
        if is_empty and self._settings.kind == "sql":
            others = await self._call("list the catalogs", self._client.namesakes)
            if others:
                yield self._misnamed(others)

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """As `NamespaceLister` promises."""
        for found in await self._listing(f"list below {'.'.join(parent)}", lambda: self._client.namespaces(parent)):
            yield found

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        """As `NamespaceLister` promises."""
        async with aclosing(self._tables(namespace)) as found:
            async for levels, name in found:
                yield TableIdentifier(self._settings.name, levels, name)

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files; see `PyIcebergSettings.identity`.

        Raises:
            Transient, Permanent: scope catalog; it does not answer.
        """
        failure = await self._outage()
        if failure is not None:
            raise self._error(failure, ErrorScope.CATALOG)
        return self._settings.identity()

    async def close(self) -> None:
        """Close all connections but those that hang."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._threads.run(f"catalog {self._settings.name}: close", lambda _: self._client.close())

    def _misnamed(self, others: list[str]) -> UnlistedNamespace:
        why = f"its database holds {', '.join(others)}, and nothing of {self._settings.catalog_name}"
        right = f"= {json.dumps(others[0], ensure_ascii=False)}" if len(others) == 1 else "to one of these"
        return UnlistedNamespace((), why, f"set {self._settings.setting_path('name')} {right}")

    async def _tables(self, namespace: tuple[str, ...]) -> AsyncGenerator[tuple[tuple[str, ...], str]]:
        for found in await self._listing(f"list {'.'.join(namespace)}", lambda: self._client.tables(namespace)):
            yield found

    async def _listing(self, what: str, ask: Callable[[], T]) -> T:
        """As `_told`, of a listing: one namespace may hang while the catalog lists others."""
        return await self._call(what, ask, scope_if_late=None)

    async def _call(self, what: str, ask: Callable[[], T], scope_if_late: ErrorScope | None = ErrorScope.CATALOG) -> T:
        """What an answer gives; raises Transient or Permanent where there is none.

        Args:
            what: is asked.
            ask: asks it.
            scope_if_late: the scope of an answer that does not come in time; None: another question decides.
        """
        try:
            return await self._call_in_thread(what, ask, scope_if_late)
        except CatalogRequestFailed as refused:
            failure = refused.failure
        scope = failure.scope
        if scope is None:
            other = await self._outage()
            scope = ErrorScope.TABLE if other is None else ErrorScope.CATALOG
            failure = failure if other is None else combine(failure, other)
        raise self._error(failure, scope)

    async def _call_in_thread(
        self, what: str, ask: Callable[[], T], scope_if_late: ErrorScope | None = ErrorScope.CATALOG
    ) -> T:
        where = f"catalog {self._settings.name}: {what}"
        answer = await self._threads.run(where, lambda _: ask())
        if not isinstance(answer, TimedOut):
            return answer
        found = "none" if answer.may_still_run else "no free thread: earlier calls have not returned"
        raise CatalogRequestFailed(
            CatalogFailure(
                where,
                expected=f"an answer to PyIceberg within {self._settings.request_timeout:g} s",
                found=found,
                remedy="look into the catalog's own log and its load, and what is between here and there",
                scope=scope_if_late if answer.may_still_run else ErrorScope.CATALOG,
            )
        )

    async def _outage(self) -> CatalogFailure | None:
        """Why the catalog answers nothing at all, or None, by an answer that came after this call."""
        since = anyio.current_time()
        async with self._checking:
            # Without sharing, the last of many that wait on a dead catalog would wait for all their time-outs in turn.
            if self._checked_at < since:
                try:
                    await self._call_in_thread("list all", lambda: self._client.namespaces(()))
                except CatalogRequestFailed as refused:
                    self._last_outage = refused.failure
                else:
                    self._last_outage = None
                self._checked_at = anyio.current_time()
            return self._last_outage

    def _error(self, failure: CatalogFailure, scope: ErrorScope) -> Transient | Permanent:
        return failure.to_error(scope, self._settings.secrets())


def check_can_open(settings: PyIcebergSettings) -> None:
    """See whether a catalog can be opened, without asking it.

    Raises:
        SfnError: PyIceberg, or what it needs for such a catalog, is not installed.
    """
    _client(settings)


def _client(settings: PyIcebergSettings) -> PyIcebergClient:
    """PyIceberg takes a second to be imported, and it is optional."""
    try:
        from sfn.catalog.library import desk, opening
    except ImportError as error:
        raise settings.not_installed(error) from None
    opening.check_installed(settings)
    return desk.PyIcebergClient(settings)
