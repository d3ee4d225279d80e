"""The catalog's configuration, as clients of the gateway are to have it: `GET /v1/config`; and redirects. Pure.

A client goes to where the `uri` of the answer leads (REST specification, "getConfig"): that must not be past us. One
that leads elsewhere is left as it is, and so are the addresses of signers.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

SEPARATOR_KEY: Final = "namespace-separator"
PREFIX_KEY: Final = "prefix"
READABLE_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"identity"})
"""Content codings that a configuration may have for its addresses to be changed."""
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_SECTIONS: Final = ("defaults", "overrides")
_PORTS: Final = {"http": 80, "https": 443}


class RewrittenConfiguration(NamedTuple):
    """An answer, read.

    Attributes:
        body: for the client.
        separator: between the levels of a namespace, as the catalog says it; None where it says none.
        prefix: what it has its clients put before its paths; "" where it says none.
    """

    body: bytes
    separator: str | None
    prefix: str


def rewrite_configuration(body: bytes, upstream: str, public_url: str) -> RewrittenConfiguration | None:
    """The configuration with our address in place of the catalog's; None where the answer is none.

    A catalog that goes by `X-Forwarded-*` puts its own path behind the address that clients see: of that we took the
    place as well.

    Args:
        body: of the answer, status 200.
        upstream: the catalog's address.
        public_url: the one that clients see.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    sections = [section for key in _SECTIONS if isinstance(section := content.get(key), dict)]
    upstream_urls = (upstream, public_url + urlsplit(upstream).path)
    leading = [
        section for section in sections if any(is_same_address(section.get("uri"), one) for one in upstream_urls)
    ]
    for section in leading:
        section["uri"] = public_url
    changed = msgspec.json.encode(content) if leading else body
    return RewrittenConfiguration(
        changed, _setting_of(sections, SEPARATOR_KEY), _setting_of(sections, PREFIX_KEY) or ""
    )


def is_readable(coding: str) -> bool:
    """Whether a configuration can be read that came with a `Content-Encoding`."""
    return {part.strip() for part in coding.lower().encode().split(b",")} <= READABLE_CODINGS | {b""}


def decode_body(body: bytes, codings: Sequence[bytes], limit: int) -> bytes | None:
    """Return a decoded body; None if the coding is unknown or the result is too long.

    Args:
        body: as it came.
        codings: of `Content-Encoding`, in the order in which they were applied.
        limit: most bytes.
    """
    for coding in reversed(codings):
        if coding == b"identity":
            continue
        if coding not in READABLE_CODINGS:
            return None
        # What is called deflate comes with the header of zlib (RFC 9110, section 8.4.1.2), and without from some.
        forms = (_GZIP_OR_ZLIB,) if coding != b"deflate" else (_GZIP_OR_ZLIB, -zlib.MAX_WBITS)
        plain = next((found for form in forms if (found := _inflated(body, form, limit)) is not None), None)
        if plain is None:
            return None
        body = plain
    return body


def _inflated(body: bytes, form: int, limit: int) -> bytes | None:
    plain = b""
    try:
        # A body may be of several parts, one behind the other (RFC 1952, section 2.2).
        while body:
            inflate = zlib.decompressobj(form)
            plain += inflate.decompress(body, limit + 1 - len(plain))
            if len(plain) > limit or not inflate.eof:
                return None
            body = inflate.unused_data
    except zlib.error:
        return None
    return plain


def rewrite_location(value: bytes, upstream: str, public_url: str) -> bytes:
    """Where an answer sends its client, with our address in place of the catalog's: else the client goes on past us.

    Args:
        value: of the field `Location`: a URL, or a path on the host that the client asked.
        upstream: the catalog's address.
        public_url: the one that clients see.
    """
    said = value.decode("latin-1")
    theirs, mine = urlsplit(upstream), urlsplit(public_url)
    try:
        parts = urlsplit(said)
        leads_here = (
            _origin(parts, theirs.scheme) in (_origin(theirs), _origin(mine)) if parts.netloc else said[:1] == "/"
        )
    except ValueError:
        return value
    if not leads_here:
        return value
    rest = said[said.index(parts.netloc) + len(parts.netloc) :]
    is_behind = not theirs.path
    # A catalog that goes by `X-Forwarded-Prefix` puts our path before its own.
    for path in (mine.path, theirs.path):
        if path and _is_below(rest, path):
            rest, is_behind = rest[len(path) :], True
    return f"{public_url}{rest}".encode("latin-1") if is_behind else value


def _is_below(path: str, of: str) -> bool:
    return path.startswith(of) and path[len(of) : len(of) + 1] in {"", "/", "?", "#"}


def _origin(parts: SplitResult, scheme: str = "") -> tuple[str, str | None, int | None]:
    scheme = parts.scheme or scheme
    return scheme, parts.hostname, parts.port or _PORTS.get(scheme)


def signer_addresses(config: Mapping[str, str]) -> dict[str, str]:
    """Where tables' requests to a store are to be signed, by key: clients go there past the gateway."""
    return {key: value for key, value in config.items() if key.endswith(("signer.uri", "signer.endpoint"))}


def is_same_address(uri: object, address: str) -> bool:
    """Whether an address in a configuration is one that we know, however it is spelled."""
    return isinstance(uri, str) and _normalised(uri) == _normalised(address)


def _normalised(uri: str) -> tuple[object, ...]:
    """The parts of an address by which it is another one or not; a text that is none is itself."""
    try:
        parts = urlsplit(uri)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.query
    except ValueError:
        return (uri,)


def _setting_of(sections: list[dict[str, object]], key: str) -> str | None:
    # Overrides come last, and win.
    said = [section[key] for section in sections if isinstance(section.get(key), str)]
    return str(said[-1]) if said else None
