"""From the settings, or from nothing but folders, to a facade."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sfn.clock import SystemClock
from sfn.errors import FatalError
from sfn.facade import TableSource
from sfn.facade.app import Facade, FacadeApplication, FacadeOptions, mount_facade
from sfn.facade.discovery import ScannedTables, folder_scans
from sfn.facade.metadata_files import StoreFiles, open_tree
from sfn.facade.tables import FacadeInbox, PublishedTables, TableLoader
from sfn.reader.files import FileReader
from sfn.settings import FacadeSettings, Settings
from sfn.sfnfile.locations import scheme_of
from sfn.storage import StoreRouter
from sfn.telemetry.metrics import FacadeMetrics

STANDALONE_CATALOG: Final = "sfn"
"""What the catalog of a facade over folders is called."""

LISTING_LIFETIME: Final = 30.0
"""Seconds for which what a walk found is kept: it may take long."""
MISSING_LIFETIME: Final = 5.0
"""Seconds after which a table that was not found is looked for by another one."""


def build_facade(
    settings: Settings | None,
    inbox: FacadeInbox,
    stores: StoreRouter,
    admits: Callable[[bytes | None], bool] | None,
    readers: FacadeMetrics,
    on_broken: Callable[[FatalError], None],
) -> Callable[[FacadeApplication], FacadeApplication]:
    """Puts the facade before a listener's other routes, as the settings say.

    Args:
        settings: None where this process is none.
        admits: whether an `Authorization` header opens it; None where nobody need show one.
        on_broken: told when a request finds that the inbox can't be trusted any more.
    """
    if settings is None or not settings.facade.is_on:
        return _without_facade
    facade_settings = settings.facade
    roots = facade_settings.roots or tuple(one.prefix for one in settings.stores.values())
    trees = {root: _files_of(root, stores) for root in roots}
    tables_by_catalog = {name: PublishedTables(inbox, name, trees) for name in settings.catalogs}
    terms = FacadeOptions(
        tables_by_catalog, trees if facade_settings.directories else {}, admits, readers.count_answer, on_broken
    )
    return partial(mount_facade, Facade(terms, TableLoader(SystemClock(), facade_settings.metadata_limit)))


@dataclass(frozen=True, slots=True)
class FacadeFolders:
    """What a facade without a service shows.

    Attributes:
        roots: canonical locations of folders.
        options: what fsspec's driver is given.
        tables: the tables of its catalog; None: those that a walk through the folders finds.
        directories: tables may be called by their directories.
        admits: as of `Terms`.
        metadata_limit: as of the settings.
    """

    roots: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tables: TableSource | None = None
    directories: bool = True
    admits: Callable[[bytes | None], bool] | None = None
    metadata_limit: int = FacadeSettings.model_fields["metadata_limit"].default


@dataclass(frozen=True, slots=True)
class FolderFacade:
    """A facade that needs neither a catalog nor an inbox.

    Attributes:
        facade: what answers.
        ready: returns once its tables are known, with the reason where none can be.
    """

    facade: Facade
    ready: Callable[[], Awaitable[Exception | None]]


def facade_over_folders(folders: FacadeFolders, counted: Callable[[int], None]) -> FolderFacade:
    """A facade over folders.

    Args:
        counted: told of each answer's status.
    """
    trees = {root: open_tree(root, folders.options) for root in folders.roots}
    index = ScannedTables(folder_scans(trees), LISTING_LIFETIME, MISSING_LIFETIME)
    tables, ready = (index, index.wait_until_listed) if folders.tables is None else (folders.tables, _always_ready)
    terms = FacadeOptions({STANDALONE_CATALOG: tables}, trees if folders.directories else {}, folders.admits, counted)
    return FolderFacade(Facade(terms, TableLoader(SystemClock(), folders.metadata_limit)), ready)


async def _always_ready() -> None:
    return None


def _files_of(root: str, stores: StoreRouter) -> FileReader:
    """Files of this machine are opened as a facade opens them, not as the service's own: links lead nowhere else."""
    return open_tree(root, {}) if scheme_of(root) == "file" else StoreFiles(root, stores)


def _without_facade(application: FacadeApplication) -> FacadeApplication:
    return application
