"""From the settings, or from nothing but folders, to a facade."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sfn.clock import SystemClock
from sfn.facade import Shelf, Tree
from sfn.facade.app import Application, Facade, Terms, before
from sfn.facade.index import Index
from sfn.facade.loading import Loading
from sfn.facade.roster import published
from sfn.facade.trees import Stored, tree
from sfn.facade.walk import walked
from sfn.inbox import Roster
from sfn.pointer.location import scheme_of
from sfn.settings import FacadeSettings, Settings
from sfn.store import Stores
from sfn.telemetry.metrics import Readers

ALONE: Final = "sfn"
"""What the catalog of a facade over folders is called."""

_ROSTER, _WALK = (2.0, 0.5), (30.0, 5.0)
"""Seconds for which a listing is kept, and after which a table that is missing from it is looked for anew: a walk may
take long."""


def faced(
    settings: Settings | None,
    roster: Roster,
    stores: Stores,
    admits: Callable[[bytes | None], bool] | None,
    readers: Readers,
) -> Callable[[Application], Application]:
    """Puts the facade before a listener's other routes, as the settings say.

    Args:
        settings: None where this process is none.
        admits: whether an `Authorization` header opens it; None where nobody need show one.
    """
    if settings is None or not settings.facade.is_on:
        return _unchanged
    ours = settings.facade
    roots = ours.roots or tuple(one.prefix for one in settings.stores.values())
    trees = {root: _tree(root, stores) for root in roots}
    shelves = {name: Index(published(roster, name, trees), *_ROSTER) for name in settings.catalogs}
    terms = Terms(shelves, trees if ours.directories else {}, admits, readers.answered)
    return partial(before, Facade(terms, Loading(SystemClock(), ours.metadata_limit)))


@dataclass(frozen=True, slots=True)
class Folders:
    """What a facade without a service shows.

    Attributes:
        roots: canonical locations of folders.
        options: what fsspec's driver is given.
        shelf: the tables of its catalog; None: those that a walk through the folders finds.
        directories: tables may be called by their directories.
        admits: as of `Terms`.
        metadata_limit: as of the settings.
    """

    roots: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    shelf: Shelf | None = None
    directories: bool = True
    admits: Callable[[bytes | None], bool] | None = None
    metadata_limit: int = FacadeSettings.model_fields["metadata_limit"].default


def over(folders: Folders) -> Facade:
    """A facade that needs neither a catalog nor an inbox."""
    trees = {root: tree(root, folders.options) for root in folders.roots}
    shelf = folders.shelf or Index(walked(trees), *_WALK)
    terms = Terms({ALONE: shelf}, trees if folders.directories else {}, folders.admits)
    return Facade(terms, Loading(SystemClock(), folders.metadata_limit))


def _tree(root: str, stores: Stores) -> Tree:
    """Files of this machine are opened as a facade opens them, not as the service's own: links lead nowhere else."""
    return tree(root, {}) if scheme_of(root) == "file" else Stored(root, stores)


def _unchanged(application: Application) -> Application:
    return application
