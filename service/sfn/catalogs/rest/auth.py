"""Authentication with a REST catalog: `build_auth` returns the `Auth` of the settings. No `repr` shows a secret."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import anyio

from sfn.catalogs import CatalogFailure, CatalogRequestFailed
from sfn.catalogs.metadata import UnreadableDocument
from sfn.catalogs.rest import responses
from sfn.catalogs.rest.errors import CatalogReply, failure_of_transport, retry_after
from sfn.catalogs.rest.settings import RestSettings, is_valid_header
from sfn.concurrency import CHECK_INTERVAL, AbandonableThreads, TimedOut, WatchedFiles, describe_timeout
from sfn.errors import ErrorScope, SfnError, Transient
from sfn.extras import install_command

if TYPE_CHECKING:
    from sfn.aws_auth import AwsKeys

_MAX_RECENT_SECRETS: Final = 4


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """A request before it is sent.

    Attributes:
        method: in capitals.
        url: absolute and encoded, byte for byte as it is sent.
        body: the whole body.
    """

    method: str
    url: str
    body: bytes = b""


class Auth(Protocol):
    """A way to authenticate requests. Its methods raise `CatalogRequestFailed` with scope catalog."""

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        """Return the headers that authenticate a request; names in lower case."""
        ...

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        """Return True if there are other credentials than those of headers that were rejected."""
        ...

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        """Return True if there are other credentials than those of headers that were answered with 403.

        Mostly a 403 means that the principal may not do it. But some catalogs answer 403 to an expired token, too.
        """
        ...

    def secrets(self) -> tuple[str, ...]:
        """Return the values that messages must not contain."""
        ...


def bearer_header(token: str) -> dict[str, str]:
    """Return the header with a bearer token (RFC 6750, 2.1)."""
    return {"authorization": f"Bearer {token}"}


def recent_secrets(earlier: tuple[str, ...], *secrets: str) -> tuple[str, ...]:
    """Return the secrets in use, then the last ones before, which a late reply may repeat."""
    return tuple(dict.fromkeys((*secrets, *earlier)))[:_MAX_RECENT_SECRETS]


def read_secret(file: Path) -> str:
    """Return the content of a file with one secret, without surrounding white space.

    Raises:
        SfnError: the file cannot be read, is empty, or has characters that a header cannot carry.
    """
    try:
        secret = file.read_text("utf-8").strip()
    except OSError as error:
        found = type(error).__name__
    except UnicodeDecodeError:
        found = "bytes that are not UTF-8"
    else:
        if re.fullmatch(r"[\x21-\x7e]+", secret):
            return secret
        found = "spaces or control characters in it" if secret else "an empty file"
    raise SfnError(str(file), expected="one secret in a readable file", found=found)


T = TypeVar("T")

REFRESH_MARGIN: Final = 60.0
"""Seconds before its expiry at which a value is renewed, at most a fifth of its lifetime; longer than one request."""
RETRY_AFTER_FAILURE: Final = 5.0
"""Seconds until the next attempt after a failed renewal, while the old value is still valid."""

_NEVER_EXPIRES: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Expiring(Generic[T]):
    """A value that expires.

    Attributes:
        value: the value.
        lifetime: seconds from the start of the request, None if unknown.
    """

    value: T = field(repr=False)
    lifetime: float | None = None


class ExpiringCache(Generic[T]):
    """A value that is renewed before it expires, by one request at a time.

    Concurrent callers share the outcome of a request, good or bad. A valid old value is returned if the renewal fails.

    Args:
        fetch: fetches a value; raises CatalogRequestFailed.
        every: seconds after which a value of unknown lifetime is renewed; None for never.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Expiring[T]]], every: float | None = None) -> None:
        self._fetch = fetch
        self._every = _NEVER_EXPIRES if every is None else every
        self._requesting = anyio.Lock()
        self._requests = 0
        self._current: Expiring[T] | None = None
        self._outcome: Expiring[T] | CatalogRequestFailed | None = None
        self._refresh_at = self._expires_at = _NEVER_EXPIRES

    @property
    def valid_value(self) -> T | None:
        """The last value; None if it has expired, or there was none."""
        return self._current.value if self._current is not None and anyio.current_time() < self._expires_at else None

    async def current(self) -> T:
        """Return a valid value.

        Raises:
            CatalogRequestFailed: there is none.
        """
        value = self.valid_value
        if value is not None and anyio.current_time() < self._refresh_at:
            return value
        try:
            return await self.refresh()
        except CatalogRequestFailed:
            if value is None or self.valid_value is None:
                raise
        self._refresh_at = anyio.current_time() + RETRY_AFTER_FAILURE
        return value

    async def refresh(self) -> T:
        """Return the value of a request that ended after this call; raises as `current`."""
        before = self._requests
        async with self._requesting:
            # Callers share one request. Otherwise the last of many would wait for all their failures in turn.
            if self._requests == before or self._outcome is None:
                self._outcome = await self._request()
                self._requests += 1
            outcome = self._outcome
        if isinstance(outcome, CatalogRequestFailed):
            # A new exception, because one that many tasks raise would collect all their tracebacks.
            raise type(outcome)(outcome.failure)
        return outcome.value

    async def _request(self) -> Expiring[T] | CatalogRequestFailed:
        requested_at = anyio.current_time()
        try:
            fetched = await self._fetch()
        except CatalogRequestFailed as refused:
            return refused
        self._current = fetched
        if fetched.lifetime is None:
            self._refresh_at, self._expires_at = requested_at + self._every, _NEVER_EXPIRES
        else:
            self._refresh_at, self._expires_at = (
                requested_at + fetched.lifetime - min(REFRESH_MARGIN, fetched.lifetime / 5),
                requested_at + fetched.lifetime,
            )
        return fetched


