"""What is deleted too soon: metadata files before a file of ours names the next one, and our files by cleaners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sfn.admin.schemas import CatalogModel
from sfn.cli.checks.findings import CheckFinding, warning_finding
from sfn.cli.pages import pluralise
from sfn.clock import format_duration
from sfn.domain.identifiers import Table
from sfn.settings.model import Settings
from sfn.settings.sections import CatalogSettings
from sfn.sfnfile.version_hint import metadata_lifetime

MAX_REFRESH_AFTER: Final = timedelta(hours=12)
"""Half of what cleaners spare: a refresh that fails has as long again to be tried."""

_CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Lag:
    """How late our files may be.

    Attributes:
        time: how late; None: without bound.
        source: where that is known from, for people.
    """

    time: timedelta | None
    source: str


def assumed_lag(settings: Settings, why: str = "where no event comes") -> Lag:
    """How late they are at the worst, while nothing is in trouble: the next sweep finds what no event told of."""
    every = settings.sweep.every
    return Lag(every, "sweep.every is off" if every is None else f"sweep.every, {why}")


def observed_lag(status: CatalogModel, settings: Settings, now: datetime) -> Lag:
    """How late they are by what the running service says of a catalog."""
    if status.sweep is None:
        return assumed_lag(settings, "as no sweep has yet looked for what no event told of")
    if unreported := [one for one in status.sweep.differences if one.kind == _CHANGED]:
        return assumed_lag(
            settings, f"and the last sweep found {pluralise(len(unreported), 'table')} that no event had told of"
        )
    if status.oldest_due_at is None:
        return Lag(timedelta(), "nothing waits in the running service")
    return Lag(now - status.oldest_due_at, "so long the oldest waits in the running service")


def short_lived_finding(where: str, table: Table, lag: Lag) -> CheckFinding | None:
    """A warning of a table whose files may lead to nothing; None for any other."""
    lives = metadata_lifetime(table)
    if lives is None or (lag.time is not None and lives >= lag.time):
        return None
    retained = pluralise(table.previous_versions_max or 0, "previous file")
    late = "without bound" if lag.time is None else f"by up to {format_duration(lag.time)}"
    text = (
        f"its metadata files are deleted {format_duration(lives)} after the next commit ("
        f"write.metadata.delete-after-commit.enabled, {retained}), and ours may be late {late} ({lag.source}): "
        "readers may be led to one that is gone"
    )
    remedy = (
        "raise the table's write.metadata.previous-versions-max, or set write.metadata.delete-after-commit.enabled to "
        "false; or be in time: send events, shorten sweep.every"
    )
    return warning_finding(where, text, remedy)


def refresh_findings(name: str, catalog: CatalogSettings) -> Iterator[CheckFinding]:
    """A warning of files that go unwritten for so long that cleaners may take them for orphans."""
    if catalog.refresh_after >= MAX_REFRESH_AFTER:
        text = (
            f"{format_duration(catalog.refresh_after)}: cleaners delete files that no metadata names once they are a "
            "day old (Spark's remove_orphan_files refuses less than 24 h; Glue's and scripts may use one day), and a "
            "refresh that fails needs time to be tried again"
        )
        yield warning_finding(f"catalogs.{name}.refresh_after", text, "leave it at 8h, or below 12h at least")
