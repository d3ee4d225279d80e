"""`RestSettings`: the settings of one REST catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from sfn.catalogs.rest import responses

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_AWS_HOST: Final = re.compile(
    r"(?:.+\.)?(?P<name>execute-api|glue|s3tables)(?:-fips)?\.(?P<region>[a-z0-9-]+)\."
    r"(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
"""Hosts that imply region and service of a signature: AWS Glue, S3 Tables, and a catalog behind the API Gateway."""


def is_valid_header(name: str, value: str) -> bool:
    """Return True if name and value can be a header field (RFC 9110, 5.1 and 5.5)."""
    return bool(_TOKEN.fullmatch(name) and _FIELD_VALUE.fullmatch(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """One configured catalog.

    Attributes:
        name: the catalog's name in the configuration.
        uri: base of its REST API, without `/v1`; a user and password in it are sent as Basic authorization.
        warehouse: the warehouse of that server.
        catalog_id: its identity in our files; None: derived from URI, warehouse and prefix.
        token: bearer token.
        token_file: file with the bearer token, read again when it changes.
        credential: OAuth2 client credentials, `id:secret` or only the secret.
        credential_file: file with the client credentials, read for every new token.
        oauth2_uri: URL that issues tokens; None: the catalog's own `/v1/oauth/tokens`.
        scope: OAuth2 scope of the tokens; for Google several, separated by spaces.
        auth: `sigv4` for AWS's signatures, `google` for Google's tokens; None for one of the above, or none.
        signing_region: region of the signatures; None for the one in the host of the URI.
        signing_name: service of the signatures; None for the one in the host of the URI.
        aws_profile: profile of AWS's shared configuration files; None for the standard chain.
        role_arn: role to assume with these keys, and with `external_id` if the role requires one; None for none.
        external_id: see `role_arn`.
        google_credentials_file: key of a service account; None for the application default credentials.
        headers: headers of every request except those for tokens.
        ca_file: certificates (PEM) that are trusted instead of the system's, read again when it changes.
        connect_timeout: seconds to get a connection.
        request_timeout: seconds for one request, including the body.
        config_timeout: seconds for a token, and for `/v1/config`, which also decides the scope of errors.
        page_size: tables or namespaces per page; None for the catalog's default (some refuse a large number).
        max_in_flight: concurrent connections.
        body_limit: bytes of an answer; the longest are the metadata of tables.

    Raises:
        ValueError: a setting cannot work; the message names the setting and repeats no secret.
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
    auth: Literal["sigv4", "google"] | None = None
    signing_region: str | None = None
    signing_name: str | None = None
    aws_profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    google_credentials_file: Path | None = None
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
                    responses.base_url(uri)
                except ValueError as error:
                    raise ValueError(f"catalogs.{self.name}.{key}: {error}") from None
        self._check_secrets()
        if self.auth == "sigv4":
            self._check_signing()
        for header, value in self.headers.items():
            if not is_valid_header(header, value):
                raise ValueError(f"catalogs.{self.name}.headers: {header!r} cannot be sent")
        numbers = ("connect_timeout", "request_timeout", "config_timeout", "page_size", "max_in_flight", "body_limit")
        for key in numbers:
            number = getattr(self, key)
            if number is not None and number <= 0:
                raise ValueError(f"catalogs.{self.name}.{key}: must be more than 0")

    @property
    def signing(self) -> tuple[str, str]:
        """Region and service of the signatures; empty if neither setting nor host gives them."""
        match = _AWS_HOST.fullmatch(urlsplit(self.uri).hostname or "")
        region, name = (match["region"], match["name"]) if match else ("", "")
        return self.signing_region or region, self.signing_name or name

    def _check_signing(self) -> None:
        for key, value in zip(("signing_region", "signing_name"), self.signing, strict=True):
            if not value:
                raise ValueError(f"catalogs.{self.name}.{key}: needed, as the host of uri does not imply it")

    def _check_secrets(self) -> None:
        sources = ("token", "token_file", "credential", "credential_file")
        given = [key for key in sources if getattr(self, key) is not None]
        if self.auth is not None:
            given.append("auth")
        if len(given) > 1:
            raise ValueError(f"catalogs.{self.name}: {' and '.join(given)} exclude each other")
        for key, secret in (("token", self.token), ("credential", self.credential)):
            if secret is not None and not (secret and is_valid_header("Authorization", secret)):
                raise ValueError(f"catalogs.{self.name}.{key}: empty, or with characters that a header cannot carry")
