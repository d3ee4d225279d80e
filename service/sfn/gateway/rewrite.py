"""The catalog's configuration, as clients of the gateway are to have it: `GET /v1/config`. Pure.

A client goes to where the `uri` of the answer leads (REST specification, "getConfig"): that must not be past us. What a
catalog made of `X-Forwarded-*` is left as it is, and so are the addresses of signers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

SEPARATOR: Final = "namespace-separator"
_SECTIONS: Final = ("defaults", "overrides")


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

    Args:
        body: of the answer, status 200.
        upstream: the catalog's address, without a slash in the end.
        ours: likewise.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    sections = [section for key in _SECTIONS if isinstance(section := content.get(key), dict)]
    leading = [section for section in sections if leads_to(section.get("uri"), upstream)]
    for section in leading:
        section["uri"] = ours
    return Configuration(msgspec.json.encode(content) if leading else body, _separator(sections))


def signers(config: Mapping[str, str]) -> dict[str, str]:
    """Where tables' requests to a store are to be signed, by key: clients go there past the gateway."""
    return {key: value for key, value in config.items() if key.endswith(("signer.uri", "signer.endpoint"))}


def leads_to(uri: object, upstream: str) -> bool:
    """Whether an address in a configuration is the catalog's own, as we know it."""
    return isinstance(uri, str) and uri.rstrip("/").lower() == upstream.lower()


def _separator(sections: list[dict[str, object]]) -> str | None:
    # Overrides come last, and win.
    said = [section[SEPARATOR] for section in sections if isinstance(section.get(SEPARATOR), str)]
    return str(said[-1]) if said else None
