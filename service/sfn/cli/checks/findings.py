"""What a check found."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from sfn.errors import SfnError


class Severity(StrEnum):
    """What a finding means for a service with this configuration."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One thing that was looked at; `remedy` is empty where nothing need be done."""

    where: str
    severity: Severity
    text: str
    remedy: str = ""


def fine(where: str, text: str) -> Finding:
    """All is as it should be."""
    return Finding(where, Severity.OK, text)


def doubtful(where: str, text: str, remedy: str) -> Finding:
    """It works, or the rest does; somebody should know."""
    return Finding(where, Severity.WARNING, text, remedy)


def wrong(where: str, error: SfnError, severity: Severity = Severity.ERROR) -> Finding:
    """It does not work."""
    text = f"expected {error.expected}, found {error.found}"
    return Finding(where, severity, text if error.where == where else f"{error.where}: {text}", error.remedy)
