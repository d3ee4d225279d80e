"""Where the service would run: its inbox's folder and its address."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sfn.cli.checks.findings import Finding, Severity, doubtful, fine, wrong
from sfn.cli.checks.tls import certificate
from sfn.clock import SystemClock
from sfn.errors import Broken, SfnError
from sfn.receiver.listening import bound
from sfn.settings import Settings
from sfn.wiring import places

_PROBE = ".sfn-check-"


async def inbox(settings: Settings) -> tuple[str | None, Finding]:
    """Which process has the inbox, and whether one can be kept in its folder: tried with another one beside it."""
    path, where = settings.inbox.path.resolve(), "inbox"
    try:
        holder = places.inbox_holder(settings)
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
        await places.try_inbox(scratch / path.name)
    except SfnError as error:
        return None, wrong(where, error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    state = "is there" if path.exists() else "will be made"
    return None, fine(where, f"{path} {state}; one was opened beside it, locked, synced and removed")


def listener(settings: Settings, holder: str | None) -> Iterator[Finding]:
    """Whether the address is free, and who can listen in.

    Args:
        holder: the process that has the inbox, and so the address too.
    """
    ours, where = settings.listener, "listener"
    if holder is None:
        try:
            with bound(ours.host, ours.port):
                yield fine(where, f"{ours.host} port {ours.port or 'of its choice'} is free")
        except Broken as error:
            yield wrong(where, error)
    if ours.tls_certificate_file is not None and ours.tls_key_file is not None:
        yield certificate(ours.tls_certificate_file, ours.tls_key_file, SystemClock().now())
    elif not ours.is_loopback:
        remedy = "set listener.tls_certificate_file and tls_key_file, or put a proxy with TLS before it"
        yield doubtful(where, f"{ours.host} is reached from elsewhere, and it speaks plain HTTP", remedy)


def _nearest(folder: Path) -> Path:
    """The folder, or of those above it the first that is there: the service makes what is missing."""
    return next(above for above in (folder, *folder.parents) if above.exists())
