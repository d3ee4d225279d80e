"""Where the service would run: its inbox's folder or database, and its address."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from sfn import descriptors
from sfn.cli.checks.findings import Finding, Severity, doubtful, fine, wrong
from sfn.cli.checks.tls import certificate
from sfn.cli.pages import counted
from sfn.clock import SystemClock, lasting
from sfn.errors import Broken, SfnError
from sfn.receiver.listening import bound
from sfn.settings import Settings
from sfn.wiring import inboxes

_PROBE = ".sfn-check-"

SKEWED: Final = timedelta(seconds=5)
"""A part of a lease that is worth a warning."""


async def inbox(settings: Settings) -> tuple[str | None, Finding]:
    """Which process has the inbox, and whether one can be kept there."""
    if settings.inbox.path is None:
        return None, await _database(settings)
    return await _file(settings.inbox.path.resolve())


async def _database(settings: Settings) -> Finding:
    where = "inbox"
    try:
        proof = await inboxes.check_database(settings)
    except SfnError as error:
        return wrong(where, error)
    state = f"schema version {proof.version} is there" if proof.version else "its tables will be made"
    told = [f"{proof.where}: PostgreSQL {proof.server}, {state}"]
    told += ["through a pooler: other replicas are found by looking, once a second"] if proof.is_pooled else []
    told += [f"{counted(proof.others, 'connection')} of replicas"] if proof.others else []
    text = "; ".join(told)
    if not proof.is_durable:
        remedy = "set fsync and full_page_writes to on in postgresql.conf"
        return doubtful(where, f"{text}; a power cut would ruin it: fsync or full_page_writes is off", remedy)
    if abs(proof.ahead) > SKEWED:
        way = "ahead of" if proof.ahead > timedelta() else "behind"
        text = f"{text}; its clock is {lasting(abs(proof.ahead))} {way} ours, and leases go by the clocks of replicas"
        return doubtful(where, text, "synchronise the clocks of all hosts")
    return fine(where, text)


async def _file(path: Path) -> tuple[str | None, Finding]:
    """The same for a file: tried with another one beside it."""
    where = "inbox"
    try:
        doubt = inboxes.placement_problem(path)
        holder = inboxes.process_holding(path)
    except Broken as error:
        return None, wrong(where, error)
    if holder is not None:
        return holder, fine(where, f"{path}: process {holder} has it and so proves it; `sfn status` says how it is")
    folder = _nearest(path.parent)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=_PROBE, dir=folder))
    except OSError as error:
        remedy = "let the service's user write there, or set inbox.url"
        return None, Finding(
            where, Severity.ERROR, f"{folder}: expected a folder to write into, found {error.strerror}", remedy
        )
    try:
        await inboxes.try_inbox(scratch / path.name)
    except SfnError as error:
        return None, wrong(where, error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if doubt is not None:
        return None, doubtful(where, doubt.found, doubt.remedy)
    state = "is there" if _is_there(path) else "will be made"
    return None, fine(where, f"{path} {state}; one was opened beside it, locked, synced and removed")


def files() -> Iterator[Finding]:
    """Whether the process could open enough files: it raises its own limit, as far as it may."""
    if (most := descriptors.hard_limit()) < descriptors.LOW:
        text = f"{most} at most, for connections, catalogs, stores and the inbox together"
        yield doubtful("open files", text, f"raise the limit to {descriptors.LOW} at least (ulimit -n, LimitNOFILE=)")


def listener(settings: Settings, *, is_running: bool) -> Iterator[Finding]:
    """Whether the address is free, and who can listen in.

    Args:
        is_running: a service has the inbox, or answers, and so has the address too.
    """
    ours, where = settings.listener, "listener"
    if not is_running:
        yield address(where, ours.host, ours.port)
    if ours.tls_certificate_file is not None and ours.tls_key_file is not None:
        yield certificate(ours.tls_certificate_file, ours.tls_key_file, SystemClock().now())
    elif not ours.is_loopback:
        remedy = "set listener.tls_certificate_file and tls_key_file, or put a proxy with TLS before it"
        yield doubtful(where, f"{ours.host} is reached from elsewhere, and it speaks plain HTTP", remedy)


def address(where: str, host: str, port: int) -> Finding:
    """Whether an address is free that a section of the settings says."""
    try:
        with bound(host, port, where):
            return fine(where, f"{host} port {port or 'of its choice'} is free")
    except Broken as error:
        return wrong(where, error)


def _is_there(path: Path) -> bool:
    return path.exists()


def _nearest(folder: Path) -> Path:
    """The folder, or of those above it the first that is there: the service makes what is missing."""
    return next(above for above in (folder, *folder.parents) if above.exists())