C = TypeVar("C")

LOOKUP_INTERVAL: Final = 60.0
"""Seconds between two searches. The cloud's own library renews its credentials minutes before they expire."""


class CloudCredentials(Generic[C, T]):
    """The credentials that a cloud's chain finds. After a rejection a new chain is built, as a chain reads files once.

    Args:
        catalog: the catalog's name in the settings.
        limit: seconds for one search.
        chain: builds a chain.
        find: returns the chain's credentials; raises SfnError if there are none.
    """

    def __init__(self, catalog: str, limit: float, chain: Callable[[], C], find: Callable[[C], Awaitable[T]]) -> None:
        self._catalog, self._limit = catalog, limit
        self._new, self._find = chain, find
        self._chain = chain()
        self._cache = ExpiringCache(self._find_lasting, LOOKUP_INTERVAL)
        self._last: T | None = None
        self._refused: T | None = None

    async def current(self) -> T:
        """Return valid credentials.

        Raises:
            CatalogRequestFailed: scope catalog; there are none.
        """
        return await self._cache.current()

    async def renew(self, is_rejected: Callable[[T], bool]) -> bool:
        """Return True if there are other credentials than the rejected ones; raises as `current`."""
        # Another request may have had the same rejection and renewed them already.
        current = self._cache.valid_value
        if current is None or is_rejected(current):
            self._refused = current
            current = await self._cache.refresh()
        return not is_rejected(current)

    async def _find_lasting(self) -> Expiring[T]:
        if self._refused is not None and self._refused == self._last:
            self._chain = self._new()
        where, problem, remedy = "credentials", f"none within {self._limit:g} s", "check the source of the credentials"
        try:
            with anyio.move_on_after(self._limit):
                self._last = await self._find(self._chain)
                return Expiring(self._last)
        except SfnError as error:
            where, problem, remedy = error.where, error.found, error.remedy
        raise CatalogRequestFailed(
            CatalogFailure(
                f"catalog {self._catalog}: {where}", "credentials", problem, remedy, scope=ErrorScope.CATALOG
            )
        )


_NEVER_CHECKED: Final = float("-inf")


