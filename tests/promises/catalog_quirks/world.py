"""A world of the contract suite on a catalog with a quirk, and what is seen of three namespaces there."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from sfn.catalogs import Catalog, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.domain.catalog_answer import Loaded, NoSuchTable
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ExternalError
from tests.promises.catalog_quirks.quirk import Quirk
from tests.promises.catalog_quirks.server import NAME, QuirkServer
from tests.promises.catalogs import MemoryWorld

BAD: Final = "mm"
"""The namespace that quirks of one namespace are about; it lies between two others."""


class QuirkWorld(MemoryWorld):
    """Implements `World`: changed in memory, asked over HTTP.

    Args:
        server: the catalog.
        adapter: asks it.
    """

    def __init__(self, server: QuirkServer, adapter: RestCatalog) -> None:
        super().__init__()
        server.truth = self._memory = MemoryCatalog(NAME)
        self.catalog: Catalog = adapter
        self._memory.create_namespace(self.space)


@dataclass(slots=True)
class Seen:
    """What was seen of a catalog with the tables `t` in `aa`, `mm` and `zz`, and with `mm.gone`, which was dropped.

    Attributes:
        refused: why a table was not loaded, or not found to be gone, or its namespace not listed; by what was asked.
        found: the tables that a walk found.
        withheld: why namespaces were withheld, by name.
    """

    refused: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    withheld: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def opened(quirk: Quirk) -> AsyncGenerator[tuple[QuirkServer, RestCatalog]]:
    """A catalog with a quirk, and the adapter that asks it."""
    server = QuirkServer(quirk.changed, quirk.separator, quirk.root, any_case=quirk.any_case)
    async with server.listening() as uri:
        credential = "id:secret" if quirk.has_tokens else None
        adapter = RestCatalog(
            RestSettings(name=NAME, uri=f"{uri}{quirk.path}", credential=credential, request_timeout=quirk.timeout)
        )
        try:
            yield server, adapter
        finally:
            await adapter.close()


async def seen(quirk: Quirk, server: QuirkServer, adapter: RestCatalog) -> Seen:
    """Ask for three tables, for one that is gone, and for all; wrong answers fail."""
    result, truth = Seen(), server.truth
    for space in ("aa", BAD, "zz"):
        truth.create_namespace(space)
        truth.create(TableIdentifier(NAME, (space,), "t"))
    gone = TableIdentifier(NAME, (BAD,), "gone")
    truth.create(gone)
    truth.drop(gone)
    for space in ("aa", BAD, "zz"):
        table = TableIdentifier(NAME, (space,), "t")
        try:
            answer = await adapter.load(table, None)
            assert isinstance(answer, Loaded), answer
            assert answer.table == truth.current(table)
            if quirk.any_case:
                other = TableIdentifier(NAME, (space.upper(),), "T")
                assert isinstance(await adapter.load(other, None), Loaded), other
        except ExternalError as trouble:
            result.refused[f"load {table.dotted}"] = reason(str(trouble))
    try:
        assert await adapter.load(gone, None) == NoSuchTable()
    except ExternalError as trouble:
        result.refused["load mm.gone"] = reason(str(trouble))
    try:
        assert not await adapter.is_listed(gone)
    except ExternalError as trouble:
        result.refused["list mm"] = reason(str(trouble))
    try:
        async for one in adapter.tables():
            if isinstance(one, UnlistedNamespace):
                result.withheld[".".join(one.namespace)] = reason(one.reason)
            else:
                result.found.append(one.dotted)
    except ExternalError as trouble:
        result.refused["list all"] = reason(str(trouble))
    return result


def reason(text: str) -> str:
    """What was found, without what differs from run to run."""
    found = re.sub(r"http://127\.0\.0\.1:\d+", "", text.partition(", found ")[2] or text)
    return re.sub(r"\s+", " ", found)
