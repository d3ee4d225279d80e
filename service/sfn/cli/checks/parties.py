"""Who may send events, operate and read the metrics, and who we are to catalogs: how they show it, whether the files of
tokens are to be had, and each token is one party's own and long enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sfn.app.endpoints import build_access_control
from sfn.cli.checks.findings import CheckFinding, error_finding, ok_finding, warning_finding
from sfn.clock import SystemClock, format_duration
from sfn.concurrency import unreadable_file_error
from sfn.errors import FatalError, SfnError
from sfn.formats import POLARIS_NOTIFICATIONS
from sfn.http.secrets import AuthScheme, describe_weakness, read_secrets
from sfn.settings.model import Settings
from sfn.settings.sections import SenderSettings


def secret_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Each file of tokens that can't be used; else all of them together. Then what is open or shut for want of one."""
    broken = list(_unusable_findings(settings))
    yield from broken
    if not broken:
        yield _distinct_finding(settings)
        for name, sender in settings.senders.items():
            yield _sender_finding(name, sender)
            yield from _signature_findings(name, sender, settings)
        yield from _weak_findings(settings)
    if not settings.senders:
        remedy = 'configure one: [senders.NAME] secrets = { main = "…" }'
        yield warning_finding("senders", "none: everybody on this machine may send events", remedy)
    if settings.admin.token is None and settings.admin.token_file is None:
        remedy = "set admin.token or admin.token_file"
        yield warning_finding("admin", "no token: `sfn status` and all that operators do will not work", remedy)


def _secret_files(settings: Settings) -> dict[str, tuple[Path, AuthScheme]]:
    """The files of tokens and what they are for, by the settings that name them."""
    files = {f"senders.{name}.secrets_file": (one.secrets_file, one.scheme) for name, one in settings.senders.items()}
    files["admin.token_file"] = settings.admin.token_file, AuthScheme.BEARER
    files["facade.token_file"] = settings.facade.token_file, AuthScheme.BEARER
    files["telemetry.metrics_token_file"] = settings.telemetry.metrics_token_file, AuthScheme.BEARER
    return {where: (file, scheme) for where, (file, scheme) in files.items() if file is not None}


def _sender_finding(name: str, sender: SenderSettings) -> CheckFinding:
    """How a sender shows who it is."""
    where, scheme = f"senders.{name}", sender.scheme
    if scheme is AuthScheme.NONE:
        remedy = f"set {where}.scheme and a secret for it, unless all who reach this machine may send events"
        return warning_finding(where, "none: whoever shows nothing is this sender", remedy)
    on_file = 0 if sender.secrets_file is None else len(read_secrets(sender.secrets_file, scheme))
    count = len(sender.secrets) + on_file
    header = f" in {sender.signature_header}" if scheme is AuthScheme.HMAC_SHA256 else ""
    limit = "" if sender.rate_limit is None else f", at most {sender.rate_limit} requests a minute"
    return ok_finding(where, f"{scheme}{header}, {count} {scheme.word}{'s' if count > 1 else ''}{limit}")


def _signature_findings(name: str, sender: SenderSettings, settings: Settings) -> Iterator[CheckFinding]:
    """What a signature is too little for, where what is told is believed."""
    catalogs = ", ".join(sorted(settings.event_only_catalogs.intersection(settings.catalogs_of(name).values())))
    if sender.signature_scheme is None or not catalogs:
        return
    where, believed = f"senders.{name}", f"what is told of {catalogs} is believed"
    if sender.dialect == POLARIS_NOTIFICATIONS:
        text = f"none of its notifications is taken: no signature covers their path, and {believed}"
        yield warning_finding(where, text, f"set {where}.scheme = bearer, and a token for it")
    if sender.scheme is AuthScheme.HMAC_SHA256:
        known = f"it is known by its event_id alone, for {format_duration(settings.inbox.event_retention)}"
        text = f"{believed}, and who has a copy of a signed request can send it again: {known}"
        remedy = f"set {where}.scheme = standard-webhooks, or have it send over TLS alone, each event with an event_id"
        yield warning_finding(where, text, remedy)


def _weak_findings(settings: Settings) -> Iterator[CheckFinding]:
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
    named |= {where: (token, AuthScheme.BEARER) for where, token in alone.items() if token is not None}
    tokens = [(where, "", token.get_secret_value(), scheme) for where, (token, scheme) in named.items()]
    for where, (file, scheme) in _secret_files(settings).items():
        found = read_secrets(file, scheme).items()
        tokens += [(where, f"{file}, line {number}: ", token, scheme) for number, token in found]
    for where, place, token, scheme in tokens:
        if why := describe_weakness(scheme, token):
            before = "whsec_ before " if scheme is AuthScheme.STANDARD_WEBHOOKS else ""
            made = "`openssl rand -base64 32`" if before else "`openssl rand -hex 32`"
            remedy = f"set a long and random one, such as {before}what {made} prints"
            yield warning_finding(where, f"{place}{why} is soon guessed", remedy)


def _unusable_findings(settings: Settings) -> Iterator[CheckFinding]:
    for where, (file, scheme) in _secret_files(settings).items():
        try:
            read_secrets(file, scheme)
        except FatalError as error:
            written = f"write the {scheme.word}s there, one a line, for the service's user to read; or set {where}"
            remedy = error.remedy or written
            yield error_finding(where, SfnError(error.where, expected=error.expected, found=error.found, remedy=remedy))
    for where, file in _catalog_secret_files(settings):
        try:
            file.read_bytes()
        except OSError as error:
            missing = unreadable_file_error(file, error)
            remedy = f"put it there for the service's user to read, or set {where}"
            yield error_finding(
                where, SfnError(missing.where, expected=missing.expected, found=missing.found, remedy=remedy)
            )


def _catalog_secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for name, catalog in settings.catalogs.items():
        for key in ("token_file", "credential_file", "ca_file"):
            if (file := getattr(catalog, key)) is not None:
                yield f"catalogs.{name}.{key}", file


def _distinct_finding(settings: Settings) -> CheckFinding:
    try:
        build_access_control(settings, SystemClock())
    except FatalError as error:
        return error_finding("tokens", error)
    return ok_finding("tokens", "all are to be had, and none is two parties'")