class RenewedFile(Generic[T]):
    """A value made from a file, read on a thread on first use, and again after each change.

    A hanging file system delays one request at a time, for a limited time. The last value stays in force as in
    `WatchedFiles`.

    Args:
        catalog: the catalog's name in the settings.
        setting: the setting that names the file.
        file: the file.
        what: see `WatchedFiles`.
        make: reads the file, as in `WatchedFiles`.
    """

    check_interval: ClassVar[float] = CHECK_INTERVAL
    """Seconds between two checks of the file."""
    read_timeout: ClassVar[float] = 5.0
    """Seconds that a request waits for a file system."""

    def __init__(self, catalog: str, setting: str, file: Path, what: str, make: Callable[[Path], T]) -> None:
        self._setting, self._file = f"catalogs.{catalog}.{setting}", file
        self._where = f"catalog {catalog}: {file}"
        self._what, self._make = f"{what} of catalog {catalog}", make
        self._threads = AbandonableThreads(1, self.read_timeout, ErrorScope.CATALOG, read_only=True)
        self._watched: WatchedFiles[T] | None = None
        self._checked_at = _NEVER_CHECKED

    async def current(self) -> T:
        """Return the value, after a check of the file if the last check was a second ago.

        Raises:
            CatalogRequestFailed: scope catalog; there is no value yet, and the file is invalid or unreadable.
        """
        now = time.monotonic()
        if self._watched is None:
            return await self.refresh()
        if now - self._checked_at >= self.check_interval and not self._threads.is_busy:
            self._checked_at = now
            await self._check(self._watched, force=False)
        return self._watched.current

    async def refresh(self) -> T:
        """Return the value after another read of the file, even if it seems unchanged; raises as `current`."""
        if self._watched is not None:
            await self._check(self._watched, force=True)
            return self._watched.current
        try:
            found = await self._threads.run(f"read {self._file}", self._open)
        except SfnError as error:
            is_permanent = not isinstance(error, Transient)
            refused = self._refused(error.expected, error.found, error.remedy, permanent=is_permanent)
        else:
            if not isinstance(found, TimedOut):
                return found.current
            refused = self._refused(
                "a readable file", describe_timeout(self.read_timeout), "check whether a mount hangs"
            )
        raise refused

    def _open(self, _given_up: object) -> WatchedFiles[T]:
        # Many requests may have waited for the same thread, and the first one has opened it.
        if self._watched is None:
            self._watched = WatchedFiles(self._what, (self._file,), lambda: self._make(self._file))
            self._checked_at = time.monotonic()
        return self._watched

    async def _check(self, watched: WatchedFiles[T], *, force: bool) -> None:
        try:
            outcome = await self._threads.run(f"read {self._file}", lambda _: watched.reload_if_changed(force=force))
        except Transient as error:
            watched.log_reload_failure(str(error))
        else:
            if isinstance(outcome, TimedOut):
                watched.log_reload_failure(describe_timeout(self.read_timeout))

    def _refused(self, expected: str, found: str, remedy: str, *, permanent: bool = False) -> CatalogRequestFailed:
        return CatalogRequestFailed(
            CatalogFailure(
                self._where,
                expected=expected,
                found=found,
                remedy=remedy or f"correct the file that {self._setting} names",
                permanent=permanent,
                scope=ErrorScope.CATALOG,
            )
        )


PostForm = Callable[[str, Mapping[str, str]], Awaitable[CatalogReply]]
"""Posts a form to a URL without authorization and returns the reply, whatever its status."""

DENIED_RENEWAL_INTERVAL: Final = 30.0
"""Seconds between two renewals of a token after a 403. Without a limit, each denied request would ask for a token."""
_PERMANENT_STATUSES = frozenset({400, 401, 403, 404})


