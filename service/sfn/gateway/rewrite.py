"""The catalog's configuration, as clients of the gateway are to have it: `GET /v1/config`. Pure.

A client goes to where the `uri` of the answer leads (REST specification, "getConfig"): that must not be past us. One
that leads elsewhere is left as it is, and so are the addresses of signers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

SEPARATOR: Final = "namespace-separator"
_SECTIONS: Final = ("defaults", "overrides")
_PORTS: Final = {"http": 80, "https": 443}


class Configuration(NamedTuple):
    """An answer, read.

    Attributes:
        body: for the client.
        separator: between the levels of a namespace, as the catalog says it; None where it says none.
    """

    body: bytes
    separator: str | None


def configuration(body: bytes, upstream: str, ours: str) -> Configuration | None:
    """The configuration with our address in place of the catalog's; None where the answer is none.

    A catalog that goes by `X-Forwarded-*` puts its own path behind the address that clients see: of that we took the
    place as well.

    Args:
        body: of the answer, status 200.
        upstream: the catalog's address.
        ours: the one that clients see.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    sections = [section for key in _SECTIONS if isinstance(section := content.get(key), dict)]
    theirs = (upstream, ours + urlsplit(upstream).path)
    leading = [section for section in sections if any(leads_to(section.get("uri"), one) for one in theirs)]
    for section in leading:
        section["uri"] = ours
    return Configuration(msgspec.json.encode(content) if leading else body, _separator(sections))


def signers(config: Mapping[str, str]) -> dict[str, str]:
    """Where tables' requests to a store are to be signed, by key: clients go there past the gateway."""
    return {key: value for key, value in config.items() if key.endswith(("signer.uri", "signer.endpoint"))}


def leads_to(uri: object, address: str) -> bool:
    """Whether an address in a configuration is one that we know, however it is spelled."""
    return isinstance(uri, str) and _spelled(uri) == _spelled(address)


def _spelled(uri: str) -> tuple[object, ...]:
    """The parts of an address by which it is another one or not; a text that is none is itself."""
    try:
        parts = urlsplit(uri)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.query
    except ValueError:
        return (uri,)


def _separator(sections: list[dict[str, object]]) -> str | None:
    # Overrides come last, and win.
    said = [section[SEPARATOR] for section in sections if isinstance(section.get(SEPARATOR), str)]
    return str(said[-1]) if said else None
