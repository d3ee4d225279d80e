"""Clients for Azure Blob Storage, from settings or from vended properties `adls.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.app.storage import HttpPools, StoreClient
from sfn.settings.sections import StoreSettings
from sfn.storage.azure import (
    IMPOSSIBLE_ETAG,
    AccessToken,
    AccountKey,
    AzureClient,
    AzureIdentity,
    AzureOptions,
    DefaultCredentialChain,
    EntraApplication,
    SharedSignature,
)


class AzureClientFactory:
    """A `StoreClientFactory` for Azure."""

    def __init__(self, pools: HttpPools) -> None:
        self._pools = pools

    def build(self, settings: StoreSettings, vended: Mapping[str, str]) -> StoreClient:
        options = azure_options_from_credential(settings, vended) if vended else azure_options_from_settings(settings)
        return StoreClient(AzureClient(options, self._pools.pool_for(settings)), options.endpoint, IMPOSSIBLE_ETAG)


def azure_options_from_settings(settings: StoreSettings) -> AzureOptions:
    """Return the options with the configured credentials."""
    # A key or a signature belongs to one account and must not be sent to another.
    account = _account_host(settings).partition(".")[0] if settings.account_key or settings.sas_token else None
    identity = None if settings.anonymous else _configured_identity(settings)
    return AzureOptions(identity=identity, endpoint=settings.endpoint, account=account)


def azure_options_from_credential(settings: StoreSettings, vended: Mapping[str, str]) -> AzureOptions:
    """Return the options with vended credentials, and the configured endpoint.

    Raises:
        KeyError: there are no credentials for this account.
    """
    host = _account_host(settings)
    account = host.partition(".")[0]
    # A catalog may name either of the two hosts of an account.
    hosts = (host, host.replace(".dfs.", ".blob."), account)
    named = (*(f"adls.sas-token.{one}" for one in hosts), "adls.sas-token")
    signature = next((vended[name] for name in named if name in vended), None)
    token = vended.get("adls.token")
    identity: AzureIdentity
    if signature is not None:
        identity = SharedSignature(signature)
    elif token is not None:
        identity = AccessToken(token)
    else:
        identity = AccountKey(vended["adls.auth.shared-key.account.key"])
    return AzureOptions(identity=identity, endpoint=settings.endpoint, account=account)


def _configured_identity(settings: StoreSettings) -> AzureIdentity:
    if settings.account_key is not None:
        return AccountKey(settings.account_key.get_secret_value())
    if settings.sas_token is not None:
        return SharedSignature(settings.sas_token.get_secret_value())
    if settings.client_secret is not None and settings.tenant_id is not None and settings.client_id is not None:
        return EntraApplication(settings.tenant_id, settings.client_id, settings.client_secret.get_secret_value())
    return DefaultCredentialChain(settings.client_id)


def _account_host(settings: StoreSettings) -> str:
    """Return `account.dfs.core.windows.net` for `abfss://container@account.dfs.core.windows.net/…`."""
    return settings.prefix.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()
