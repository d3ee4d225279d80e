"""What one slice came to, on its way to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile

from sfn.report.totals import RunTotals


@dataclass(frozen=True, slots=True)
class AuditNotification:
    """A table that the service is to be told of."""

    catalog: str
    namespace: tuple[str, ...]
    name: str
    metadata_location: str | None


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """One slice.

    Attributes:
        number: which.
        states: rows by state.
        totals: of the rows.
        file: the rows, in a data file that is in no snapshot yet; None where there are none.
        notifications: of whom the service is to be told.
        failures: the first tables and namespaces that could not be looked at, and why.
        error: why there are no rows; empty where there are.
        unread: why what an earlier run said could not be read, so that nothing is known of tables that are gone since;
            empty where it could.
    """

    number: int
    states: Mapping[str, int] = field(default_factory=dict)
    totals: RunTotals = RunTotals()
    file: DataFile | None = None
    notifications: tuple[AuditNotification, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    error: str = ""
    unread: str = ""
