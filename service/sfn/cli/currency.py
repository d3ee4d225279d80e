"""Whether an SFN file says what its catalog says now, asked in this process as a configuration tells."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio

from sfn import telemetry
from sfn.cli.sweeping import check_named
from sfn.clock import SystemClock
from sfn.pointer.location import canonical
from sfn.reader.documents import named
from sfn.reader.resolve import Resolved
from sfn.reader.verify import Finding
from sfn.settings import load
from sfn.store.router import Router
from sfn.wiring import places, sources
from sfn.wiring.sources import Identified
from sfn.words import Loaded, Missing, Table, TableName

_WHAT: Final = "catalog"


def currency(found: Resolved, config: Path | None, catalog: str | None) -> Finding:
    """Ask the catalog that owns a table.

    Args:
        found: what the directory says.
        catalog: its name in the configuration; None to find it by its `catalog_id`.

    Raises:
        Misconfigured: the configuration is wrong, or has no such catalog.
        Trouble: a catalog can't be asked.
    """
    settings = load(config)
    sources.check(settings)
    askable = [name for name in settings.catalogs if name not in settings.told]
    check_named(catalog, askable, settings.told)
    # What the adapters log would stand among what the command prints.
    telemetry.configure("error", "console")

    async def ask() -> Finding:
        async with AsyncExitStack() as stack:
            catalogs = sources.adapters(settings, SystemClock(), Router(places.stores_of(settings)).part)
            for one in catalogs.values():
                stack.push_async_callback(one.close)
            return await _asked(found, {name: catalogs[name] for name in askable if catalog in {None, name}})

    return anyio.run(ask)


async def _asked(found: Resolved, catalogs: Mapping[str, Identified]) -> Finding:
    doc = found.document
    others = []
    for name, catalog in catalogs.items():
        identity = await catalog.identity()
        if identity != doc.catalog_id:
            others.append(f"{name} ({identity})")
            continue
        match await catalog.load(TableName(name, doc.namespace, doc.name), None):
            case Loaded(table):
                return _compared(found, table, name)
            case Missing():
                return _wrong(found, f"that {name} has {named(doc)}", "that it has no such table")
            case _:
                return _wrong(found, f"that {name} has a metadata file of {named(doc)}", "none yet")
    known = ", ".join(others) or "none that can be asked"
    return _wrong(found, f"a configured catalog with the catalog_id {doc.catalog_id}", known)


def _compared(found: Resolved, table: Table, owner: str) -> Finding:
    ours, theirs = found.document.metadata_file_path, table.metadata_location
    if found.document.guid != table.uuid:
        return _wrong(found, f"the uuid {table.uuid}, which {owner}'s table has", f"{found.document.guid}")
    if canonical(ours) == canonical(theirs):
        return Finding(_WHAT, ok=True, text=f"{owner} has the same metadata file")
    log = [canonical(file) for file in table.metadata_log]
    behind = f", {len(log) - log.index(canonical(ours))} commits behind" if canonical(ours) in log else ""
    return _wrong(found, f"{theirs}, which {owner} has", f"{ours}{behind}")


def _wrong(found: Resolved, expected: str, what: str) -> Finding:
    return Finding(_WHAT, ok=False, text=f"{found.sfn_file}: expected {expected}, found {what}")
