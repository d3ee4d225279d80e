"""What an adapter to a REST catalog is told at its start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sfn.catalog.rest import paths

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def sendable(name: str, value: str) -> bool:
    """Whether that can be a header field (RFC 9110, 5.1 and 5.5)."""
    return bool(_TOKEN.fullmatch(name) and _FIELD_VALUE.fullmatch(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """One configured catalog.

    Attributes:
        name: the name that the configuration gives it.
        uri: where its REST API begins, without `/v1`; a user and password in it are sent as Basic authorization.
        warehouse: which warehouse of that server.
        catalog_id: its identity in our files; None: derived from URI, warehouse and prefix.
        token: bearer token.
        token_file: file with the bearer token, read again when it changes.
        credential: OAuth2 client credentials, `id:secret` or the secret alone.
        credential_file: file with the client credentials, read for every new token.
        oauth2_uri: where tokens are to be had; None: the catalog's own `/v1/oauth/tokens`.
        scope: OAuth2 scope asked for.
        headers: sent with every request but those for tokens.
        ca_file: certificates (PEM) that are trusted instead of the system's, read again when it changes.
        connect_timeout: seconds to get a connection.
        request_timeout: seconds for one request, body included.
        config_timeout: seconds for a token, and for `/v1/config`, which tells a table's trouble from the catalog's too.
        page_size: tables or namespaces a page; None leaves it to the catalog (some refuse what they find too many).
        max_in_flight: connections at once.
        body_limit: bytes of an answer, the metadata of one table above all.

    Raises:
        ValueError: what cannot work; the message names the setting and repeats no secret.
    """

    name: str
    uri: str = field(repr=False)
    warehouse: str | None = None
    catalog_id: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    credential: str | None = field(default=None, repr=False)
    credential_file: Path | None = None
    oauth2_uri: str | None = field(default=None, repr=False)
    scope: str = "catalog"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    connect_timeout: float = 5.0
    request_timeout: float = 60.0
    config_timeout: float = 10.0
    page_size: int | None = None
    max_in_flight: int = 32
    body_limit: int = 256 * 2**20

    def __post_init__(self) -> None:
        for key, uri in (("uri", self.uri), ("oauth2_uri", self.oauth2_uri)):
            if uri is not None:
                try:
                    paths.base(uri)
                except ValueError as error:
                    raise ValueError(f"catalogs.{self.name}.{key}: {error}") from None
        self._check_secrets()
        for header, value in self.headers.items():
            if not sendable(header, value):
                raise ValueError(f"catalogs.{self.name}.headers: {header!r} cannot be sent")
        numbers = ("connect_timeout", "request_timeout", "config_timeout", "page_size", "max_in_flight", "body_limit")
        for key in numbers:
            number = getattr(self, key)
            if number is not None and number <= 0:
                raise ValueError(f"catalogs.{self.name}.{key}: must be more than 0")

    def _check_secrets(self) -> None:
        sources = ("token", "token_file", "credential", "credential_file")
        given = [key for key in sources if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"catalogs.{self.name}: {' and '.join(given)} exclude each other")
        for key, secret in (("token", self.token), ("credential", self.credential)):
            if secret is not None and not (secret and sendable("Authorization", secret)):
                raise ValueError(f"catalogs.{self.name}.{key}: empty, or no header can carry it")
