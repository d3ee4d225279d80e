"""What does not fit together of gateways, and of these with the catalogs behind them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from sfn.errors import SfnError, suggest_name
from sfn.settings.gateways import GatewaySettings
from sfn.settings.model import Settings
from sfn.settings.sources import SettingsSources

_SIGNED_HOST: Final = re.compile(
    r"(?:.+\.)?(?:glue|s3tables)(?:-fips)?\.[a-z0-9-]+\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
"""Hosts of AWS Glue and S3 Tables."""
_EXPECTED_UNSIGNED: Final = (
    "a catalog whose requests are not signed with SigV4: clients sign the host that they speak to, "
    "so nothing can stand between"
)
_REMEDY_SIGNED: Final = (
    "let events tell of its commits (AWS Glue: EventBridge to /v1/events), and the sweep find the rest"
)


def check_gateways(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `gateway.NAME` that can't work."""
    for name, gateway in settings.gateway.items():
        yield from _check_gateway_catalogs(name, gateway, settings, sources)
        yield from _check_unsigned_upstream(name, gateway, settings, sources)
        yield from _check_addresses(name, gateway, settings, sources)
    yield from _check_ports(settings, sources)


def _check_gateway_catalogs(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    """Catalogs of ours that there are not, or that nobody can ask."""
    place = sources.location_of(("gateway", name, "catalog"))
    known = [catalog for catalog, one in settings.catalogs.items() if not one.is_event_only]
    if gateway.catalog is not None and gateway.catalogs:
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if not settings.catalogs_behind(name):
        yield SfnError(
            place,
            expected="our name of the catalog behind it, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    for key, ours in settings.catalogs_behind(name).items():
        keys = ("gateway", name, "catalogs", key) if gateway.catalogs else ("gateway", name, "catalog")
        if ours not in settings.catalogs:
            expected, remedy = "a configured catalog", suggest_name(ours, known)
            yield SfnError(sources.location_of(keys), expected=expected, found=ours, remedy=remedy)
        elif settings.catalogs[ours].is_event_only:
            expected = "a catalog that can be asked: what passes is looked up there"
            yield SfnError(sources.location_of(keys), expected=expected, found=f"{ours}, of type told")


def _check_unsigned_upstream(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    host = urlsplit(gateway.upstream).hostname or ""
    behind = [settings.catalogs[ours] for ours in settings.catalogs_behind(name).values() if ours in settings.catalogs]
    if _SIGNED_HOST.fullmatch(host) or any(catalog.auth == "sigv4" for catalog in behind):
        yield SfnError(
            sources.location_of(("gateway", name, "upstream")),
            expected=_EXPECTED_UNSIGNED,
            found=f"one at {host}",
            remedy=_REMEDY_SIGNED,
        )


def _check_addresses(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    """Addresses that lead nowhere, or back."""
    for key in ("upstream", "public_url"):
        said = getattr(gateway, key)
        parts = urlsplit(said or "")
        if parts.query or parts.fragment or parts.username is not None:
            expected = "an address alone, as clients show themselves who they are"
            yield SfnError(
                sources.location_of(("gateway", name, key)),
                expected=expected,
                found="a user, a query or a fragment beside it",
            )
    upstream = urlsplit(gateway.upstream)
    own = [(settings.listener.host, settings.listener.port), (gateway.host, gateway.port)]
    if (upstream.hostname, upstream.port) in own:
        yield SfnError(
            sources.location_of(("gateway", name, "upstream")),
            expected="the catalog's address",
            found="the service's own",
        )


def _check_ports(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Gateways that would listen where the listener does, or one before them."""
    taken = [("listener", settings.listener.host, settings.listener.port)]
    for name, gateway in settings.gateway.items():
        if gateway.host is None or gateway.port == 0:
            continue
        same = (where for where, host, port in taken if port == gateway.port and _is_same_binding(host, gateway.host))
        if (other := next(same, None)) is not None:
            yield SfnError(
                sources.location_of(("gateway", name, "port")),
                expected="an address of its own",
                found=f"that of {other}",
                remedy="set another port, or another host",
            )
        taken.append((f"gateway.{name}", gateway.host, gateway.port))


def _is_same_binding(one: str, other: str) -> bool:
    """Whether only one of two hosts can be bound at a time with the same port; names are not looked up."""
    hosts = {_normalise_host(one), _normalise_host(other)}
    # Such a socket takes IPv4 too, and a name is bound with IPv4.
    return len(hosts) == 1 or "::" in hosts or ("0.0.0.0" in hosts and not any(":" in host for host in hosts))  # noqa: S104 - compared, not bound


def _normalise_host(host: str) -> str:
    """A host in the one spelling of it."""
    name = host.removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address("127.0.0.1" if name == "localhost" else name))
    except ValueError:
        return name
