"""Storage credentials in the bodies of Iceberg's REST API, parsed into grants: pure.

What is in a configuration stays as the catalog wrote it, by Iceberg's names: `S3FileIOProperties`, `GCPProperties` and
`AzureProperties` of its Java library have the constants.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from sfn.catalog.excerpt import extract
from sfn.catalog.metadata import LAST_MILLISECOND, decode_json, needed_members
from sfn.domain.catalog_answer import VendedCredential
from sfn.sfnfile.locations import canonical

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_CREDENTIAL: Final = re.compile(
    r"s3\.(?:access-key-id|secret-access-key|session-token)"
    r"|gcs\.oauth2\.token"
    r"|adls\.(?:(?:sas-token|connection-string)(?:\..+)?|token|account-key|client-secret|auth\.shared-key\.account\.key)"
)
"""What opens a store: without any such key a configuration says no more than where it is."""
_EXPIRY: Final = re.compile(
    r"s3\.session-token-expires-at-ms"
    r"|gcs\.oauth2\.token-expires-at"
    r"|adls\.sas-token-expires-at-ms(?:\..+)?"
    r"|expiration-time"
)
"""When it ends, Unix milliseconds; the last is Lakekeeper's, for all stores."""
_STORE_PREFIXES: Final = ("s3.", "gcs.", "adls.", "client.", "expiration-time")
"""How the keys of a load's `config` begin that are about stores; another one is a token for the catalog."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class _CredentialBody(msgspec.Struct):
    prefix: str
    config: dict[str, Any]


class _CredentialsBody(msgspec.Struct, rename="kebab"):
    storage_credentials: list[_CredentialBody] | None = None
    config: dict[str, Any] | None = None


_CREDENTIAL_MEMBERS: Final = needed_members(_CredentialsBody)


def read_credentials(body: bytes | bytearray) -> tuple[VendedCredential, ...]:
    """The grants of a `LoadCredentialsResponse` or a `LoadTableResult`, none where no store is opened by them.

    The `config` of a load counts only where there are no `storage-credentials` (REST specification, "Storage
    Credentials").

    Raises:
        Unintelligible: any other body.
    """
    vended = decode_json(body, _CredentialsBody)
    given = [(_prefix(one.prefix), _texts(one.config)) for one in vended.storage_credentials or ()]
    if not any(map(_has_secret, (config for _, config in given))):
        of_stores = {key: value for key, value in (vended.config or {}).items() if key.startswith(_STORE_PREFIXES)}
        given = [("", _texts(of_stores))]
    # Lakekeeper once sent entries that only say where the store is.
    return tuple(
        VendedCredential(prefix, config, _expires_at(config)) for prefix, config in given if _has_secret(config)
    )


async def extract_credentials(start: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """A body of which `read_grants` makes the same as of the whole; see `excerpt`."""
    return await extract(start, parts, _CREDENTIAL_MEMBERS)


def secrets_in(credentials: Iterable[VendedCredential]) -> tuple[str, ...]:
    """What of grants must not show in any message."""
    return tuple(value for grant in credentials for key, value in grant.config.items() if _CREDENTIAL.fullmatch(key))


def _has_secret(config: Mapping[str, str]) -> bool:
    return any(value and _CREDENTIAL.fullmatch(key) for key, value in config.items())


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration as the specification has it; numbers as text, as some write them the other way."""
    values = {
        key: value for key, value in config.items() if isinstance(value, str | int) and not isinstance(value, bool)
    }
    return {key: str(value) for key, value in values.items()}


def _prefix(prefix: str) -> str:
    # Java's clients compare texts: `s3` alone is good for all that begins with it.
    return canonical(f"{prefix}://" if _SCHEME.fullmatch(prefix) else prefix)


def _expires_at(config: Mapping[str, str]) -> datetime | None:
    """The first moment at which a part of it is no good any more."""
    values = [value for key, value in config.items() if _EXPIRY.fullmatch(key) and re.fullmatch("[0-9]{1,15}", value)]
    ends = [end for end in map(int, values) if 0 < end <= LAST_MILLISECOND]
    return _EPOCH + timedelta(milliseconds=min(ends)) if ends else None
