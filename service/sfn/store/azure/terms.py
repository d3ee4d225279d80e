"""What an adapter to Azure is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sfn.errors import SfnError

_SUFFIX: Final = "core.windows.net"


@dataclass(frozen=True, slots=True)
class AccountKey:
    """Either key of a storage account."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SharedSignature:
    """A shared access signature: of an account, a container or a folder; with `?` before it or without."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """One of Microsoft Entra, which somebody else renews."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class EntraApplication:
    """One of Microsoft Entra, with its secret."""

    tenant_id: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DefaultCredentialChain:
    """Whoever Azure's own tools find: environment, workload identity, managed identity, command line.

    Attributes:
        client_id: of one of several managed identities; None for the one that there is.
    """

    client_id: str | None = None


AzureIdentity: TypeAlias = AccountKey | SharedSignature | AccessToken | EntraApplication | DefaultCredentialChain


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Where the containers are, and as whom they are asked.

    Attributes:
        identity: who asks; None for nobody.
        endpoint: URL of one account's blobs, other than Azure's own: all that comes before a container's name. None for
            where the host of each key leads.
        account: the only one that is asked; None for whichever a key names.
    """

    identity: AzureIdentity | None = DefaultCredentialChain()
    endpoint: str | None = None
    account: str | None = None


def options_from_connection_string(connection: str) -> AzureOptions:
    """The terms of a connection string, as a storage account shows it.

    Raises:
        SfnError: it makes no sense.
    """
    parts = (part.partition("=") for part in connection.split(";"))
    values = {name.strip().lower(): value.strip() for name, _, value in parts}
    account, endpoint = values.get("accountname", "").lower(), values.get("blobendpoint")
    if not account and not endpoint:
        raise SfnError(
            "connection string",
            expected="one of an Azure storage account",
            found="one that has neither AccountName nor BlobEndpoint",
            remedy="copy it from the account's page of access keys",
        )
    protocol, suffix = values.get("defaultendpointsprotocol") or "https", values.get("endpointsuffix") or _SUFFIX
    identity: AzureIdentity | None = None
    if values.get("accountkey"):
        identity = AccountKey(values["accountkey"])
    elif values.get("sharedaccesssignature"):
        identity = SharedSignature(values["sharedaccesssignature"])
    return AzureOptions(
        identity=identity, endpoint=endpoint or f"{protocol}://{account}.blob.{suffix}", account=account or None
    )
