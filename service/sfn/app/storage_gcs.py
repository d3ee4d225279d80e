"""Stores on Google Cloud Storage, by settings or by what Iceberg's catalogs call `gcs.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.app.storage import HttpPools, StoreClient
from sfn.google_auth import GoogleIdentity
from sfn.settings.sections import StoreSettings
from sfn.storage.gcs import IMPOSSIBLE_GENERATION, GcsClient, GcsOptions


class GcsClientFactory:
    """Implements `Maker`."""

    def __init__(self, pools: HttpPools) -> None:
        self._pools = pools

    def build(self, settings: StoreSettings, vended: Mapping[str, str]) -> StoreClient:
        terms = gcs_options_from_credential(settings, vended) if vended else gcs_options_from_settings(settings)
        return StoreClient(GcsClient(terms, self._pools.pool_for(settings)), terms.endpoint, IMPOSSIBLE_GENERATION)


def gcs_options_from_settings(settings: StoreSettings) -> GcsOptions:
    """As the settings say."""
    identity = None if settings.anonymous else GoogleIdentity(file=settings.credentials_file)
    return GcsOptions(identity=identity, endpoint=settings.endpoint, billing_project=settings.billing_project)


def gcs_options_from_credential(settings: StoreSettings, vended: Mapping[str, str]) -> GcsOptions:
    """As a catalog says; where it says nothing of it, the settings tell where the service is and who pays.

    Raises:
        KeyError: it vends no token.
    """
    return GcsOptions(
        identity=GoogleIdentity(token=vended["gcs.oauth2.token"]),
        endpoint=vended.get("gcs.service.host") or settings.endpoint,
        billing_project=vended.get("gcs.user-project") or settings.billing_project,
    )
