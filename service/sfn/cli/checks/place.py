"""Where the service would run: its inbox's folder or database, and its address."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from sfn import limits
from sfn.app import wiring
from sfn.cli.checks.findings import CheckFinding, Severity, error_finding, ok_finding, warning_finding
from sfn.cli.checks.tls import certificate_finding
from sfn.cli.pages import pluralise
from sfn.clock import SystemClock, format_duration
from sfn.errors import FatalError, SfnError
from sfn.http.server import listening_socket
from sfn.settings.model import Settings

_PROBE = ".sfn-check-"

MAX_CLOCK_SKEW: Final = timedelta(seconds=5)
"""A part of a lease that is worth a warning."""


async def inbox_finding(settings: Settings) -> tuple[str | None, CheckFinding]:
    """Which process has the inbox, and whether one can be kept there."""
    if settings.inbox.path is None:
        return None, await _database_finding(settings)
    return await _file_finding(settings.inbox.path.resolve())


async def _database_finding(settings: Settings) -> CheckFinding:
    where = "inbox"
    try:
        proof = await wiring.check_database(settings)
    except SfnError as error:
        return error_finding(where, error)
    state = f"schema version {proof.version} is there" if proof.version else "its tables will be made"
    facts = [f"{proof.where}: PostgreSQL {proof.server}, {state}"]
    facts += ["through a pooler: other replicas are found by looking, once a second"] if proof.is_pooled else []
    facts += [f"{pluralise(proof.others, 'connection')} of replicas"] if proof.others else []
    text = "; ".join(facts)
    if not proof.is_durable:
        remedy = "set fsync and full_page_writes to on in postgresql.conf"
        return warning_finding(where, f"{text}; a power cut would ruin it: fsync or full_page_writes is off", remedy)
    if abs(proof.ahead) > MAX_CLOCK_SKEW:
        way = "ahead of" if proof.ahead > timedelta() else "behind"
        skew = format_duration(abs(proof.ahead))
        text = f"{text}; its clock is {skew} {way} ours, and leases go by the clocks of replicas"
        return warning_finding(where, text, "synchronise the clocks of all hosts")
    return ok_finding(where, text)


async def _file_finding(path: Path) -> tuple[str | None, CheckFinding]:
    """The same for a file: tried with another one beside it."""
    where = "inbox"
    try:
        doubt = wiring.placement_problem(path)
        holder = wiring.process_holding(path)
    except FatalError as error:
        return None, error_finding(where, error)
    if holder is not None:
        return holder, ok_finding(
            where, f"{path}: process {holder} has it and so proves it; `sfn status` says how it is"
        )
    folder = _nearest_existing(path.parent)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=_PROBE, dir=folder))
    except OSError as error:
        remedy = "let the service's user write there, or set inbox.url"
        return None, CheckFinding(
            where, Severity.ERROR, f"{folder}: expected a folder to write into, found {error.strerror}", remedy
        )
    try:
        await wiring.try_inbox(scratch / path.name)
    except SfnError as error:
        return None, error_finding(where, error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if doubt is not None:
        return None, warning_finding(where, doubt.found, doubt.remedy)
    state = "is there" if _is_there(path) else "will be made"
    return None, ok_finding(where, f"{path} {state}; one was opened beside it, locked, synced and removed")


def file_limit_findings() -> Iterator[CheckFinding]:
    """Whether the process could open enough files: it raises its own limit, as far as it may."""
    if (most := limits.hard_limit()) < limits.LOW_LIMIT:
        text = f"{most} at most, for connections, catalogs, stores and the inbox together"
        yield warning_finding(
            "open files", text, f"raise the limit to {limits.LOW_LIMIT} at least (ulimit -n, LimitNOFILE=)"
        )


def listener_findings(settings: Settings, *, is_running: bool) -> Iterator[CheckFinding]:
    """Whether the address is free, and who can listen in.

    Args:
        is_running: a service has the inbox, or answers, and so has the address too.
    """
    ours, where = settings.listener, "listener"
    if not is_running:
        yield address_finding(where, ours.host, ours.port)
    if ours.tls_certificate_file is not None and ours.tls_key_file is not None:
        yield certificate_finding(ours.tls_certificate_file, ours.tls_key_file, SystemClock().now())
    elif not ours.is_loopback:
        remedy = "set listener.tls_certificate_file and tls_key_file, or put a proxy with TLS before it"
        yield warning_finding(where, f"{ours.host} is reached from elsewhere, and it speaks plain HTTP", remedy)


def address_finding(where: str, host: str, port: int) -> CheckFinding:
    """Whether an address is free that a section of the settings says."""
    try:
        with listening_socket(host, port, where):
            return ok_finding(where, f"{host} port {port or 'of its choice'} is free")
    except FatalError as error:
        return error_finding(where, error)


def _is_there(path: Path) -> bool:
    return path.exists()


def _nearest_existing(folder: Path) -> Path:
    """The folder, or of those above it the first that is there: the service makes what is missing."""
    return next(above for above in (folder, *folder.parents) if above.exists())
