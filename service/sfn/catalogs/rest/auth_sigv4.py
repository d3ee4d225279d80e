"""Authentication with AWS's signatures (Signature Version 4), for AWS Glue and Amazon S3 Tables. Needs the extra `s3`.

A signature covers method, path, query, host and the headers that begin with `x-amz-`: no proxy changes any of these.
"""

from __future__ import annotations

from collections.abc import Mapping

from sfn.aws_auth import AwsCredentialChain, AwsIdentity, AwsKeys, sign_request
from sfn.catalogs.rest.auth import AuthRequest, CloudCredentials, recent_secrets
from sfn.catalogs.rest.settings import RestSettings


class SigV4:
    """Signatures with keys of AWS's standard chain.

    Args:
        settings: settings with `signing`.
    """

    def __init__(self, settings: RestSettings) -> None:
        self._region, self._service = settings.signing
        identity = AwsIdentity(
            profile=settings.aws_profile,
            role_arn=settings.role_arn,
            external_id=settings.external_id,
            region=self._region,
        )
        self._keys = CloudCredentials(
            settings.name, settings.config_timeout, lambda: AwsCredentialChain(identity), AwsCredentialChain.keys
        )
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        keys = await self._keys.current()
        # AWS answers a rejected signature with everything that was signed, including the token.
        self._recent = recent_secrets(self._recent, keys.secret, *([keys.token] if keys.token else []))
        signed_headers = sign_request(
            request.method, request.url, {}, request.body, keys=keys, region=self._region, service=self._service
        )
        return {name.lower(): value for name, value in signed_headers.items()}

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return await self._keys.renew(lambda keys: _signed_by(keys, rejected))

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return self._recent


def _signed_by(keys: AwsKeys, headers: Mapping[str, str]) -> bool:
    is_same_id = f" Credential={keys.id}/" in headers["authorization"]
    return is_same_id and headers.get("x-amz-security-token") == keys.token
