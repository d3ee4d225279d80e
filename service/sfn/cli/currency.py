"""Whether an SFN file says what its catalog says now, asked in this process as a configuration tells."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

import anyio

from sfn.app import catalogs as app_catalogs
from sfn.app import storage
from sfn.app.catalogs import IdentifiedCatalog
from sfn.cli.pages import pluralise
from sfn.cli.sweeping import check_sweepable
from sfn.clock import SystemClock
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ExternalError
from sfn.reader.documents import identifier_text
from sfn.reader.resolve import Resolved
from sfn.reader.verify import VerifyFinding
from sfn.settings import load
from sfn.settings.model import Settings
from sfn.sfnfile.locations import canonical
from sfn.storage import PrefixRouter
from sfn.telemetry import logs

_WHAT: Final = "catalog"


@dataclass(frozen=True, slots=True)
class OwnerCatalogs:
    """The catalogs that may be asked.

    Attributes:
        settings: of the configuration.
        names: theirs there.
    """

    settings: Settings
    names: tuple[str, ...]


def find_owners(config: Path | None, catalog: str | None) -> OwnerCatalogs:
    """Which catalogs a configuration has that may own a table; none is asked yet.

    Args:
        catalog: the only one; None to find it by its `catalog_id`.

    Raises:
        Misconfigured: the configuration is wrong, or has no such catalog.
    """
    settings = load(config)
    app_catalogs.check_adapters(settings)
    askable = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    check_sweepable(catalog, askable, settings.event_only_catalogs)
    return OwnerCatalogs(settings, tuple(name for name in askable if catalog in {None, name}))


def check_is_current(found: Resolved, owners: OwnerCatalogs) -> VerifyFinding:
    """Ask the catalog that owns a table; what keeps it from answering is what was found.

    Args:
        found: what the directory says.
    """
    # What the adapters log would stand among what the command prints.
    logs.configure_logging("error", "console")

    async def ask() -> VerifyFinding:
        settings = owners.settings
        async with storage.open_stores(settings) as store_registry, AsyncExitStack() as stack:
            catalogs = app_catalogs.build_catalogs(
                settings, SystemClock(), PrefixRouter(store_registry.stores).read_range
            )
            for one in catalogs.values():
                stack.push_async_callback(one.close)
            return await _ask_owner(found, {name: catalogs[name] for name in owners.names})

    return anyio.run(ask)


async def _ask_owner(found: Resolved, catalogs: Mapping[str, IdentifiedCatalog]) -> VerifyFinding:
    others = []
    for name, catalog in catalogs.items():
        try:
            identity = await catalog.identity()
        except ExternalError as trouble:
            # It may not be the owner.
            others.append(f"{name} (can't be asked: {trouble})")
            continue
        if identity == found.document.catalog_id:
            return await _compare_with_owner(found, catalog, name)
        others.append(f"{name} ({identity})")
    known = ", ".join(others) or "none that can be asked"
    return _problem(found, f"a configured catalog with the catalog_id {found.document.catalog_id}", known)


async def _compare_with_owner(found: Resolved, owner: IdentifiedCatalog, name: str) -> VerifyFinding:
    doc = found.document
    try:
        answer = await owner.load(TableIdentifier(name, doc.namespace, doc.name), None)
    except ExternalError as trouble:
        return VerifyFinding(_WHAT, ok=False, text=str(trouble))
    match answer:
        case Loaded(table):
            return _compared(found, table, name)
        case NoSuchTable():
            return _problem(found, f"that {name} has {identifier_text(doc)}", "that it has no such table")
        case StagedCreate() | NotModified():
            return _problem(found, f"that {name} has a metadata file of {identifier_text(doc)}", "none yet")
        case _:
            assert_never(answer)


def _compared(found: Resolved, table: Table, owner: str) -> VerifyFinding:
    ours, theirs = found.document.metadata_file_path, table.metadata_location
    if found.document.guid != table.uuid:
        return _problem(found, f"the uuid {table.uuid}, which {owner}'s table has", f"{found.document.guid}")
    if canonical(ours) == canonical(theirs):
        return VerifyFinding(_WHAT, ok=True, text=f"{owner} has the same metadata file")
    log = [canonical(file) for file in table.metadata_log]
    since = len(log) - log.index(canonical(ours)) if canonical(ours) in log else 0
    behind = f", {pluralise(since, 'commit')} behind" if since else ""
    return _problem(found, f"{theirs}, which {owner} has", f"{ours}{behind}")


def _problem(found: Resolved, expected: str, what: str) -> VerifyFinding:
    return VerifyFinding(_WHAT, ok=False, text=f"{found.sfn_file}: expected {expected}, found {what}")
