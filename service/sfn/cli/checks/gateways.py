"""Gateways: whether their addresses are free, their catalogs lead clients past them, and who can listen in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.parse import unquote, urlsplit

from sfn.catalog import ConfigAdvertiser
from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.cli.checks.place import address
from sfn.errors import Trouble
from sfn.gateway.rewrite import is_readable, leads_to, signers
from sfn.settings import Settings
from sfn.settings.listener import is_loopback
from sfn.wiring.sources import IdentifiedCatalog


def doors(settings: Settings, *, is_running: bool) -> Iterator[Finding]:
    """Where clients come in.

    Args:
        is_running: a service has the inbox, or answers, and so has the addresses too.
    """
    for name, gateway in settings.gateway.items():
        where = f"gateway.{name}"
        if gateway.host is None:
            yield fine(where, f"below /catalog/{name} of the listener")
            continue
        if not is_running:
            yield address(where, gateway.host, gateway.port)
        if settings.listener.scheme == "http" and not is_loopback(gateway.host):
            text = f"{gateway.host} is reached from elsewhere, and clients' credentials travel in clear text"
            yield doubtful(where, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it")


async def advertised(catalog: str, asked: IdentifiedCatalog, settings: Settings) -> AsyncIterator[Finding]:
    """Where a catalog leads the clients of its gateways.

    Args:
        catalog: our name of it.
        asked: the catalog.
    """
    names = [name for name in settings.gateway if catalog in settings.behind(name).values()]
    if not names or not isinstance(asked, ConfigAdvertiser):
        return
    try:
        told, coding = await asked.advertised_config(), await asked.advertised_encoding()
    except Trouble as trouble:
        # The catalog's own check says so too, and what it means.
        yield wrong(f"gateway.{names[0]}", trouble)
        return
    for name in names:
        gateway, where = settings.gateway[name], f"gateway.{name}"
        unmapped = _unmapped(where, catalog, told.get("prefix", ""), settings.behind(name))
        if unmapped is not None:
            yield unmapped
        for key, signer in signers(told).items():
            text = f"{key} leads to {_shown(signer)}: clients have requests to stores signed there, not here"
            yield fine(where, text)
        uri = told.get("uri")
        if uri is not None and not is_readable(coding):
            text = f"{catalog} names its own address in an answer encoded with {coding}, which the gateway can't read"
            remedy = "have the catalog, or what stands before it, not compress what is asked for as it is"
            yield doubtful(where, f"{text}: clients are led past the gateway", remedy)
        elif uri is None or leads_to(uri, gateway.upstream):
            if unmapped is None:
                yield fine(where, f"clients of {catalog} stay with it")
        else:
            text = f"{catalog} leads its clients to {_shown(uri)}, past the gateway, unless it goes by X-Forwarded-Host"
            yield doubtful(where, text, f"set {where}.upstream to that address, or have the catalog not name any")


def _unmapped(where: str, catalog: str, given: str, behind: Mapping[str, str]) -> Finding | None:
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
    return doubtful(where, text, remedy)


def _shown(uri: str) -> str:
    """A URI without what may be secret in it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
