"""What is wrong between settings that are right one by one."""

from __future__ import annotations

from collections.abc import Iterator

from sfn.errors import SfnError
from sfn.settings.asking import misasked
from sfn.settings.facing import misfaced
from sfn.settings.model import Settings
from sfn.settings.placing import misplaced
from sfn.settings.pulling import mispulled
from sfn.settings.routing import misrouted
from sfn.settings.sending import missent
from sfn.settings.sources import Sources, variable
from sfn.settings.storing import misstored


def inconsistencies(settings: Settings, sources: Sources) -> tuple[SfnError, ...]:
    """Everything that does not fit together."""
    return (
        *_catalogs(settings, sources),
        *misasked(settings, sources),
        *_told(settings, sources),
        *_tls(settings, sources),
        *missent(settings, sources),
        *mispulled(settings, sources),
        *_two_origins(settings, sources),
        *_retry(settings, sources),
        *misstored(settings, sources),
        *misplaced(settings, sources),
        *misrouted(settings, sources),
        *misfaced(settings, sources),
    )


def _catalogs(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    if not settings.catalogs:
        yield SfnError(
            sources.place(("catalogs",)),
            expected="at least one",
            found="none",
            remedy='write [catalogs.NAME] uri = "https://…", or set SFN_CATALOGS__NAME__URI',
        )


def _told(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    for name in sorted(settings.told):
        for key in ("catalog_id", "allowed_locations"):
            if not getattr(settings.catalogs[name], key):
                keys = ("catalogs", name, key)
                yield SfnError(
                    sources.place(keys),
                    expected="a value, as a catalog of type told can't be asked for it",
                    found="none",
                    remedy=f"set it there or as {variable(keys)}",
                )
    if settings.told and not settings.senders:
        named = ", ".join(sorted(settings.told))
        yield SfnError(
            sources.place(("senders",)),
            expected=f"a sender with a token, as what is told of {named} is believed",
            found="none",
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
        )


def _tls(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    files = {key: getattr(settings.listener, key) for key in ("tls_certificate_file", "tls_key_file")}
    given = [key for key, file in files.items() if file is not None]
    for key in files:
        if given and key not in given:
            yield SfnError(
                sources.place(("listener", key)),
                expected=f"a file, as {given[0]} is set",
                found="none",
                remedy=f"set it there or as {variable(('listener', key))}",
            )


def _two_origins(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    admin, facade, telemetry = settings.admin, settings.facade, settings.telemetry
    if admin.token is not None and admin.token_file is not None:
        place = sources.place(("admin", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")
    if facade.token is not None and facade.token_file is not None:
        place = sources.place(("facade", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")
    if telemetry.metrics_token is not None and telemetry.metrics_token_file is not None:
        place = sources.place(("telemetry", "metrics_token_file"))
        yield SfnError(place, expected="either metrics_token or metrics_token_file", found="both")


def _retry(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    retry = settings.retry
    if retry.base > retry.cap:
        place = sources.place(("retry", "base"))
        yield SfnError(place, expected=f"at most the cap, {retry.cap}", found=str(retry.base))
