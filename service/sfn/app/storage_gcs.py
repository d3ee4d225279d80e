"""Clients for Google Cloud Storage, from settings or from vended properties `gcs.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.app.storage import HttpPools, StoreClient
from sfn.google_auth import GoogleIdentity
from sfn.settings.sections import StoreSettings
from sfn.storage.gcs import IMPOSSIBLE_GENERATION, GcsClient, GcsOptions


class GcsClientFactory:
    """A `StoreClientFactory` for Google Cloud Storage."""

    def __init__(self, pools: HttpPools) -> None:
        self._pools = pools

    def build(self, settings: StoreSettings, vended: Mapping[str, str]) -> StoreClient:
        options = gcs_options_from_credential(settings, vended) if vended else gcs_options_from_settings(settings)
        return StoreClient(GcsClient(options, self._pools.pool_for(settings)), options.endpoint, IMPOSSIBLE_GENERATION)


def gcs_options_from_settings(settings: StoreSettings) -> GcsOptions:
    """Return the options with the configured credentials."""
    identity = None if settings.anonymous else GoogleIdentity(file=settings.credentials_file)
    return GcsOptions(identity=identity, endpoint=settings.endpoint, billing_project=settings.billing_project)


def gcs_options_from_credential(settings: StoreSettings, vended: Mapping[str, str]) -> GcsOptions:
    """Return the options with vended credentials. The settings provide the endpoint and project that are not vended.

    Raises:
        KeyError: the catalog vends no token.
    """
    return GcsOptions(
        identity=GoogleIdentity(token=vended["gcs.oauth2.token"]),
        endpoint=vended.get("gcs.service.host") or settings.endpoint,
        billing_project=vended.get("gcs.user-project") or settings.billing_project,
    )
