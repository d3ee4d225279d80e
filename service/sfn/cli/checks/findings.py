"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sfn.errors import SfnError


class Severity(StrEnum):
    """What a finding means for a service with this configuration."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that was looked at; `remedy` is empty where nothing need be done."""

    where: str
    severity: Severity
    text: str
    remedy: str = ""


def ok_finding(where: str, text: str) -> CheckFinding:
    """All is as it should be."""
    return CheckFinding(where, Severity.OK, text)


def warning_finding(where: str, text: str, remedy: str) -> CheckFinding:
    """It works, or the rest does; somebody should know."""
    return CheckFinding(where, Severity.WARNING, text, remedy)


def error_finding(where: str, error: SfnError, severity: Severity = Severity.ERROR) -> CheckFinding:
    """It does not work."""
    text, subject = f"expected {error.expected}, found {error.found}", _subject_beyond(where, error.where)
    return CheckFinding(where, severity, f"{subject}: {text}" if subject else text, error.remedy)


def _subject_beyond(where: str, subject: str) -> str:
    """What an error is about, less what the place of its finding says: `catalog prod` is `catalogs.prod`."""
    place = where.partition(": ")[0]
    section, _, name = place.partition(".")
    for said in (where, f"{section.removesuffix('s')} {name}".rstrip()):
        rest = subject.removeprefix(said)
        if rest != subject and not rest[:1].isalnum():
            return rest.lstrip(": ")
    return subject