class ClientCredentials:
    """OAuth2 client credentials. Their token is renewed before it expires, and once when the catalog rejects it.

    A 403 mostly means that the principal may not do it. Only a token of unknown lifetime is renewed then, and rarely.

    One request for a token is sent at a time. It may take as long as `/v1/config`, which waits for the token.

    Args:
        settings: settings with `credential` or `credential_file`.
        post: sends the request for a token.
    """

    def __init__(self, settings: RestSettings, post: PostForm) -> None:
        self._settings = settings
        self._post = post
        self._url = settings.oauth2_uri or f"{responses.base_url(settings.uri)}/v1/oauth/tokens"
        name, file = settings.name, settings.credential_file
        self._file = None if file is None else RenewedFile(name, "credential_file", file, "credential", read_secret)
        self._cache = ExpiringCache(self._token)
        self._credentials: tuple[str, ...] = ()
        self._tokens: tuple[str, ...] = ()
        self._lifetime: float | None = None
        self._renewing: Mapping[str, str] | None = None
        self._next_denied_renewal = -inf

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        return bearer_header(await self._cache.current())

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        # Another request may have had the same rejection and renewed the token already.
        token = self._cache.valid_value
        if token is None or bearer_header(token) == rejected:
            token = await self._cache.refresh()
        return bearer_header(token) != rejected

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        token = self._cache.valid_value
        if token is not None and bearer_header(token) != rejected:
            return True
        if self._lifetime is not None:
            return False
        now = anyio.current_time()
        is_shared = self._renewing == rejected
        if not is_shared:
            if now < self._next_denied_renewal:
                return False
            self._next_denied_renewal, self._renewing = now + DENIED_RENEWAL_INTERVAL, rejected
        try:
            # Requests with the same token share the renewal.
            return bearer_header(await self._cache.refresh()) != rejected
        except CatalogRequestFailed:
            return False
        finally:
            if not is_shared:
                self._renewing = None

    def secrets(self) -> tuple[str, ...]:
        return (*self._credentials, *self._tokens)

    async def _token(self) -> Expiring[str]:
        try:
            credential = await self._credential()
            client, colon, secret = credential.partition(":")
            if not colon:
                client, secret = "", credential
            self._credentials = recent_secrets(self._credentials, credential, secret)
            form = {"grant_type": "client_credentials", "scope": self._settings.scope, "client_secret": secret}
            token = self._parse_token(await self._reply(form | ({"client_id": client} if client else {})))
        except CatalogRequestFailed as refused:
            raise CatalogRequestFailed(replace(refused.failure, scope=ErrorScope.CATALOG)) from None
        self._tokens, self._lifetime = recent_secrets(self._tokens, token.value), token.lifetime
        return Expiring(token.value, token.lifetime)

    async def _reply(self, form: Mapping[str, str]) -> CatalogReply:
        seconds = self._settings.config_timeout
        with anyio.move_on_after(seconds):
            return await self._post(self._url, form)
        where = f"catalog {self._settings.name}: POST {responses.base_url(self._url)}"
        raise CatalogRequestFailed(failure_of_transport(where, TimeoutError(), seconds))

    async def _credential(self) -> str:
        return self._settings.credential or "" if self._file is None else await self._file.refresh()

    def _parse_token(self, reply: CatalogReply) -> responses.BearerToken:
        found = responses.read_token_error(reply.body) or "without an OAuth2 error code"
        if reply.status == HTTPStatus.OK:
            try:
                token = responses.read_token(reply.body)
            except UnreadableDocument as error:
                found = str(error)
            else:
                if is_valid_header("Authorization", token.value):
                    return token
                found = "a token with characters that a header cannot carry"
        raise CatalogRequestFailed(
            CatalogFailure(
                reply.where,
                expected="an OAuth2 access token",
                found=f"status {reply.status}, {found}",
                remedy=f"check catalogs.{self._settings.name}.credential, oauth2_uri and scope",
                permanent=reply.status in _PERMANENT_STATUSES,
                scope=ErrorScope.CATALOG,
                retry_after=retry_after(reply),
            )
        )


_EXTRAS: Final = {"sigv4": "s3", "google": "gcs"}
"""Extra that installs the packages of a method."""


class FixedAuth:
    """No authentication, or a fixed value of the header Authorization."""

    def __init__(self, value: str | None, *secrets: str) -> None:
        self._headers = {} if value is None else {"authorization": value}
        self._secrets = secrets

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        return self._headers

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return rejected != self._headers

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return self._secrets


class TokenFileAuth:
    """A bearer token in a file that another program renews: a mounted secret, a sidecar's token."""

    def __init__(self, catalog: str, file: Path) -> None:
        self._token = RenewedFile(catalog, "token_file", file, "token", read_secret)
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        return self._headers_for(await self._token.current())

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return self._headers_for(await self._token.refresh()) != rejected

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return await self.headers(AuthRequest("GET", "")) != rejected

    def secrets(self) -> tuple[str, ...]:
        return self._recent

    def _headers_for(self, token: str) -> Mapping[str, str]:
        self._recent = recent_secrets(self._recent, token)
        return bearer_header(token)


