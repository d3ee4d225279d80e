"""Who may send events, operate and read the metrics, and who we are to catalogs: whether the files of tokens are to be
had, and each token is one party's own and long enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.clock import SystemClock
from sfn.errors import Broken, SfnError
from sfn.receiver.tokens import secrets
from sfn.settings import Settings
from sfn.watched import unreadable
from sfn.wiring.admission import admission

LONG_ENOUGH: Final = 16
"""Characters of a token that nobody will guess, if they are random."""


def parties(settings: Settings) -> Iterator[Finding]:
    """Each file of tokens that can't be used; else all of them together. Then what is open or shut for want of one."""
    broken = list(_unusable(settings))
    yield from broken
    if not broken:
        yield _together(settings)
        yield from _short(settings)
    if not settings.senders:
        remedy = 'configure one: [senders.NAME] secrets = { main = "…" }'
        yield doubtful("senders", "none: everybody on this machine may send events", remedy)
    if settings.admin.token is None and settings.admin.token_file is None:
        remedy = "set admin.token or admin.token_file"
        yield doubtful("admin", "no token: `sfn status` and all that operators do will not work", remedy)


def _files(settings: Settings) -> dict[str, Path]:
    """The files of tokens, by the settings that name them."""
    files = {f"senders.{name}.secrets_file": sender.secrets_file for name, sender in settings.senders.items()}
    files["admin.token_file"] = settings.admin.token_file
    files["telemetry.metrics_token_file"] = settings.telemetry.metrics_token_file
    return {where: file for where, file in files.items() if file is not None}


def _short(settings: Settings) -> Iterator[Finding]:
    """Each token that is soon guessed, by its place."""
    named = {
        f"senders.{name}.secrets.{key}": token
        for name, sender in settings.senders.items()
        for key, token in sender.secrets.items()
    }
    alone = {"admin.token": settings.admin.token, "telemetry.metrics_token": settings.telemetry.metrics_token}
    named |= {where: token for where, token in alone.items() if token is not None}
    tokens = [(where, "", token.get_secret_value()) for where, token in named.items()]
    for where, file in _files(settings).items():
        tokens += [(where, f"{file}, line {number}: ", token) for number, token in secrets(file).items()]
    for where, place, token in tokens:
        if len(token) < LONG_ENOUGH:
            text = f"{place}a token of fewer than {LONG_ENOUGH} characters is soon guessed"
            yield doubtful(where, text, "set a long and random one, such as `openssl rand -hex 32` prints")


def _unusable(settings: Settings) -> Iterator[Finding]:
    for where, file in _files(settings).items():
        try:
            secrets(file)
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
        admission(settings, SystemClock())
    except Broken as error:
        return wrong("tokens", error)
    return fine("tokens", "all are to be had, and none is two parties'")
