"""What is wrong between settings of who may send events, that are right one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from sfn.clock import format_duration
from sfn.errors import SfnError
from sfn.http.secrets import AuthScheme, secret_bytes
from sfn.http.signature import TOLERANCE
from sfn.settings.bound import check_origin_catalogs
from sfn.settings.model import Settings
from sfn.settings.parties import SenderSettings
from sfn.settings.sources import SettingsSources

_MIN_EVENT_RETENTION: Final = timedelta(seconds=2 * TOLERANCE)
"""How long a message may come again: from as early as it may be to as late."""


def check_senders(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything about senders that does not fit together."""
    yield from _check_open_to_network(settings, sources)
    for name, sender in settings.senders.items():
        yield from _check_secrets(name, sender, sources)
        yield from check_origin_catalogs(("senders", name), sender, settings.catalogs, sources)
    yield from _check_unauthenticated(settings, sources)
    yield from _check_shared_secrets(settings, sources)
    yield from _check_event_retention(settings, sources)


def _check_open_to_network(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    if not settings.senders and not settings.listener.is_loopback:
        yield SfnError(
            sources.location_of(("listener", "host")),
            expected="a loopback address, as everybody may send events while no sender is configured",
            found=settings.listener.host,
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
        )


def _check_secrets(name: str, sender: SenderSettings, sources: SettingsSources) -> Iterator[SfnError]:
    place, word = sources.location_of(("senders", name, "secrets")), sender.scheme.word
    has_none = not sender.secrets and sender.secrets_file is None
    if sender.scheme is AuthScheme.NONE and not has_none:
        yield SfnError(place, expected="none with the scheme none", found="some", remedy="remove them, or the scheme")
    elif sender.scheme is not AuthScheme.NONE and has_none:
        remedy = 'set secrets = { main = "…" } or secrets_file'
        yield SfnError(place, expected=f"a {word}", found="neither secrets nor secrets_file", remedy=remedy)
    elif sender.scheme is not AuthScheme.NONE:
        for key, secret in sender.secrets.items():
            try:
                secret_bytes(sender.scheme, secret.get_secret_value())
            except ValueError as error:
                place = sources.location_of(("senders", name, "secrets", key))
                yield SfnError(place, expected=str(error), found="another value")
    if sender.scheme is not AuthScheme.HMAC_SHA256 and "signature_header" in sender.model_fields_set:
        place = sources.location_of(("senders", name, "signature_header"))
        yield SfnError(place, expected=f"no such key with the scheme {sender.scheme}", found="one", remedy="remove it")


def _check_unauthenticated(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Who need not show who it is must be on this machine, and must not be believed."""
    names = [name for name, sender in settings.senders.items() if sender.scheme is AuthScheme.NONE]
    remedy = "give it another scheme, and a secret"
    for name in names:
        place = sources.location_of(("senders", name, "scheme"))
        if not settings.listener.is_loopback:
            expected = f"a proof of who it is, as {settings.listener.host} is no loopback address"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)
        if event_only := sorted(settings.event_only_catalogs.intersection(settings.catalogs_of(name).values())):
            expected = f"a proof of who it is, as what is told of {', '.join(event_only)} is believed"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)
        if name != names[0]:
            expected = f"a proof of who it is, as all who show none are {names[0]}"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)


def _check_shared_secrets(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    tokens = [
        (("admin", "token"), "the operators'", settings.admin.token),
        (("telemetry", "metrics_token"), "the one of the metrics", settings.telemetry.metrics_token),
        *(
            (("senders", name, "secrets", token), f"one of the sender {name}", secret)
            for name, sender in settings.senders.items()
            for token, secret in sender.secrets.items()
        ),
    ]
    owners: dict[str, str] = {}
    for keys, own, secret in tokens:
        owner = owners.setdefault(secret.get_secret_value(), own) if secret is not None else own
        if owner != own:
            yield SfnError(sources.location_of(keys), expected="a token of its own", found=owner)


def _check_event_retention(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    signs = any(sender.scheme is AuthScheme.STANDARD_WEBHOOKS for sender in settings.senders.values())
    if signs and settings.inbox.event_retention < _MIN_EVENT_RETENTION:
        yield SfnError(
            sources.location_of(("inbox", "event_retention")),
            expected=(
                f"at least {format_duration(_MIN_EVENT_RETENTION)}, as a signed message may come again for as long"
            ),
            found=format_duration(settings.inbox.event_retention),
        )
