"""Stores on Google Cloud Storage, by settings or by what Iceberg's catalogs call `gcs.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.google import Identity
from sfn.settings import StoreSettings
from sfn.store.gcs import MADE_UP, GcsObjects, GcsTerms
from sfn.wiring.making import Made, Pools


class OnGcs:
    """Implements `Maker`."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def made(self, settings: StoreSettings, vended: Mapping[str, str]) -> Made:
        terms = granted(settings, vended) if vended else configured(settings)
        return Made(GcsObjects(terms, self._pools.of(settings)), terms.endpoint, MADE_UP)


def configured(settings: StoreSettings) -> GcsTerms:
    """As the settings say."""
    identity = None if settings.anonymous else Identity(file=settings.credentials_file)
    return GcsTerms(identity=identity, endpoint=settings.endpoint, billing_project=settings.billing_project)


def granted(settings: StoreSettings, vended: Mapping[str, str]) -> GcsTerms:
    """As a catalog says; where it says nothing of it, the settings tell where the service is and who pays.

    Raises:
        KeyError: it vends no token.
    """
    return GcsTerms(
        identity=Identity(token=vended["gcs.oauth2.token"]),
        endpoint=vended.get("gcs.service.host") or settings.endpoint,
        billing_project=vended.get("gcs.user-project") or settings.billing_project,
    )
