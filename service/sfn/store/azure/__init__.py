"""Files on Azure Blob Storage, with a hierarchical namespace (Data Lake Gen2) or without."""

from sfn.store.azure.objects import IMPOSSIBLE_ETAG, AzureClient
from sfn.store.azure.terms import (
    AccessToken,
    AccountKey,
    AzureIdentity,
    AzureOptions,
    DefaultCredentialChain,
    EntraApplication,
    SharedSignature,
    options_from_connection_string,
)

__all__ = [
    "IMPOSSIBLE_ETAG",
    "AccessToken",
    "AccountKey",
    "AzureClient",
    "AzureIdentity",
    "AzureOptions",
    "DefaultCredentialChain",
    "EntraApplication",
    "SharedSignature",
    "options_from_connection_string",
]
