"""Gateways: whether their addresses are free, their catalogs lead clients past them, and who can listen in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.parse import unquote, urlsplit

from sfn.app.catalogs import IdentifiedCatalog
from sfn.catalogs import ConfigAdvertiser
from sfn.cli.checks.findings import CheckFinding, error_finding, ok_finding, warning_finding
from sfn.cli.checks.place import address_finding
from sfn.errors import ExternalError
from sfn.gateway.upstream import is_readable, is_same_address, signer_addresses
from sfn.settings.model import Settings
from sfn.settings.service import is_loopback


def gateway_findings(settings: Settings, *, is_running: bool) -> Iterator[CheckFinding]:
    """Where clients come in.

    Args:
        is_running: a service has the inbox, or answers, and so has the addresses too.
    """
    for name, gateway in settings.gateway.items():
        where = f"gateway.{name}"
        if gateway.host is None:
            yield ok_finding(where, f"below /catalog/{name} of the listener")
            continue
        if not is_running:
            yield address_finding(where, gateway.host, gateway.port)
        if settings.listener.scheme == "http" and not is_loopback(gateway.host):
            text = f"{gateway.host} is reached from elsewhere, and clients' credentials travel in clear text"
            yield warning_finding(
                where, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it"
            )


async def advertised_findings(
    catalog: str, adapter: IdentifiedCatalog, settings: Settings
) -> AsyncIterator[CheckFinding]:
    """Where a catalog leads the clients of its gateways.

    Args:
        catalog: our name of it.
        adapter: the catalog.
    """
    names = [name for name in settings.gateway if catalog in settings.catalogs_behind(name).values()]
    if not names or not isinstance(adapter, ConfigAdvertiser):
        return
    try:
        config, coding = await adapter.advertised_config(), await adapter.advertised_encoding()
    except ExternalError as trouble:
        # The catalog's own check says so too, and what it means.
        yield error_finding(f"gateway.{names[0]}", trouble)
        return
    for name in names:
        gateway, where = settings.gateway[name], f"gateway.{name}"
        unmapped = _unmapped_finding(where, catalog, config.get("prefix", ""), settings.catalogs_behind(name))
        if unmapped is not None:
            yield unmapped
        for key, signer in signer_addresses(config).items():
            text = f"{key} leads to {_without_secrets(signer)}: clients have requests to stores signed there, not here"
            yield ok_finding(where, text)
        uri = config.get("uri")
        if uri is not None and not is_readable(coding):
            text = f"{catalog} names its own address in an answer encoded with {coding}, which the gateway can't read"
            remedy = "have the catalog, or what stands before it, not compress what is asked for as it is"
            yield warning_finding(where, f"{text}: clients are led past the gateway", remedy)
        elif uri is None or is_same_address(uri, gateway.upstream):
            if unmapped is None:
                yield ok_finding(where, f"clients of {catalog} stay with it")
        else:
            address = _without_secrets(uri)
            text = f"{catalog} leads its clients to {address}, past the gateway, unless it goes by X-Forwarded-Host"
            yield warning_finding(
                where, text, f"set {where}.upstream to that address, or have the catalog not name any"
            )


def _unmapped_finding(where: str, catalog: str, given: str, behind: Mapping[str, str]) -> CheckFinding | None:
    """Return that clients which are given the same prefix as we commit past us; None where their commits are seen."""
    by_prefix = {unquote(prefix.strip("/")): ours for prefix, ours in behind.items()}
    prefix = unquote(given.strip("/"))
    if "" in by_prefix or by_prefix.get(prefix) == catalog:
        return None
    given = f"the prefix {json.dumps(prefix, ensure_ascii=False)}" if prefix else "no prefix"
    known = ", ".join(sorted(behind))
    text = f"{catalog} gives us {given}, and {where}.catalogs has {known}: commits under it wait for a sweep"
    remedy = f"set {where}.catalog = {json.dumps(catalog)} in place of catalogs"
    if prefix:
        remedy = f"set {where}.catalogs = {{ {json.dumps(prefix, ensure_ascii=False)} = {json.dumps(catalog)} }}"
    return warning_finding(where, text, remedy)


def _without_secrets(uri: str) -> str:
    """A URI without what may be secret in it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
