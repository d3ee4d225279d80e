"""A report, read from where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfn.errors import NotInstalled, SfnError
from sfn.settings import load
from sfn.settings.model import Settings

if TYPE_CHECKING:
    from sfn.report.reading import AuditReport


def read_report(
    config: Path | None, where: str, opened_with: Mapping[str, str], run: str | None, most: int, past: int
) -> AuditReport:
    """What it says; arguments as of `sfn.report.reading.read_report`.

    Raises:
        NotInstalled: PyIceberg or PyArrow is missing.
        SfnError: there is no report, or no such run.
    """
    try:
        from sfn.report import opening, reading, theirs
    except ImportError as error:
        remedy = "pip install '.[read]'"
        raise NotInstalled("sfn report", expected="PyIceberg and PyArrow", found=str(error), remedy=remedy) from None
    # A directory needs no configuration.
    place = opening.parse_report_location(where, Settings() if config is None else load(config), opened_with)
    with theirs.map_report_errors(str(place), "see that it can be reached, and try again"):
        table = opening.find_report(place)
    if table is None:
        remedy = "write one: python -m sfn.spark.audit --report …"
        raise SfnError(str(place), expected="a report", found="none", remedy=remedy)
    with theirs.map_report_errors(str(place), "see that its files can be read, and try again"):
        return reading.read_report(table, str(place), run, most, past)
