"""Stores on Azure Blob Storage, by settings or by what Iceberg's catalogs call `adls.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.settings import StoreSettings
from sfn.store.azure import (
    MADE_UP,
    AccessToken,
    AccountKey,
    Application,
    AzureObjects,
    AzureTerms,
    Chain,
    Identity,
    SharedSignature,
)
from sfn.wiring.making import Made, Pools


class OnAzure:
    """Implements `Maker`."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def made(self, settings: StoreSettings, vended: Mapping[str, str]) -> Made:
        terms = granted(settings, vended) if vended else configured(settings)
        return Made(AzureObjects(terms, self._pools.of(settings)), terms.endpoint, MADE_UP)


def configured(settings: StoreSettings) -> AzureTerms:
    """As the settings say."""
    # A key or a signature is of one account, and is shown to no other.
    account = _host(settings).partition(".")[0] if settings.account_key or settings.sas_token else None
    identity = None if settings.anonymous else _identity(settings)
    return AzureTerms(identity=identity, endpoint=settings.endpoint, account=account)


def granted(settings: StoreSettings, vended: Mapping[str, str]) -> AzureTerms:
    """As a catalog says; where it says nothing of it, the settings tell where the service is.

    Raises:
        KeyError: it vends nothing for this account.
    """
    host = _host(settings)
    account = host.partition(".")[0]
    # The account's other host is the same to us, and a catalog may name either.
    hosts = (host, host.replace(".dfs.", ".blob."), account)
    named = (*(f"adls.sas-token.{one}" for one in hosts), "adls.sas-token")
    signature = next((vended[name] for name in named if name in vended), None)
    token = vended.get("adls.token")
    identity: Identity
    if signature is not None:
        identity = SharedSignature(signature)
    elif token is not None:
        identity = AccessToken(token)
    else:
        identity = AccountKey(vended["adls.auth.shared-key.account.key"])
    return AzureTerms(identity=identity, endpoint=settings.endpoint, account=account)


def _identity(settings: StoreSettings) -> Identity:
    if settings.account_key is not None:
        return AccountKey(settings.account_key.get_secret_value())
    if settings.sas_token is not None:
        return SharedSignature(settings.sas_token.get_secret_value())
    if settings.client_secret is not None and settings.tenant_id is not None and settings.client_id is not None:
        return Application(settings.tenant_id, settings.client_id, settings.client_secret.get_secret_value())
    return Chain(settings.client_id)


def _host(settings: StoreSettings) -> str:
    """`account.dfs.core.windows.net`, of `abfss://container@account.dfs.core.windows.net/…`."""
    return settings.prefix.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()
