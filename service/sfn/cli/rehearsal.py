"""What a sweep would find, found out in this process from the configuration: no inbox is touched, no file written."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from sfn import telemetry
from sfn.cli.pages import Grid, Line, Page, Tone, counted, safe
from sfn.cli.printing import progress
from sfn.cli.sweeping import check_named
from sfn.settings import load
from sfn.wiring import sources
from sfn.wiring.looking import open_read_only
from sfn.words.table import spelled
from sfn.work.survey import Found, Survey

SHOWN: Final = 1_000
"""Tables of a catalog that a page names; JSON has them all."""


@dataclass(frozen=True, slots=True)
class Differs:
    """A table that differs."""

    table: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A namespace that may not or could not be listed, or a table that could not be examined."""

    name: str
    why: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What one catalog's walk found."""

    name: str
    tables: int
    differed: list[Differs]
    withheld: list[Refused]
    failed: list[Refused]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs, as far as tables may be seen."""
        return not self.differed and not self.failed and not any(one.is_failure for one in self.withheld)


def rehearse(config: Path | None, catalog: str | None) -> list[Rehearsed]:
    """Look at the tables of all configured catalogs, or of one.

    Raises:
        Misconfigured: the configuration is wrong, or has no such catalog.
        Trouble: a catalog or a store can't be asked.
    """
    settings = load(config)
    sources.check_adapters(settings)
    names = [name for name in settings.catalogs if name not in settings.told]
    check_named(catalog, names, settings.told)
    # What the adapters log would stand among what the command prints.
    telemetry.configure("error", "console")

    # Of what was imported nothing is garbage, and to look through it again and again took a sixth of the time.
    gc.freeze()

    async def walk() -> list[Rehearsed]:
        found = []
        async with open_read_only(settings) as parts:
            for name in names if catalog is None else [catalog]:
                source = await parts.connect(name)
                with progress(name, None) as moved:
                    survey = Survey(
                        source,
                        parts.stores,
                        lambda so_far: moved(so_far.tables, so_far.listed if so_far.complete else None),
                    )
                    found.append(_told(name, await survey.run()))
        return found

    return anyio.run(walk, backend_options={"use_uvloop": True})


def outcome(found: list[Rehearsed]) -> Page:
    """What differs, catalog by catalog."""
    page: list[Line | Grid] = []
    for one in found:
        looked = counted(one.tables, "table")
        if one.agrees:
            page.append(Line(f"{one.name}: {looked}, nothing differs", Tone.GOOD))
        else:
            differ = f"{len(one.differed):,} {'differs' if len(one.differed) == 1 else 'differ'}"
            page.append(Line(f"{one.name}: {looked}, {differ}", Tone.WARNING))
        if one.differed:
            rows = [(f"  {safe(each.table)}", each.kind, safe(each.detail)) for each in one.differed[:SHOWN]]
            page.append(Grid(("  TABLE", "IS", "DETAIL"), rows, long="DETAIL"))
        if (more := len(one.differed) - SHOWN) > 0:
            page.append(Line(f"  and {more:,} more: --json has them all"))
        page += [Line(f"  could not list {safe(each.name)}: {safe(each.why)}", Tone.WARNING) for each in one.withheld]
        page += [Line(f"  could not look at {safe(each.name)}: {safe(each.why)}", Tone.BAD) for each in one.failed]
    if not all(one.agrees for one in found):
        page.append(Line("what the brake holds, or a retired catalog leaves alone, `sfn status` knows", Tone.QUIET))
    return page


def _told(name: str, found: Found) -> Rehearsed:
    return Rehearsed(
        name,
        found.tables,
        [Differs(spelled(one.table.namespace, one.table.name), one.kind, one.detail) for one in found.differences],
        [Refused(".".join(one.namespace) or "(all)", one.message, one.is_failure) for one in found.withheld],
        [Refused(spelled(table.namespace, table.name), why) for table, why in found.failed],
    )
