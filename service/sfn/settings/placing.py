"""What does not fit together of where files lie and what they are called."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from sfn.clock import format_duration
from sfn.errors import SfnError
from sfn.settings.catalogs import CatalogSettings
from sfn.settings.model import Settings
from sfn.settings.sources import SettingsSources, variable_name
from sfn.sfnfile.naming import MAIN_BRANCH, NAMINGS

_COMMIT_FILE_KEYS: Final = ("keep", "keep_for")


def check_layout(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of `naming`, `placement` and the keys that go with them."""
    for name, catalog in settings.catalogs.items():
        yield from _check_root(name, catalog, sources)
        yield from _check_branches(name, catalog, sources)
        for key in _COMMIT_FILE_KEYS:
            value, default = getattr(catalog, key), CatalogSettings.model_fields[key].default
            if value != default and not NAMINGS[catalog.naming].has_commit_files:
                yield SfnError(
                    sources.location_of(("catalogs", name, key)),
                    expected=f"no such key with the naming {catalog.naming}, as no commit has a file of its own",
                    found=format_duration(value) if isinstance(value, timedelta) else f"{value}",
                    remedy='remove it, or set naming = "ordinal"',
                )


def _check_root(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    keys = ("catalogs", name, "root")
    if catalog.placement == "root" and catalog.root is None:
        yield SfnError(
            sources.location_of(keys),
            expected='the folder in which each table gets one, as placement is "root"',
            found="none",
            remedy=f"set it there or as {variable_name(keys)}",
        )
    if catalog.placement != "root" and catalog.root is not None:
        yield SfnError(
            sources.location_of(keys),
            expected=f'none with placement = "{catalog.placement}"',
            found=catalog.root,
            remedy='remove it, or set placement = "root"',
        )


def _check_branches(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    place = sources.location_of(("catalogs", name, "branches"))
    if not any(fnmatchcase(MAIN_BRANCH, glob) for glob in catalog.branches):
        yield SfnError(
            place,
            expected="main among them, whose file leads all others",
            found=", ".join(catalog.branches) or "none",
            remedy=f'such as branches = ["main", "{next(iter(catalog.branches), "release-*")}"]',
        )
    elif catalog.branches != (MAIN_BRANCH,) and not NAMINGS[catalog.naming].has_branch_files:
        yield SfnError(
            place,
            expected=f'["main"], as no other branch has a file with the naming {catalog.naming}',
            found=", ".join(catalog.branches),
            remedy='set naming = "identifier" or "uuid"',
        )
