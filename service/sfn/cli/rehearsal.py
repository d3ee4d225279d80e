"""What a sweep would find, found out in this process from the configuration: no inbox is touched, no file written."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from sfn.app import catalogs
from sfn.app.catalogs import open_read_only
from sfn.cli.pages import Grid, Line, Page, Tone, escape, pluralise
from sfn.cli.printing import progress
from sfn.cli.sweeping import check_sweepable
from sfn.domain.identifiers import encode_identifier
from sfn.settings import load
from sfn.telemetry import logs
from sfn.worker.compare import DryRunResult, DryRunSweep

MAX_SHOWN: Final = 1_000
"""Tables of a catalog that a page names; JSON has them all."""


@dataclass(frozen=True, slots=True)
class DryRunDifference:
    """A table that differs."""

    table: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class DryRunFailure:
    """A namespace that may not or could not be listed, or a table that could not be examined."""

    name: str
    why: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class CatalogDryRun:
    """What one catalog's walk found."""

    name: str
    tables: int
    differences: list[DryRunDifference]
    unlisted_namespaces: list[DryRunFailure]
    failed_tables: list[DryRunFailure]

    @property
    def is_in_sync(self) -> bool:
        """Whether nothing differs, as far as tables may be seen."""
        return (
            not self.differences
            and not self.failed_tables
            and not any(one.is_failure for one in self.unlisted_namespaces)
        )


def dry_run_catalogs(config: Path | None, catalog: str | None) -> list[CatalogDryRun]:
    """Look at the tables of all configured catalogs, or of one.

    Raises:
        Misconfigured: the configuration is wrong, or has no such catalog.
        Trouble: a catalog or a store can't be asked.
    """
    settings = load(config)
    catalogs.check_adapters(settings)
    names = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    check_sweepable(catalog, names, settings.event_only_catalogs)
    # What the adapters log would stand among what the command prints.
    logs.configure_logging("error", "console")

    # Of what was imported nothing is garbage, and to look through it again and again took a sixth of the time.
    gc.freeze()

    async def walk() -> list[CatalogDryRun]:
        found = []
        async with open_read_only(settings) as parts:
            for name in names if catalog is None else [catalog]:
                source = await parts.connect(name)
                with progress(name, None) as on_progress:
                    sweep = DryRunSweep(
                        source,
                        parts.stores,
                        lambda so_far: on_progress(so_far.tables, so_far.listed if so_far.is_fully_listed else None),
                    )
                    found.append(_to_catalog_dry_run(name, await sweep.run()))
        return found

    return anyio.run(walk, backend_options={"use_uvloop": True})


def dry_run_page(found: list[CatalogDryRun]) -> Page:
    """What differs, catalog by catalog."""
    page: list[Line | Grid] = []
    for one in found:
        checked = pluralise(one.tables, "table")
        if one.is_in_sync:
            page.append(Line(f"{one.name}: {checked}, nothing differs", Tone.GOOD))
        else:
            differ = f"{len(one.differences):,} {'differs' if len(one.differences) == 1 else 'differ'}"
            page.append(Line(f"{one.name}: {checked}, {differ}", Tone.WARNING))
        if one.differences:
            rows = [(f"  {escape(each.table)}", each.kind, escape(each.detail)) for each in one.differences[:MAX_SHOWN]]
            page.append(Grid(("  TABLE", "IS", "DETAIL"), rows, wide_column="DETAIL"))
        if (more := len(one.differences) - MAX_SHOWN) > 0:
            page.append(Line(f"  and {more:,} more: --json has them all"))
        page += [
            Line(f"  could not list {escape(each.name)}: {escape(each.why)}", Tone.WARNING)
            for each in one.unlisted_namespaces
        ]
        page += [
            Line(f"  could not look at {escape(each.name)}: {escape(each.why)}", Tone.BAD) for each in one.failed_tables
        ]
    if not all(one.is_in_sync for one in found):
        page.append(Line("what the brake holds, or a retired catalog leaves alone, `sfn status` knows", Tone.QUIET))
    return page


def _to_catalog_dry_run(name: str, found: DryRunResult) -> CatalogDryRun:
    return CatalogDryRun(
        name,
        found.tables,
        [
            DryRunDifference(encode_identifier(one.table.namespace, one.table.name), one.kind, one.detail)
            for one in found.differences
        ],
        [DryRunFailure(".".join(one.namespace) or "(all)", one.message, one.is_failure) for one in found.unlisted],
        [DryRunFailure(encode_identifier(table.namespace, table.name), why) for table, why in found.failed],
    )
