"""Who may send events, operate and read the metrics, and who we are to catalogs: whether the files of tokens are to be
had, and each token is one party's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.errors import Broken, SfnError
from sfn.receiver.tokens import TokenFile
from sfn.settings import Settings
from sfn.watched import unreadable
from sfn.wiring.admission import admission


def parties(settings: Settings) -> Iterator[Finding]:
    """Each file of tokens that can't be used; else all of them together. Then what is open or shut for want of one."""
    broken = list(_unusable(settings))
    yield from broken
    if not broken:
        yield _together(settings)
    if not settings.senders:
        remedy = 'configure one: [senders.NAME] secrets = { main = "…" }'
        yield doubtful("senders", "none: everybody on this machine may send events", remedy)
    if settings.admin.token is None and settings.admin.token_file is None:
        remedy = "set admin.token or admin.token_file"
        yield doubtful("admin", "no token: `sfn status` and all that operators do will not work", remedy)


def _unusable(settings: Settings) -> Iterator[Finding]:
    files = {f"senders.{name}.secrets_file": sender.secrets_file for name, sender in settings.senders.items()}
    files["admin.token_file"] = settings.admin.token_file
    files["telemetry.metrics_token_file"] = settings.telemetry.metrics_token_file
    for where, file in files.items():
        try:
            if file is not None:
                TokenFile(file)
        except Broken as error:
            remedy = (
                error.remedy or f"write the tokens there, one a line, for the service's user to read; or set {where}"
            )
            yield wrong(where, SfnError(error.where, expected=error.expected, found=error.found, remedy=remedy))
    for where, file in _shown_to_catalogs(settings):
        try:
            file.read_bytes()
        except OSError as error:
            missing = unreadable(file, error)
            remedy = f"put it there for the service's user to read, or set {where}"
            yield wrong(where, SfnError(missing.where, expected=missing.expected, found=missing.found, remedy=remedy))


def _shown_to_catalogs(settings: Settings) -> Iterator[tuple[str, Path]]:
    for name, catalog in settings.catalogs.items():
        for key in ("token_file", "credential_file", "ca_file"):
            if (file := getattr(catalog, key)) is not None:
                yield f"catalogs.{name}.{key}", file


def _together(settings: Settings) -> Finding:
    try:
        admission(settings)
    except Broken as error:
        return wrong("tokens", error)
    return fine("tokens", "all are to be had, and none is two parties'")
