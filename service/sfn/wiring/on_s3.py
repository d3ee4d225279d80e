"""Stores on S3, by settings or by what Iceberg's catalogs call `s3.*` and `client.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.aws import Identity, Keys
from sfn.settings import StoreSettings
from sfn.store.s3 import MADE_UP, AddressBook, S3Objects, S3Terms
from sfn.wiring.making import Made, Pools


class OnS3:
    """Implements `Maker`."""

    def __init__(self, pools: Pools) -> None:
        self._pools, self._book = pools, AddressBook()

    def made(self, settings: StoreSettings, vended: Mapping[str, str]) -> Made:
        terms = granted(settings, vended) if vended else configured(settings)
        return Made(S3Objects(terms, self._pools.of(settings), self._book), terms.endpoint, MADE_UP)


def configured(settings: StoreSettings) -> S3Terms:
    """As the settings say."""
    keys, token = None, settings.session_token
    if settings.access_key_id is not None and settings.secret_access_key is not None:
        secret = settings.secret_access_key.get_secret_value()
        keys = Keys(settings.access_key_id, secret, None if token is None else token.get_secret_value())
    identity = Identity(keys, settings.profile, settings.role_arn, settings.external_id, settings.region)
    return S3Terms(
        identity=None if settings.anonymous else identity,
        endpoint=settings.endpoint,
        region=settings.region,
        path_style=settings.path_style,
    )


def granted(settings: StoreSettings, vended: Mapping[str, str]) -> S3Terms:
    """As a catalog says; where it says nothing of it, the settings tell where the service is.

    Raises:
        KeyError: it vends no keys.
    """
    keys = Keys(vended["s3.access-key-id"], vended["s3.secret-access-key"], vended.get("s3.session-token"))
    styled = vended.get("s3.path-style-access")
    return S3Terms(
        identity=Identity(keys),
        endpoint=vended.get("s3.endpoint") or settings.endpoint,
        region=vended.get("client.region") or vended.get("s3.region") or settings.region,
        path_style=settings.path_style if styled is None else styled.lower() == "true",
    )