class SigV4:
    """AWS's signatures (Signature Version 4), for AWS Glue and Amazon S3 Tables. Needs the extra `s3`.

    The keys are those of AWS's standard chain. A signature covers method, path, query, host and the headers that begin
    with `x-amz-`: no proxy changes any of these.

    Args:
        settings: settings with `signing`.
    """

    def __init__(self, settings: RestSettings) -> None:
        from sfn import aws_auth

        self._sign = aws_auth.sign_request
        self._region, self._service = settings.signing
        identity = aws_auth.AwsIdentity(
            profile=settings.aws_profile,
            role_arn=settings.role_arn,
            external_id=settings.external_id,
            region=self._region,
        )
        self._keys = CloudCredentials(
            settings.name,
            settings.config_timeout,
            lambda: aws_auth.AwsCredentialChain(identity),
            aws_auth.AwsCredentialChain.keys,
        )
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        keys = await self._keys.current()
        # AWS answers a rejected signature with everything that was signed, including the token.
        self._recent = recent_secrets(self._recent, keys.secret, *([keys.token] if keys.token else []))
        signed_headers = self._sign(
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


class GoogleTokens:
    """Google's access tokens, of a service account or of the application default credentials. Needs the extra `gcs`.

    Args:
        settings: settings with `scope`.
    """

    def __init__(self, settings: RestSettings) -> None:
        from sfn.google_auth import GoogleCredentialChain, GoogleIdentity

        identity, limit = GoogleIdentity(file=settings.google_credentials_file), settings.config_timeout
        scopes = settings.scope.split()
        self._tokens = CloudCredentials(
            settings.name,
            limit,
            lambda: GoogleCredentialChain(identity, scopes, limit=limit),
            GoogleCredentialChain.token,
        )
        self._recent: tuple[str, ...] = ()

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        token = await self._tokens.current()
        self._recent = recent_secrets(self._recent, token)
        return bearer_header(token)

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        return await self._tokens.renew(lambda token: bearer_header(token) == rejected)

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return self._recent


def build_auth(settings: RestSettings, post: PostForm) -> Auth:
    """Return the authentication of a catalog.

    Args:
        settings: the catalog's settings.
        post: sends requests for tokens.

    Raises:
        SfnError: a package that it needs is not installed.
    """
    return _cloud_auth(settings) or _plain_auth(settings, post)


def check_installed(settings: RestSettings) -> None:
    """Check that all packages for the authentication are installed; raises as `build_auth`."""
    _cloud_auth(settings)


def _cloud_auth(settings: RestSettings) -> Auth | None:
    """Return the authentication by a cloud, None for none. The packages of its extra take half a second to import."""
    try:
        match settings.auth:
            case "sigv4":
                return SigV4(settings)
            case "google":
                return GoogleTokens(settings)
            case None:
                return None
    except ImportError as error:
        raise _not_installed(settings, error) from None


def _not_installed(settings: RestSettings, error: ImportError) -> SfnError:
    extra = _EXTRAS.get(settings.auth or "", "")
    return SfnError(
        f"catalogs.{settings.name}.auth",
        expected=f"the packages that {settings.auth} needs",
        found=f"no module {(error.name or '').partition('.')[0]}",
        remedy=install_command(extra),
    )


def _plain_auth(settings: RestSettings, post: PostForm) -> Auth:
    if settings.token_file is not None:
        return TokenFileAuth(settings.name, settings.token_file)
    if settings.credential is not None or settings.credential_file is not None:
        return ClientCredentials(settings, post)
    if settings.token is not None:
        return FixedAuth(f"Bearer {settings.token}", settings.token)
    parts = urlsplit(settings.uri)
    if parts.username is None:
        return FixedAuth(None)
    password = unquote(parts.password or "")
    pair = f"{unquote(parts.username)}:{password}"
    basic = b64encode(pair.encode()).decode()
    return FixedAuth(f"Basic {basic}", basic, password)
