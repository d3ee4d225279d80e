"""AWS credentials, found in the same places where AWS's own tools find them, and requests signed with them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
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
from botocore.parsers import ResponseParserError
from botocore.session import Session

from sfn.errors import NoCredentials

SEARCH_TIMEOUT: Final = 20.0
"""Seconds for a search. It may ask an instance's metadata service several times, and then assume a role."""
RETRY_AFTER: Final = 5.0
"""Seconds until the next search for new keys while the old ones are still valid."""
_SESSION_NAME: Final = "iceberg-sfn"
_NOT_FOUND: Final = "none in the environment, the shared files, a container or an instance"
_EXPIRED_KEYS: Final = "keys that were expired on arrival: check this machine's clock"
_FAILURES: Final = (
    BotoCoreError,
    ClientError,
    ResponseParserError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
)
"""Errors of a search. From `OSError` on they come from missing programs, and from programs and servers with answers
that botocore does not expect; `RuntimeError` comes from keys that were expired on arrival."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Keys for the signatures of requests."""

    id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """The identity that signs requests to AWS.

    Attributes:
        keys: fixed keys; None for the standard chain: environment, profile, SSO, web identity, container, instance.
        profile: a profile of the shared configuration files; None for the one that the environment names.
        role_arn: a role to assume with these credentials; None for none.
        external_id: the external id that the role requires.
        region: the region in which the role is assumed; None for the chain's.
    """

    keys: AwsKeys | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class _CurrentKeys:
    """Keys and the object that knows their expiry; it is never renewed itself, so it always describes these keys."""

    keys: AwsKeys
    credentials: Credentials

    @property
    def is_expired(self) -> bool:
        return _expires_within(self.credentials, 0)

    @property
    def is_due(self) -> bool:
        return _expires_within(self.credentials)


class AwsCredentialChain:
    """The keys of one identity, renewed some minutes before they expire.

    Concurrent callers share the outcome of one search. While keys are valid, only one caller searches for the next.

    Args:
        identity: the identity.
        limit: seconds for one search.
    """

    def __init__(self, identity: AwsIdentity, *, limit: float = SEARCH_TIMEOUT) -> None:
        self._identity, self._limit = identity, limit
        self._refresh_lock = anyio.Lock()
        self._refreshes, self._next_refresh_at = 0, 0.0
        self._current: _CurrentKeys | None = None
        self._renewable: Credentials | None = None
        self._failure = ""

    async def keys(self) -> AwsKeys:
        """Return valid keys, after two limits at most.

        Raises:
            NoCredentials: there are no valid keys.
        """
        if self._is_due():
            refreshes = self._refreshes
            # Two limits: the caller that searches may be cancelled shortly before its limit, and so may the next.
            with anyio.move_on_after(2 * self._limit):
                async with self._refresh_lock:
                    if refreshes == self._refreshes:
                        await self._refresh()
        if self._current is None or self._current.is_expired:
            raise self._no_credentials_error(self._failure or _EXPIRED_KEYS)
        return self._current.keys

    def _is_due(self) -> bool:
        if self._current is None or self._current.is_expired:
            return True
        return (
            self._current.is_due and not self._refresh_lock.locked() and anyio.current_time() >= self._next_refresh_at
        )

    async def _refresh(self) -> None:
        # An abandoned thread may run for long and holds botocore's lock, so the next search starts without its object.
        renewable, self._renewable = self._renewable, None
        self._failure = f"none within {self._limit:g} s"
        try:
            with anyio.move_on_after(self._limit):
                fetch = partial(_fetch_keys, self._identity, renewable)
                held = await to_thread.run_sync(fetch, abandon_on_cancel=True)
                self._failure = "" if held is not None else _NOT_FOUND
                if held is not None:
                    self._current, self._renewable = held, held.credentials
        except _FAILURES as error:
            self._renewable, self._failure = renewable, _error_text(error)
        finally:
            # Also if the caller was cancelled: the next search would take as long.
            self._next_refresh_at = anyio.current_time() + RETRY_AFTER
        self._refreshes += 1

    def _no_credentials_error(self, found: str) -> NoCredentials:
        identity = self._identity
        named = f"profile {identity.profile}" if identity.profile else "AWS's standard chain of credentials"
        return NoCredentials(
            f"{named}, role {identity.role_arn}" if identity.role_arn else named,
            expected="credentials",
            found=found,
            remedy="configure them as for the AWS command line (`aws sts get-caller-identity` shows what it finds)",
        )


def sign_request(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, keys: AwsKeys, region: str, service: str
) -> dict[str, str]:
    """Return the headers of a request with its signature (AWS Signature Version 4).

    Args:
        url: encoded, as it is sent.
        headers: all of them are signed, so no proxy may change them.
        region, service: the scope of the signature.
    """
    # With an explicit host, botocore does not parse the URL for it, twice.
    request = AWSRequest(method, url, headers={"host": urlsplit(url).netloc.rpartition("@")[2], **headers}, data=body)
    scheme = S3SigV4Auth if service == "s3" else SigV4Auth
    scheme(ReadOnlyCredentials(keys.id, keys.secret, keys.token), service, region).add_auth(request)
    return dict(request.headers.items())


def _find_credentials(identity: AwsIdentity) -> Any:  # noqa: ANN401 - botocore has no types
    session = Session(profile=identity.profile)
    if identity.keys is not None:
        source = Credentials(identity.keys.id, identity.keys.secret, identity.keys.token)
    else:
        source = session.get_credentials()
    if identity.role_arn is None or source is None:
        return source

    def client(service: str, **keys: str) -> Any:  # noqa: ANN401 - as above
        return session.create_client(service, region_name=identity.region, **keys)

    extra = {"RoleSessionName": _SESSION_NAME} | ({"ExternalId": identity.external_id} if identity.external_id else {})
    fetcher = AssumeRoleCredentialFetcher(client, source, identity.role_arn, extra_args=extra)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _fetch_keys(identity: AwsIdentity, renewable: Credentials | None) -> _CurrentKeys | None:
    """Return keys, found or renewed if necessary; None for none. Reads files, starts programs, asks servers.

    Args:
        identity: the identity.
        renewable: the result of the previous search; None for a new search.
    """
    # A copy: the holder of the old keys must not see the expiry of the new ones.
    credentials = _find_credentials(identity) if renewable is None else copy(renewable)
    if credentials is None:
        return None
    frozen = credentials.get_frozen_credentials()
    return _CurrentKeys(AwsKeys(frozen.access_key, frozen.secret_key, frozen.token), credentials)


def _expires_within(credentials: Credentials, within: float | None = None) -> bool:
    """Return True if credentials expire within `within` seconds; None for botocore's own margin."""
    # Only credentials that expire have `refresh_needed`. A renewal reads a file, runs a program or asks a server.
    needed = getattr(credentials, "refresh_needed", None)
    return bool(needed is not None and needed(within))


def _error_text(error: Exception) -> str:
    """Describe an error without the message of a service or program, which may repeat a secret."""
    if isinstance(error, ClientError):
        return f"{error.response.get('Error', {}).get('Code', 'an error')} from AWS"
    if isinstance(error, CredentialRetrievalError):
        return f"{type(error).__name__} from {error.kwargs.get('provider', 'somewhere')}"
    if isinstance(error, RuntimeError) and "expired" in str(error):
        return _EXPIRED_KEYS
    return f"{type(error).__name__}: {error}" if isinstance(error, BotoCoreError) else type(error).__name__
