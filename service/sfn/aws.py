"""AWS's credentials, found as AWS's own tools find them, and requests signed with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    Credentials,
    DeferredRefreshableCredentials,
    ReadOnlyCredentials,
)
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError
from botocore.session import Session

from sfn.errors import NoCredentials

FOUND_WITHIN: Final = 20.0
"""Seconds: an instance's metadata service may be asked several times, and a role is asked for after that."""
_SESSION_NAME: Final = "iceberg-sfn"


@dataclass(frozen=True, slots=True)
class Keys:
    """What requests are signed with."""

    id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom AWS is asked.

    Attributes:
        keys: fixed ones; None for the standard chain: environment, profile, SSO, web identity, container, instance.
        profile: of the shared configuration files; None for the one that the environment names.
        role_arn: a role to assume as whoever that is; None for none.
        external_id: that the role asks for.
        region: where the role is assumed; None for where the chain says.
    """

    keys: Keys | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    region: str | None = None


class Chain:
    """The keys of one identity, renewed before they end. Whoever asks at the same time shares one renewal."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._looking = anyio.Lock()
        self._credentials: Credentials | None = None

    async def keys(self) -> Keys:
        """What to sign with now.

        Raises:
            NoCredentials: none are to be had.
        """
        credentials = self._credentials
        # Only what ends is ever renewed; that goes to a file, to a program or over the network.
        if credentials is not None and not _ends(credentials):
            return _frozen(credentials)
        async with self._looking:
            try:
                # Whoever gives up need not wait for a metadata service that does not answer.
                look = partial(self._look, self._credentials)
                with anyio.fail_after(FOUND_WITHIN):
                    self._credentials, keys = await to_thread.run_sync(look, abandon_on_cancel=True)
            except (BotoCoreError, ClientError, OSError, ValueError) as error:
                # The last two also where a program that is to print keys is missing, or prints something else.
                raise self._none(_said(error)) from error
        return keys

    def _look(self, credentials: Credentials | None) -> tuple[Credentials, Keys]:
        if credentials is None:
            credentials = _found(self._identity)
            if credentials is None:
                raise self._none("none in the environment, the shared files, a container or an instance")
        return credentials, _frozen(credentials)

    def _none(self, found: str) -> NoCredentials:
        identity = self._identity
        named = f"profile {identity.profile}" if identity.profile else "AWS's standard chain of credentials"
        return NoCredentials(
            f"{named}, role {identity.role_arn}" if identity.role_arn else named,
            expected="credentials",
            found=found,
            remedy="configure them as for the AWS command line (`aws sts get-caller-identity` shows what it finds)",
        )


def signed(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, keys: Keys, region: str, service: str
) -> dict[str, str]:
    """The headers of a request with a signature of it (AWS Signature Version 4).

    Args:
        url: encoded, as it is sent.
        headers: all of them are signed, so none may be changed on the way.
        region, service: the scope of the signature.
    """
    # Told, or botocore takes the URL apart for it, twice.
    request = AWSRequest(method, url, headers={"host": urlsplit(url).netloc.rpartition("@")[2], **headers}, data=body)
    scheme = S3SigV4Auth if service == "s3" else SigV4Auth
    scheme(ReadOnlyCredentials(keys.id, keys.secret, keys.token), service, region).add_auth(request)
    return dict(request.headers.items())


def _found(identity: Identity) -> Any:  # noqa: ANN401 - botocore has no types
    session = Session(profile=identity.profile)
    if identity.keys is not None:
        source = Credentials(identity.keys.id, identity.keys.secret, identity.keys.token)
    else:
        source = session.get_credentials()
    if identity.role_arn is None or source is None:
        return source

    def client(service: str, **keys: str) -> Any:  # noqa: ANN401 - as above
        return session.create_client(service, region_name=identity.region, **keys)

    asked = {"RoleSessionName": _SESSION_NAME} | ({"ExternalId": identity.external_id} if identity.external_id else {})
    fetcher = AssumeRoleCredentialFetcher(client, source, identity.role_arn, extra_args=asked)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _ends(credentials: Credentials) -> bool:
    needed = getattr(credentials, "refresh_needed", None)
    return bool(needed is not None and needed())


def _frozen(credentials: Credentials) -> Keys:
    found = credentials.get_frozen_credentials()
    return Keys(found.access_key, found.secret_key, found.token)


def _said(error: Exception) -> str:
    """An error without what a service's or a program's message may repeat."""
    if isinstance(error, ClientError):
        return f"{error.response.get('Error', {}).get('Code', 'an error')} from AWS"
    if isinstance(error, CredentialRetrievalError):
        return f"{type(error).__name__} from {error.kwargs.get('provider', 'somewhere')}"
    return f"{type(error).__name__}: {error}" if isinstance(error, BotoCoreError) else type(error).__name__
