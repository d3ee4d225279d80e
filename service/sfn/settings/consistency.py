"""What is wrong between settings that are right one by one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from sfn.errors import SfnError
from sfn.settings.complaints import nearest
from sfn.settings.model import SenderSettings, Settings
from sfn.settings.sources import Sources, variable

_FOR_ASKING: Final = (
    *("uri", "warehouse", "ca_file", "headers"),
    *("token", "token_file", "credential", "credential_file", "oauth2_uri", "scope"),
)
"""Keys of a catalog that say where, and as whom, it is asked."""


def inconsistencies(settings: Settings, sources: Sources) -> tuple[SfnError, ...]:
    """Everything that does not fit together."""
    return (
        *_catalogs(settings, sources),
        *_told(settings, sources),
        *_open_to_the_network(settings, sources),
        *_senders(settings, sources),
        *_secrets_shared(settings, sources),
        *_admin(settings, sources),
        *_retry(settings, sources),
        *_stores(settings, sources),
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
    for name, catalog in settings.catalogs.items():
        if not catalog.is_told:
            continue
        for key in ("catalog_id", "allowed_locations"):
            if not getattr(catalog, key):
                keys = ("catalogs", name, key)
                yield SfnError(
                    sources.place(keys),
                    expected="a value, as a catalog of type told can't be asked for it",
                    found="none",
                    remedy=f"set it there or as {variable(keys)}",
                )
        for key in _FOR_ASKING:
            if key in catalog.model_fields_set:
                yield SfnError(
                    sources.place(("catalogs", name, key)),
                    expected="no such key, as a catalog of type told is never asked",
                    found="one",
                    remedy='remove it, or set type = "rest"',
                )


def _open_to_the_network(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    if not settings.senders and not _is_loopback(settings.listener.host):
        yield SfnError(
            sources.place(("listener", "host")),
            expected="a loopback address, as everybody may send events while no sender is configured",
            found=settings.listener.host,
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
        )


def _is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone. Names but `localhost` are not looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _senders(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    for name, sender in settings.senders.items():
        if not sender.secrets and sender.secrets_file is None:
            yield SfnError(
                sources.place(("senders", name, "secrets")),
                expected="a token",
                found="neither secrets nor secrets_file",
                remedy='set secrets = { main = "…" } or secrets_file',
            )
        yield from _bindings(name, sender, settings, sources)


def _bindings(name: str, sender: SenderSettings, settings: Settings, sources: Sources) -> Iterator[SfnError]:
    known = list(settings.catalogs)
    if sender.catalog is not None and sender.catalogs:
        place = sources.place(("senders", name, "catalog"))
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if sender.catalog is None and not sender.catalogs and len(known) > 1:
        yield SfnError(
            sources.place(("senders", name, "catalog")),
            expected="the catalog that it speaks for, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    meant: dict[tuple[str, ...], str] = {("catalogs", theirs): ours for theirs, ours in sender.catalogs.items()}
    if sender.catalog is not None:
        meant["catalog",] = sender.catalog
    for keys, ours in meant.items():
        if ours not in settings.catalogs:
            yield SfnError(
                sources.place(("senders", name, *keys)),
                expected="a configured catalog",
                found=ours,
                remedy=nearest(ours, known),
            )


def _secrets_shared(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    owners: dict[str, str] = {}
    if settings.admin.token is not None:
        owners[settings.admin.token.get_secret_value()] = "the operators'"
    for name, sender in settings.senders.items():
        own = f"one of the sender {name}"
        for token, secret in sender.secrets.items():
            owner = owners.setdefault(secret.get_secret_value(), own)
            if owner != own:
                place = sources.place(("senders", name, "secrets", token))
                yield SfnError(place, expected="a token of its own", found=owner)


def _admin(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    admin = settings.admin
    if admin.token is not None and admin.token_file is not None:
        place = sources.place(("admin", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")


def _retry(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    retry = settings.retry
    if retry.base > retry.cap:
        place = sources.place(("retry", "base"))
        yield SfnError(place, expected=f"at most the cap, {retry.cap}", found=str(retry.base))


def _stores(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    owners: dict[str, str] = {}
    for name, store in settings.stores.items():
        owner = owners.setdefault(store.prefix, name)
        if owner != name:
            place = sources.place(("stores", name, "prefix"))
            yield SfnError(place, expected="a prefix of its own", found=f"the one of the store {owner}")
