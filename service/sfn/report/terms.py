"""What a run is to do, as each of its parts is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sfn.report.entries import AuditRun
from sfn.settings.model import Settings

DEFAULT_PATIENCE: Final = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """A run's terms; they travel to wherever its parts run, secrets of the settings included.

    Attributes:
        run: which.
        settings: the catalogs and stores.
        catalogs: those that are audited.
        rate: requests a second that one part may send to a catalog; None for any.
        patience: seconds that are waited for what has answered before.
        deep: look at all files of current snapshots.
        options: what fsspec's driver is given for these.
        files: how PyIceberg opens the report's own files.
        report: the report's metadata, JSON.
        report_location: where it is.
        previous_files: by slice, the data files of an earlier run.
        unreachable_catalogs: catalogs that could not be asked for their namespaces, and why: nothing else is asked
            of them.
    """

    run: AuditRun
    settings: Settings = field(repr=False)
    catalogs: tuple[str, ...]
    rate: float | None
    patience: float
    deep: bool
    options: Mapping[str, Any] = field(repr=False)
    files: Mapping[str, Any] = field(repr=False)
    report: str = field(repr=False)
    report_location: str
    previous_files: Mapping[int, tuple[str, ...]] = field(default_factory=dict, repr=False)
    unreachable_catalogs: Mapping[str, str] = field(default_factory=dict)
