"""Files on Azure Blob Storage, with a hierarchical namespace (Data Lake Gen2) or without."""

from sfn.store.azure.objects import MADE_UP, AzureObjects
from sfn.store.azure.terms import (
    AccessToken,
    AccountKey,
    Application,
    AzureTerms,
    Chain,
    Identity,
    SharedSignature,
    connected,
)

__all__ = [
    "MADE_UP",
    "AccessToken",
    "AccountKey",
    "Application",
    "AzureObjects",
    "AzureTerms",
    "Chain",
    "Identity",
    "SharedSignature",
    "connected",
]
