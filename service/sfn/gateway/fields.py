"""Header fields on their way through: which go on, and what the catalog is told of who asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

HeaderFields: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in any case, in the order of arrival."""

FIELD_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field's name (RFC 9110, section 5.6.2)."""
FIELD_VALUE: Final = re.compile(rb"[^\x00\r\n]*")
"""What a field's value may hold without ending the field. Bytes above 7F are somebody's text and pass as they are."""
ORIGIN_FORM: Final = re.compile(rb"/[!-\"$-~]*")
"""A request's target in origin form (RFC 9112, section 3.2.1), the only form that passes: it names no host. The
catalog reads what stands behind its slash: `@`, a backslash and a second slash may stand there too."""

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""They speak of one connection (RFC 9110, section 7.6.1)."""

_REPLACED: Final = frozenset(
    {
        b"host",
        b"expect",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
    }
)
"""Of a request: they are made anew, or were answered here."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """How a client reached us: what links in answers must begin with.

    Attributes:
        scheme: `http` or `https`.
        authority: host, and port where it is not the scheme's.
        prefix: of the path, without a slash in the end.
    """

    scheme: str
    authority: str
    prefix: str

    @property
    def url(self) -> str:
        """All of it."""
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def port(self) -> str:
        """The port."""
        tail = self.authority.rpartition("]")[2].rpartition(":")
        return tail[2] if tail[1] else ("443" if self.scheme == "https" else "80")


def public_address(fields: HeaderFields, scheme: str, prefix: str) -> PublicAddress:
    """How a client reached us, by what it and the proxies before us say.

    Whoever makes this up is told links that are made up, and nobody else is.

    Args:
        fields: of the request.
        scheme: of the connection.
        prefix: of the path that is ours.
    """
    said = {name.lower(): value.decode("latin-1").partition(",")[0].strip() for name, value in fields}
    return PublicAddress(
        said.get(b"x-forwarded-proto") or scheme,
        said.get(b"x-forwarded-host") or said.get(b"host", ""),
        said.get(b"x-forwarded-prefix", "").rstrip("/") + prefix,
    )


def request_fields(fields: HeaderFields, address: PublicAddress, peer: str | None) -> list[tuple[bytes, bytes]]:
    """A request's fields for the catalog, but for `Host`.

    Args:
        fields: as they came.
        address: how the client reached us.
        peer: the client's address; None where the server does not know it.
    """
    forwarded = _passing(fields, _REPLACED)
    chain = [value for name, value in fields if name.lower() == b"x-forwarded-for"]
    if peer is not None:
        chain.append(peer.encode())
    forwarded += [
        (b"X-Forwarded-Host", address.authority.encode("latin-1")),
        (b"X-Forwarded-Proto", address.scheme.encode("latin-1")),
        (b"X-Forwarded-Port", address.port.encode("latin-1")),
        (b"X-Forwarded-Prefix", address.prefix.encode("latin-1")),
    ]
    if chain:
        forwarded.append((b"X-Forwarded-For", b", ".join(chain)))
    return forwarded


def response_fields(fields: HeaderFields, *, bodiless: bool) -> list[tuple[bytes, bytes]]:
    """An answer's fields for the client. The server that speaks to it stamps the date.

    Args:
        fields: as they came.
        bodiless: the status allows no body: no length is told.
    """
    dropped = {b"date", b"content-length"} if bodiless else {b"date"}
    return _passing(fields, dropped)


def list_values(fields: HeaderFields, wanted: bytes) -> list[bytes]:
    """The words of all fields of a name that has a list of them, in lower case.

    Args:
        wanted: its name in lower case.
    """
    listed = [found for name, found in fields if name.lower() == wanted]
    return [word for one in listed for part in one.split(b",") if (word := part.strip().lower())]


def first_value(fields: HeaderFields, wanted: bytes) -> str | None:
    """The first value of a field, None where there is none.

    Args:
        wanted: its name in lower case.
    """
    return next((found.decode("latin-1").strip() for name, found in fields if name.lower() == wanted), None)


def _passing(fields: HeaderFields, dropped: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    without = {*HOP_BY_HOP, *dropped}
    without.update(list_values(fields, b"connection"))
    return [(name, value) for name, value in fields if name.lower() not in without]
