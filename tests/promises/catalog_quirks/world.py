"""A world of the contract suite on a catalog with a quirk: what is seen there, and how the page shows it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from sfn.catalogs import Catalog, Loaded, NoSuchTable, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ExternalError
from tests.promises.catalog_quirks.server import NAME, Outcome, Quirk, QuirkServer
from tests.promises.catalog_quirks.table import QUIRKS
from tests.promises.catalogs import MemoryWorld
from tests.support.pages import Shown

BAD: Final = "mm"
"""The namespace that quirks of one namespace are about; it lies between two others."""

MODULE: Final = "tests.promises.catalog_quirks"
_LONGEST: Final = 140


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


async def measured(quirk: Quirk) -> Seen:
    """Ask a catalog with a quirk."""
    async with opened(quirk) as (server, adapter):
        return await seen(quirk, server, adapter)


def outcome(result: Seen) -> Outcome:
    """What was made of it, by what was seen."""
    if not result.refused and not result.withheld:
        return Outcome.RIGHT
    if {*result.withheld} == {"mm"} and not any("load" in asked for asked in result.refused):
        return Outcome.WITHHELD
    if {*result.refused} == {"load mm.gone"}:
        return Outcome.GONE_UNSEEN
    return Outcome.REFUSED if any(asked.startswith("load aa") for asked in result.refused) else Outcome.NO_LISTING


def page(results: dict[str, Seen]) -> Shown:
    """The tables of all groups.

    Args:
        results: what was seen, by group and key.
    """
    tables = [f"## {group}\n\n{_table(group, quirks, results)}" for group, quirks in QUIRKS.items()]
    return Shown("docs/evidence/catalog-quirks.md", MODULE, "\n" + "\n".join(tables) + "\n")


def _table(group: str, quirks: tuple[Quirk, ...], results: dict[str, Seen]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in _lines(group, quirks, results))


def _lines(group: str, quirks: tuple[Quirk, ...], results: dict[str, Seen]) -> Iterator[tuple[str, str, str]]:
    yield "the catalog answers with", "the listener", "seen on"
    yield "---", "---", "---"
    for one in quirks:
        result = results[f"{group}: {one.key}"]
        said = [outcome(result).value, *([one.how] if one.how else []), *_reasons(result)]
        yield one.what, "; ".join(said).replace("|", "\\|"), one.seen


def _reasons(result: Seen) -> Iterator[str]:
    reasons = [*result.withheld.values(), *result.refused.values()]
    if reasons:
        text = reasons[0] if len(reasons[0]) <= _LONGEST else f"{reasons[0][:_LONGEST].rstrip()} …"
        yield f"reason: “{text}”"
