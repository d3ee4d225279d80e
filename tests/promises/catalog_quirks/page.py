"""What the product makes of each quirk, as `docs/evidence/catalog-quirks.md` shows it: measured on such a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.promises.catalog_quirks.quirk import Outcome, Quirk
from tests.promises.catalog_quirks.table import QUIRKS
from tests.promises.catalog_quirks.world import Seen, opened, seen
from tests.support.pages import Shown

MODULE: Final = "tests.promises.catalog_quirks"
_LONGEST: Final = 140


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
