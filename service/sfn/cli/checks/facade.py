"""The facade: what it shows, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sfn.cli.checks.findings import CheckFinding, ok_finding, warning_finding
from sfn.settings.model import Settings

_WHERE: Final = "facade"


def facade_findings(settings: Settings) -> Iterator[CheckFinding]:
    """What a reader gets; nothing where there is none."""
    ours = settings.facade
    if not ours.is_on:
        return
    roots = ", ".join(ours.roots or (one.prefix for one in settings.stores.values()))
    yield ok_finding(_WHERE, f"below /iceberg of the listener: tables below {roots}")
    if settings.listener.is_loopback:
        return
    host = settings.listener.host
    if ours.open:
        text = f"open: everybody who reaches {host} may read all tables' metadata"
        yield warning_finding(_WHERE, text, "set facade.token_file instead of facade.open")
    elif settings.listener.scheme == "http":
        text = f"{host} is reached from elsewhere, and readers' tokens travel in clear text"
        yield warning_finding(
            _WHERE, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it"
        )
