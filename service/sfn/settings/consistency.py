"""What is wrong between settings that are right one by one."""

from __future__ import annotations

from collections.abc import Iterator

from sfn.errors import SfnError
from sfn.settings.asking import check_catalogs
from sfn.settings.facing import check_facade
from sfn.settings.model import Settings
from sfn.settings.placing import check_layout
from sfn.settings.pulling import check_pull_sources
from sfn.settings.routing import check_gateways
from sfn.settings.sending import check_senders
from sfn.settings.sources import SettingsSources, variable_name
from sfn.settings.storing import check_stores


def consistency_errors(settings: Settings, sources: SettingsSources) -> tuple[SfnError, ...]:
    """Everything that does not fit together."""
    return (
        *_check_any_catalog(settings, sources),
        *check_catalogs(settings, sources),
        *_check_event_only(settings, sources),
        *_check_tls(settings, sources),
        *check_senders(settings, sources),
        *check_pull_sources(settings, sources),
        *_check_token_or_file(settings, sources),
        *_check_retry(settings, sources),
        *check_stores(settings, sources),
        *check_layout(settings, sources),
        *check_gateways(settings, sources),
        *check_facade(settings, sources),
    )


def _check_any_catalog(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    if not settings.catalogs:
        yield SfnError(
            sources.location_of(("catalogs",)),
            expected="at least one",
            found="none",
            remedy='write [catalogs.NAME] uri = "https://…", or set SFN_CATALOGS__NAME__URI',
        )


def _check_event_only(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    for name in sorted(settings.event_only_catalogs):
        for key in ("catalog_id", "allowed_locations"):
            if not getattr(settings.catalogs[name], key):
                keys = ("catalogs", name, key)
                yield SfnError(
                    sources.location_of(keys),
                    expected="a value, as a catalog of type told can't be asked for it",
                    found="none",
                    remedy=f"set it there or as {variable_name(keys)}",
                )
    if settings.event_only_catalogs and not settings.senders:
        named = ", ".join(sorted(settings.event_only_catalogs))
        yield SfnError(
            sources.location_of(("senders",)),
            expected=f"a sender with a token, as what is told of {named} is believed",
            found="none",
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
        )


def _check_tls(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    files = {key: getattr(settings.listener, key) for key in ("tls_certificate_file", "tls_key_file")}
    given = [key for key, file in files.items() if file is not None]
    for key in files:
        if given and key not in given:
            yield SfnError(
                sources.location_of(("listener", key)),
                expected=f"a file, as {given[0]} is set",
                found="none",
                remedy=f"set it there or as {variable_name(('listener', key))}",
            )


def _check_token_or_file(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    admin, facade, telemetry = settings.admin, settings.facade, settings.telemetry
    if admin.token is not None and admin.token_file is not None:
        place = sources.location_of(("admin", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")
    if facade.token is not None and facade.token_file is not None:
        place = sources.location_of(("facade", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")
    if telemetry.metrics_token is not None and telemetry.metrics_token_file is not None:
        place = sources.location_of(("telemetry", "metrics_token_file"))
        yield SfnError(place, expected="either metrics_token or metrics_token_file", found="both")


def _check_retry(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    retry = settings.retry
    if retry.base > retry.cap:
        place = sources.location_of(("retry", "base"))
        yield SfnError(place, expected=f"at most the cap, {retry.cap}", found=str(retry.base))
