"""Who may send events, operate and read the metrics, and who we are to catalogs: how they show it, whether the files of
tokens are to be had, and each token is one party's own and long enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.clock import SystemClock, lasting
from sfn.dialects import POLARIS
from sfn.errors import Broken, SfnError
from sfn.receiver.secret import Scheme, weak
from sfn.receiver.tokens import secrets
from sfn.settings import SenderSettings, Settings
from sfn.watched import unreadable
from sfn.wiring.admission import build_access_control


def parties(settings: Settings) -> Iterator[Finding]:
    """Each file of tokens that can't be used; else all of them together. Then what is open or shut for want of one."""
    broken = list(_unusable(settings))
    yield from broken
    if not broken:
        yield _together(settings)
        for name, sender in settings.senders.items():
            yield _shows(name, sender)
            yield from _believed(name, sender, settings)
        yield from _weak(settings)
    if not settings.senders:
        remedy = 'configure one: [senders.NAME] secrets = { main = "…" }'
        yield doubtful("senders", "none: everybody on this machine may send events", remedy)
    if settings.admin.token is None and settings.admin.token_file is None:
        remedy = "set admin.token or admin.token_file"
        yield doubtful("admin", "no token: `sfn status` and all that operators do will not work", remedy)


def _files(settings: Settings) -> dict[str, tuple[Path, Scheme]]:
    """The files of tokens and what they are for, by the settings that name them."""
    files = {f"senders.{name}.secrets_file": (one.secrets_file, one.scheme) for name, one in settings.senders.items()}
    files["admin.token_file"] = settings.admin.token_file, Scheme.BEARER
    files["facade.token_file"] = settings.facade.token_file, Scheme.BEARER
    files["telemetry.metrics_token_file"] = settings.telemetry.metrics_token_file, Scheme.BEARER
    return {where: (file, scheme) for where, (file, scheme) in files.items() if file is not None}


def _shows(name: str, sender: SenderSettings) -> Finding:
    """How a sender shows who it is."""
    where, scheme = f"senders.{name}", sender.scheme
    if scheme is Scheme.NONE:
        remedy = f"set {where}.scheme and a secret for it, unless all who reach this machine may send events"
        return doubtful(where, "none: whoever shows nothing is this sender", remedy)
    on_file = 0 if sender.secrets_file is None else len(secrets(sender.secrets_file, scheme))
    count = len(sender.secrets) + on_file
    header = f" in {sender.signature_header}" if scheme is Scheme.HMAC_SHA256 else ""
    limit = "" if sender.rate_limit is None else f", at most {sender.rate_limit} requests a minute"
    return fine(where, f"{scheme}{header}, {count} {scheme.word}{'s' if count > 1 else ''}{limit}")


def _believed(name: str, sender: SenderSettings, settings: Settings) -> Iterator[Finding]:
    """What a signature is too little for, where what is told is believed."""
    catalogs = ", ".join(sorted(settings.told.intersection(settings.catalogs_of(name).values())))
    if sender.manner is None or not catalogs:
        return
    where, believed = f"senders.{name}", f"what is told of {catalogs} is believed"
    if sender.dialect == POLARIS:
        text = f"none of its notifications is taken: no signature covers their path, and {believed}"
        yield doubtful(where, text, f"set {where}.scheme = bearer, and a token for it")
    if sender.scheme is Scheme.HMAC_SHA256:
        known = f"it is known by its event_id alone, for {lasting(settings.inbox.event_retention)}"
        text = f"{believed}, and who has a copy of a signed request can send it again: {known}"
        remedy = f"set {where}.scheme = standard-webhooks, or have it send over TLS alone, each event with an event_id"
        yield doubtful(where, text, remedy)


def _weak(settings: Settings) -> Iterator[Finding]:
    """Each token that is soon guessed, by its place."""
    named = {
        f"senders.{name}.secrets.{key}": (token, sender.scheme)
        for name, sender in settings.senders.items()
        for key, token in sender.secrets.items()
    }
    alone = {
        "admin.token": settings.admin.token,
        "facade.token": settings.facade.token,
        "telemetry.metrics_token": settings.telemetry.metrics_token,
    }
    named |= {where: (token, Scheme.BEARER) for where, token in alone.items() if token is not None}
    tokens = [(where, "", token.get_secret_value(), scheme) for where, (token, scheme) in named.items()]
    for where, (file, scheme) in _files(settings).items():
        found = secrets(file, scheme).items()
        tokens += [(where, f"{file}, line {number}: ", token, scheme) for number, token in found]
    for where, place, token, scheme in tokens:
        if why := weak(scheme, token):
            before = "whsec_ before " if scheme is Scheme.STANDARD_WEBHOOKS else ""
            made = "`openssl rand -base64 32`" if before else "`openssl rand -hex 32`"
            remedy = f"set a long and random one, such as {before}what {made} prints"
            yield doubtful(where, f"{place}{why} is soon guessed", remedy)


def _unusable(settings: Settings) -> Iterator[Finding]:
    for where, (file, scheme) in _files(settings).items():
        try:
            secrets(file, scheme)
        except Broken as error:
            written = f"write the {scheme.word}s there, one a line, for the service's user to read; or set {where}"
            remedy = error.remedy or written
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
        build_access_control(settings, SystemClock())
    except Broken as error:
        return wrong("tokens", error)
    return fine("tokens", "all are to be had, and none is two parties'")
