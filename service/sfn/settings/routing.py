"""What does not fit together of gateways, and of these with the catalogs behind them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from sfn.errors import SfnError, nearest
from sfn.settings.gateways import GatewaySettings
from sfn.settings.model import Settings
from sfn.settings.sources import Sources

_SIGNED: Final = re.compile(
    r"(?:.+\.)?(?:glue|s3tables)(?:-fips)?\.[a-z0-9-]+\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
"""Hosts of AWS Glue and S3 Tables."""
_NOT_SIGNED: Final = (
    "a catalog whose requests are not signed with SigV4: clients sign the host that they speak to, "
    "so nothing can stand between"
)
_INSTEAD: Final = "let events tell of its commits (AWS Glue: EventBridge to /v1/events), and the sweep find the rest"


def misrouted(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    """Everything of the sections `gateway.NAME` that can't work."""
    for name, gateway in settings.gateway.items():
        yield from _misnamed(name, gateway, settings, sources)
        yield from _signed(name, gateway, settings, sources)
        yield from _misled(name, gateway, settings, sources)
    yield from _crowded(settings, sources)


def _misnamed(name: str, gateway: GatewaySettings, settings: Settings, sources: Sources) -> Iterator[SfnError]:
    """Catalogs of ours that there are not, or that nobody can ask."""
    place = sources.place(("gateway", name, "catalog"))
    known = [catalog for catalog, one in settings.catalogs.items() if not one.is_told]
    if gateway.catalog is not None and gateway.catalogs:
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if not settings.behind(name):
        yield SfnError(
            place,
            expected="our name of the catalog behind it, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    for key, ours in settings.behind(name).items():
        keys = ("gateway", name, "catalogs", key) if gateway.catalogs else ("gateway", name, "catalog")
        if ours not in settings.catalogs:
            expected, remedy = "a configured catalog", nearest(ours, known)
            yield SfnError(sources.place(keys), expected=expected, found=ours, remedy=remedy)
        elif settings.catalogs[ours].is_told:
            expected = "a catalog that can be asked: what passes is looked up there"
            yield SfnError(sources.place(keys), expected=expected, found=f"{ours}, of type told")


def _signed(name: str, gateway: GatewaySettings, settings: Settings, sources: Sources) -> Iterator[SfnError]:
    host = urlsplit(gateway.upstream).hostname or ""
    behind = [settings.catalogs[ours] for ours in settings.behind(name).values() if ours in settings.catalogs]
    if _SIGNED.fullmatch(host) or any(catalog.auth == "sigv4" for catalog in behind):
        yield SfnError(
            sources.place(("gateway", name, "upstream")), expected=_NOT_SIGNED, found=f"one at {host}", remedy=_INSTEAD
        )


def _misled(name: str, gateway: GatewaySettings, settings: Settings, sources: Sources) -> Iterator[SfnError]:
    """Addresses that lead nowhere, or back."""
    for key in ("upstream", "public_url"):
        said = getattr(gateway, key)
        parts = urlsplit(said or "")
        if parts.query or parts.fragment or parts.username is not None:
            expected = "an address alone, as clients show themselves who they are"
            yield SfnError(
                sources.place(("gateway", name, key)),
                expected=expected,
                found="a user, a query or a fragment beside it",
            )
    upstream = urlsplit(gateway.upstream)
    own = [(settings.listener.host, settings.listener.port), (gateway.host, gateway.port)]
    if (upstream.hostname, upstream.port) in own:
        yield SfnError(
            sources.place(("gateway", name, "upstream")), expected="the catalog's address", found="the service's own"
        )


def _crowded(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    """Gateways that would listen where the listener does, or one before them."""
    taken = [("listener", settings.listener.host, settings.listener.port)]
    for name, gateway in settings.gateway.items():
        if gateway.host is None or gateway.port == 0:
            continue
        same = (where for where, host, port in taken if port == gateway.port and _meet(host, gateway.host))
        if (other := next(same, None)) is not None:
            yield SfnError(
                sources.place(("gateway", name, "port")),
                expected="an address of its own",
                found=f"that of {other}",
                remedy="set another port, or another host",
            )
        taken.append((f"gateway.{name}", gateway.host, gateway.port))


def _meet(one: str, other: str) -> bool:
    """Whether only one of two hosts can be bound at a time with the same port; names are not looked up."""
    hosts = {_spelt(one), _spelt(other)}
    # Such a socket takes IPv4 too, and a name is bound with IPv4.
    return len(hosts) == 1 or "::" in hosts or ("0.0.0.0" in hosts and not any(":" in host for host in hosts))  # noqa: S104 - compared, not bound


def _spelt(host: str) -> str:
    """A host in the one spelling of it."""
    name = host.removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address("127.0.0.1" if name == "localhost" else name))
    except ValueError:
        return name
