"""Clients for S3, from settings or from vended properties `s3.*` and `client.*`."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.app.storage import HttpPools, StoreClient
from sfn.aws_auth import AwsIdentity, AwsKeys
from sfn.settings.sections import StoreSettings
from sfn.storage.s3 import IMPOSSIBLE_ETAG, BucketEndpoints, S3Client, S3Options


class S3ClientFactory:
    """A `StoreClientFactory` for S3."""

    def __init__(self, pools: HttpPools) -> None:
        self._pools, self._endpoints = pools, BucketEndpoints()

    def build(self, settings: StoreSettings, vended: Mapping[str, str]) -> StoreClient:
        options = s3_options_from_credential(settings, vended) if vended else s3_options_from_settings(settings)
        return StoreClient(
            S3Client(options, self._pools.pool_for(settings), self._endpoints), options.endpoint, IMPOSSIBLE_ETAG
        )


def s3_options_from_settings(settings: StoreSettings) -> S3Options:
    """Return the options with the configured credentials."""
    keys, token = None, settings.session_token
    if settings.access_key_id is not None and settings.secret_access_key is not None:
        secret = settings.secret_access_key.get_secret_value()
        keys = AwsKeys(settings.access_key_id, secret, None if token is None else token.get_secret_value())
    identity = AwsIdentity(keys, settings.profile, settings.role_arn, settings.external_id, settings.region)
    return S3Options(
        identity=None if settings.anonymous else identity,
        endpoint=settings.endpoint,
        region=settings.region,
        path_style=settings.path_style,
    )


def s3_options_from_credential(settings: StoreSettings, vended: Mapping[str, str]) -> S3Options:
    """Return the options with vended credentials. The settings provide the endpoint and region that are not vended.

    Raises:
        KeyError: the catalog vends no keys.
    """
    keys = AwsKeys(vended["s3.access-key-id"], vended["s3.secret-access-key"], vended.get("s3.session-token"))
    styled = vended.get("s3.path-style-access")
    return S3Options(
        identity=AwsIdentity(keys),
        endpoint=vended.get("s3.endpoint") or settings.endpoint,
        region=vended.get("client.region") or vended.get("s3.region") or settings.region,
        path_style=settings.path_style if styled is None else styled.lower() == "true",
    )
