"""All sections of the settings, a class each. `root.Settings` puts them together."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, assert_never
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticKnownError

from sfn.errors import SfnError, suggest_name
from sfn.http.secrets import AuthScheme
from sfn.http.signature import HmacSha256, SignatureScheme, StandardWebhooks
from sfn.publish.policy import MAX_COMMIT_FILES
from sfn.settings import types
from sfn.settings.sources import SettingsSources
from sfn.settings.types import (
    AtLeastOne,
    CatalogNames,
    Duration,
    DurationOrOff,
    EventFormatName,
    File,
    HeaderName,
    HttpHeaders,
    PositiveDuration,
    Prefix,
    Prefixes,
    Properties,
    PublishInterval,
    Secret,
    Secrets,
    Section,
    Size,
    Text,
    Texts,
    Token,
    Url,
    duration_between,
)
from sfn.sfnfile.locations import scheme_of
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.telemetry.tracing import TracingOptions


def _require_uri_for_rest(value: str | None, info: ValidationInfo) -> str | None:
    if value is None and info.data.get("type") == "rest":
        raise PydanticKnownError("missing")
    return value


class CatalogSettings(Section):
    """A catalog with tables to publish.

    Attributes:
        type: the protocol; `events` is a catalog that cannot be queried, with events as the source of truth.
        properties: with `pyiceberg`, PyIceberg's own properties, in place of the keys from `uri` to
            `vended_credentials`.
        uri: URL of the REST API, without `/v1`; required with `rest`. It may hold a user and a password.
        warehouse: name of the warehouse on that server.
        catalog_id: identity of the catalog in SFN files; None to derive it from its address.
        ca_file: certificates (PEM) to trust instead of the system's; read again when the file changes.
        headers: HTTP headers of every request.
        token: bearer token; `token_file` is a file with the token, read again when it changes.
        credential: OAuth2 client credentials; `credential_file` is a file with them, read for each new token.
        oauth2_uri: URL of the token endpoint; None for the catalog's own.
        scope: OAuth2 scope.
        auth: AWS signatures or Google tokens; None for a token, a credential, or no authentication.
        signing_region: AWS region to sign for; None for the region in the host of `uri`.
        signing_name: AWS service to sign for, `glue` or `s3tables`; None for the service in the host of `uri`.
        aws_profile: profile of AWS's shared files; None for the standard chain.
        role_arn: AWS role to assume, with an `external_id` if the role requires one.
        google_credentials_file: key of a service account; None for the application's default credentials.
        vended_credentials: use the credentials that the catalog vends for each table to open its store.
        replica_lag: maximum age of an answer of the catalog, plus the clock skew of the hosts.
        absence_delay: time for which a table must be missing before it counts as dropped.
        max_drops: drops and rollbacks that may pass within an hour. None: at most 10 or 1 % of the tables, whichever is
            greater; and of drops fewer than half of the tables, but always one.
        include: globs of the tables to publish; empty for all.
        exclude: globs of the tables not to publish.
        allowed_locations: canonical prefixes of permitted table locations; empty for all stores.
        version_hint: `auto` to write `version-hint.text`.
        on_drop: treatment of a dropped table's files.
        expire_after: lifetime of a tombstone.
        refresh_after: age at which an unchanged file is written again.
        min_publish_interval: minimum time between two publishes of a table.
        naming: naming of the SFN files.
        placement: placement of the SFN files.
        root: with the placement `root`, the folder that holds a folder for each table.
        branches: globs of the branches with SFN files.
        keep: with the naming `ordinal`, the minimum number of commit files that stay.
        keep_for: with the naming `ordinal`, the time for which further commit files stay.
    """

    type: Literal["rest", "pyiceberg", "events"] = "rest"
    catalog_id: Text | None = None
    properties: Properties = Field(default_factory=dict)
    uri: Annotated[Url | None, AfterValidator(_require_uri_for_rest)] = Field(
        default=None, repr=False, validate_default=True
    )
    warehouse: Text | None = None
    ca_file: File | None = None
    headers: HttpHeaders = Field(default_factory=dict)
    token: Token | None = None
    token_file: File | None = None
    credential: Secret | None = None
    credential_file: File | None = None
    oauth2_uri: Url | None = Field(default=None, repr=False)
    scope: Text | None = None
    auth: Literal["sigv4", "google"] | None = None
    signing_region: Text | None = None
    signing_name: Text | None = None
    aws_profile: Text | None = None
    role_arn: Text | None = None
    external_id: Text | None = None
    google_credentials_file: File | None = None
    vended_credentials: bool = False
    replica_lag: Duration = timedelta(seconds=60)
    absence_delay: Duration = timedelta(minutes=10)
    max_drops: Annotated[int, Field(ge=0)] | None = None
    include: Texts = ()
    exclude: Texts = ()
    allowed_locations: Prefixes = ()
    version_hint: Literal["auto", "off"] = "auto"
    on_drop: Literal["tombstone", "delete", "keep"] = "tombstone"
    expire_after: PositiveDuration = timedelta(days=7)
    refresh_after: PositiveDuration = timedelta(hours=8)
    min_publish_interval: PublishInterval = timedelta(seconds=1)
    naming: Literal["identifier", "ordinal", "uuid"] = "identifier"
    placement: Literal["inside", "alongside", "root"] = "inside"
    root: Prefix | None = None
    branches: Texts = (MAIN_BRANCH,)
    keep: Annotated[AtLeastOne, Field(le=MAX_COMMIT_FILES)] = 100
    keep_for: Duration = timedelta(hours=24)

    @property
    def is_event_only(self) -> bool:
        """True if the catalog cannot be queried or listed: events are the source of truth."""
        return self.type == "events"


_REMOTE_KEYS: Final = frozenset({"endpoint", "ca_file", "anonymous"})
_S3_KEYS: Final = frozenset(
    {
        "region",
        "path_style",
        "profile",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "role_arn",
        "external_id",
    }
)
_AZURE_KEYS: Final = frozenset({"account_key", "sas_token", "tenant_id", "client_id", "client_secret"})
_GCS_KEYS: Final = frozenset({"credentials_file", "billing_project"})

KEYS_BY_SCHEME: Final = {
    "file": frozenset({"links_to"}),
    "s3": _REMOTE_KEYS | _S3_KEYS,
    "abfss": _REMOTE_KEYS | _AZURE_KEYS,
    "gs": _REMOTE_KEYS | _GCS_KEYS,
}
"""The keys that a store with a scheme may have, in addition to the keys of every store."""


class StoreSettings(Section):
    """A store: a local folder, or a bucket or a part of one.

    Without a key for credentials they are found as the provider's own tools find them: AWS's chain (environment,
    profile, SSO, web identity, container, instance), Azure's (environment, workload or managed identity, command line),
    or Google's application default credentials.

    Attributes:
        prefix: canonical prefix of the locations in this store.
        unsafe_unconditional_writes: accept a store without conditional writes.
        links_to: folders outside the prefix that symbolic links above a table's location may lead to.
        endpoint: URL of the store; None for the provider's own.
        ca_file: certificates (PEM) to trust instead of the system's.
        anonymous: send requests without credentials.
        region: S3 region; None for AWS's chain, then for the region that the bucket reports.
        path_style: put the bucket's name into the path; None to do so only with an `endpoint`.
        profile: profile of AWS's shared files.
        access_key_id: S3 access key, with `secret_access_key` and an optional `session_token`.
        role_arn: AWS role to assume, with an `external_id` if the role requires one.
        account_key: key of an Azure account; `sas_token` is a shared access signature instead.
        client_id: id of an Azure managed identity; or of an application, with `tenant_id` and `client_secret`.
        credentials_file: key of a Google service account, or another file that Google's libraries accept.
        billing_project: Google project that pays for the requests.
    """

    prefix: Prefix
    unsafe_unconditional_writes: bool = False
    links_to: Prefixes = ()
    endpoint: Url | None = None
    ca_file: File | None = None
    anonymous: bool = False
    region: Text | None = None
    path_style: bool | None = None
    profile: Text | None = None
    access_key_id: Text | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    role_arn: Text | None = None
    external_id: Text | None = None
    account_key: Secret | None = None
    sas_token: Secret | None = None
    tenant_id: Text | None = None
    client_id: Text | None = None
    client_secret: Secret | None = None
    credentials_file: File | None = None
    billing_project: Text | None = None

    @property
    def scheme(self) -> str:
        """URL scheme of the locations in this store."""
        return scheme_of(self.prefix)


class EventOrigin(Section):
    """An origin of events: the common part of senders and pull sources.

    Attributes:
        catalog: the one catalog that the events belong to.
        catalogs: for several catalogs, the name of each in the events, and its configured name.
        dialect: the only event format to accept; None to recognise the format of each event.
    """

    catalog: Text | None = None
    catalogs: CatalogNames = Field(default_factory=dict)
    dialect: EventFormatName | None = None

    def resolve_catalogs(self, configured: Mapping[str, object]) -> Mapping[str, str]:
        """Map the catalog names in the events to configured names; without either key, each configured name to itself.

        Args:
            configured: the configured catalogs, by name.
        """
        if self.catalogs:
            return self.catalogs
        names = [self.catalog] if self.catalog is not None else configured
        return {name: name for name in names}


def check_origin_catalogs(
    keys: tuple[str, ...], origin: EventOrigin, catalogs: Mapping[str, object], sources: SettingsSources
) -> Iterator[SfnError]:
    """Yield the problems with the catalogs of one origin.

    Args:
        keys: path of its section.
        origin: the section.
        catalogs: the configured catalogs, by name.
        sources: origins of the settings, for messages.
    """
    known = list(catalogs)
    if origin.catalog is not None and origin.catalogs:
        place = sources.location_of((*keys, "catalog"))
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if origin.catalog is None and not origin.catalogs and len(known) > 1:
        yield SfnError(
            sources.location_of((*keys, "catalog")),
            expected="the catalog of its events, as several are configured",
            found="none",
            remedy=f"choose one of {', '.join(known)}",
        )
    named: dict[tuple[str, ...], str] = {("catalogs", external): name for external, name in origin.catalogs.items()}
    if origin.catalog is not None:
        named["catalog",] = origin.catalog
    for key, name in named.items():
        if name not in catalogs:
            yield SfnError(
                sources.location_of((*keys, *key)),
                expected="a configured catalog",
                found=name,
                remedy=suggest_name(name, known),
            )


class SenderSettings(EventOrigin):
    """A sender of events.

    Attributes:
        scheme: authentication by a bearer token or a signature, or none.
        secrets: active tokens or signing secrets, by name.
        secrets_file: file with more of them, one a line; read again when it changes.
        signature_header: with `hmac-sha256`, the header with the signature.
        rate_limit: maximum number of requests a minute.
    """

    scheme: AuthScheme = AuthScheme.BEARER
    secrets: Secrets = Field(default_factory=dict)
    secrets_file: File | None = None
    signature_header: HeaderName = "X-Hub-Signature-256"
    rate_limit: AtLeastOne | None = None

    @property
    def signature_scheme(self) -> SignatureScheme | None:
        """The signature scheme of the sender; None for a sender that does not sign."""
        match self.scheme:
            case AuthScheme.STANDARD_WEBHOOKS:
                return StandardWebhooks()
            case AuthScheme.HMAC_SHA256:
                return HmacSha256(self.signature_header.lower().encode())
            case AuthScheme.BEARER | AuthScheme.NONE:
                return None
            case _:
                assert_never(self.scheme)


class AdminSettings(Section):
    """The access of operators. Without a token there are no admin routes.

    Attributes:
        token: bearer token; `token_file` is a file with such tokens, one a line, read again when it changes.
    """

    token: Token | None = None
    token_file: File | None = None

    @property
    def is_enabled(self) -> bool:
        """True if operators have a token."""
        return self.token is not None or self.token_file is not None


_PORT: Final = 4222
"""The port of a server without one in its URL."""
_WORD: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,200}")
"""A level of a subject, or a name (NATS documentation, "Subject-Based Messaging" and "Naming Streams")."""


def _validate_server(value: str) -> str:
    """Check that a URL has a host and an optional port, but no user, password or path."""
    try:
        parts = urlsplit(value)
        right = parts.scheme in {"nats", "tls"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    else:
        right = right and "@" not in value and not (parts.path or parts.query or parts.fragment)
    if not right:
        raise ValueError("nats://host:port or tls://host:port; a user and a password have keys of their own")
    return value


def _validate_subject(value: str) -> str:
    *above, last = value.split(".")
    if not all(level == "*" or _WORD.fullmatch(level) for level in above) or not (
        last in {"*", ">"} or _WORD.fullmatch(last)
    ):
        raise ValueError("a subject such as lakekeeper.events, orders.* or orders.>")
    return value


def _validate_name(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError("a name without spaces, dots, slashes, `*` and `>`")
    return value


_Servers: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_validate_server)], ...],
    BeforeValidator(types.parse_array),
    Field(min_length=1),
]
_Name: TypeAlias = Annotated[str, AfterValidator(_validate_name)]


class PullSettings(EventOrigin):
    """A pull source: a NATS server with events.

    Files are read for each new connection.

    Attributes:
        type: the protocol.
        servers: URLs of the servers; one of several is enough. `tls://` refuses servers without TLS.
        subject: subject of the events; may have wildcards.
        queue: with core NATS, the queue group of the processes that share the messages.
        stream: a JetStream stream, with `durable`, the consumer that all replicas share; None for core NATS.
        ca_file: certificates (PEM) to trust instead of the system's.
        credentials_file: credentials, as a `.creds` file.
        token_file: file with a token instead.
        user: user name instead, with a `password_file`.
        body_limit: maximum size of a message in bytes; None for the listener's limit.
    """

    type: Literal["nats"] = "nats"
    servers: _Servers
    subject: Annotated[Text, AfterValidator(_validate_subject)]
    queue: _Name = "sfn"
    stream: _Name | None = None
    durable: _Name | None = None
    ca_file: File | None = None
    credentials_file: File | None = None
    token_file: File | None = None
    user: Text | None = None
    password_file: File | None = None
    body_limit: Size | None = None

    @property
    def addresses(self) -> frozenset[tuple[str, int]]:
        """Host and port of each server."""
        parts = [urlsplit(server) for server in self.servers]
        return frozenset((part.hostname or "", part.port or _PORT) for part in parts)

    @property
    def is_encrypted(self) -> bool:
        """True if connections without TLS are refused."""
        return self.ca_file is not None or all(server.startswith("tls:") for server in self.servers)


ResponseTimeout = Annotated[Duration, duration_between("1s", "30m")]
"""At most the time for which the catalog is queried about an intent: a later commit would go unnoticed."""

IdleTimeout = Annotated[Duration, duration_between("0", "10m")]


class GatewaySettings(Section):
    """A gateway: a proxy in front of a catalog.

    Attributes:
        upstream: URL of the catalog's REST API, without `/v1`.
        catalog: configured name of the catalog; None for the catalog with the gateway's name, or the only one.
        catalogs: for several catalogs behind one address, the REST prefix of each, and its configured name.
        host: address of a separate HTTP listener, where the gateway begins at `/`; None to serve the gateway at
            `/catalog/NAME` of the listener.
        port: port of that HTTP listener; 0 for any free port.
        public_url: URL that clients use; None for the URL in the client's request and the headers of proxies.
        ca_file: certificates (PEM) to trust instead of the system's; read again when it changes.
        timeout: maximum time for which the catalog may be silent during a request.
        connections: maximum number of connections to the catalog.
        idle: maximum time for which a connection may have been idle before a commit is sent over it, because a commit
            on a connection that the catalog just closed gets no answer. A `Keep-Alive: timeout` of the catalog
            replaces it.
        body_limit: maximum size in bytes of a body that is read before a connection to the catalog is used, and to find
            the tables that the request names. The rest of a longer body is streamed.
        on_inbox_failure: treatment of a commit when the inbox does not accept its intent.
    """

    upstream: Url = Field(repr=False)
    catalog: Text | None = None
    catalogs: CatalogNames = Field(default_factory=dict)
    host: Text | None = None
    port: Annotated[int, Field(ge=0, le=65_535)] = 8086
    public_url: Url | None = None
    ca_file: File | None = None
    timeout: ResponseTimeout = timedelta(minutes=10)
    connections: AtLeastOne = 256
    idle: IdleTimeout = timedelta(seconds=0.5)
    body_limit: Size = 1 << 20
    on_inbox_failure: Literal["pass", "refuse"] = "pass"


class FacadeSettings(Section):
    """The read-only catalog at `/iceberg`. It exists if it has a token or is open.

    Attributes:
        token: bearer token of readers; `token_file` is a file with such tokens, one a line, read again when it changes.
        open: let everyone read who reaches the listener.
        roots: canonical prefixes; only tables with files and location below one of them are shown. Empty for the
            prefixes of all stores.
        directories: let readers name a table by its directory, in the namespace `dir`.
        metadata_limit: maximum size in bytes of a metadata file's JSON.
    """

    token: Token | None = Field(default=None, repr=False)
    token_file: File | None = None
    open: bool = False
    roots: Prefixes = ()
    directories: bool = True
    metadata_limit: Size = 64 << 20

    @property
    def has_token(self) -> bool:
        """True if readers need a token."""
        return self.token is not None or self.token_file is not None

    @property
    def is_on(self) -> bool:
        """True if the facade exists."""
        return self.open or self.has_token


def _require_server(value: Path | None, info: ValidationInfo) -> Path | None:
    if value is not None and not types.is_postgres(info.data.get("url", "postgresql://")):
        raise ValueError("no such key with an inbox in SQLite")
    return value


class InboxSettings(Section):
    """The database of the inbox.

    Attributes:
        url: `sqlite:///` and the path of a file; or a PostgreSQL database, as a URL of libpq.
        password_file: file with the password of the PostgreSQL database, read for each new connection.
        event_retention: time for which events and their ids are stored.
    """

    url: Annotated[str, AfterValidator(types.validate_inbox_url)] = Field(default="sqlite:///sfn/inbox.db", repr=False)
    password_file: Annotated[File | None, AfterValidator(_require_server)] = None
    event_retention: PositiveDuration = timedelta(hours=72)

    @property
    def path(self) -> Path | None:
        """Path of the SQLite file; None for an inbox in PostgreSQL."""
        return None if types.is_postgres(self.url) else Path(types.sqlite_path(self.url))


class ListenerSettings(Section):
    """The HTTP address of the service.

    Attributes:
        host: address to bind.
        port: port to bind; 0 for any free port.
        body_limit: maximum size of a request's body in bytes.
        body_memory: maximum memory in bytes for bodies of clients that are not authenticated yet: clients that sign,
            clients that need no token, and callers of admin routes. All gateways together have as much again, because
            only the catalog knows their clients, and 64 KiB for each of their connections. The limit is never less than
            one of the largest bodies needs.
        drain: maximum time for which a shutdown waits for running work.
        queue_limit: maximum number of notifications that wait for the disk; beyond that, events are answered with 503.
            Each takes at most 4 KiB of memory: 40 MiB for 10,000.
        tls_certificate_file: certificate chain (PEM), the listener's own first, with its private key in `tls_key_file`.
            Both are read again when they change. Without them the listener speaks plain HTTP.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8085
    body_limit: Size = 1 << 20
    body_memory: Size = 32 << 20
    drain: Duration = timedelta(seconds=30)
    queue_limit: AtLeastOne = 25_000
    tls_certificate_file: File | None = None
    tls_key_file: File | None = None

    @property
    def scheme(self) -> str:
        """Scheme of the listener's URLs."""
        return "http" if self.tls_certificate_file is None else "https"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address. Host names other than `localhost` are not resolved."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


class TelemetrySettings(Section):
    """The log, the metrics and the traces.

    Attributes:
        level: minimum severity of log records.
        format: JSON lines or text; `auto` for text on a terminal, else JSON lines.
        metrics_token: bearer token for `/metrics`; `metrics_token_file` is a file with such tokens, one a line. Without
            either everyone who reaches the listener may read the metrics.
        late_after: time for which a table may wait for its publish before it counts as late.
        traces_endpoint: URL of an OpenTelemetry collector that takes OTLP over HTTP; `/v1/traces` is added to a URL
            without a path. None: the variable `OTEL_EXPORTER_OTLP_ENDPOINT` decides; without both there are no traces.
        traces_sample_ratio: part of the traces that is recorded, of those that begin here; a trace that a client began
            is recorded if the client records it. None: the variable `OTEL_TRACES_SAMPLER` decides; without both all are
            recorded.
        traces_headers: HTTP headers of each request to the collector, such as a key.
        traces_ca_file: certificates (PEM) of the collector's authorities, instead of the usual ones.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    metrics_token: Token | None = None
    metrics_token_file: File | None = None
    late_after: PositiveDuration = timedelta(seconds=60)
    traces_endpoint: Url | None = Field(default=None, repr=False)
    traces_sample_ratio: Annotated[float | None, Field(ge=0, le=1)] = None
    traces_headers: HttpHeaders = Field(default_factory=dict)
    traces_ca_file: File | None = None

    @property
    def tracing(self) -> TracingOptions:
        """The settings of traces."""
        headers = {name: value.get_secret_value() for name, value in self.traces_headers.items()}
        return TracingOptions(self.traces_endpoint, self.traces_sample_ratio, headers, self.traces_ca_file)


class WorkerSettings(Section):
    """The worker of a process.

    Attributes:
        concurrency: number of tables that are published at a time.
        lease: time for which a worker may be silent before another worker takes its job.
    """

    concurrency: AtLeastOne = 32
    lease: Annotated[Duration, duration_between("1s", "36500d")] = timedelta(seconds=30)


class RetrySettings(Section):
    """The retries of a failed job.

    Attributes:
        base: first delay; each further delay is twice as long.
        cap: maximum delay.
        budget: time since the first failure after which a table becomes a dead letter.
        max_attempts: number of attempts after which a table becomes a dead letter.
    """

    base: PositiveDuration = timedelta(seconds=1)
    cap: PositiveDuration = timedelta(minutes=5)
    budget: PositiveDuration = timedelta(hours=24)
    # A delay is three quarters of the cap on average, so 24 h are some 390 attempts. With the defaults the budget ends
    # the retries; the number of attempts does so only with a shorter cap.
    max_attempts: AtLeastOne = 500


class SweepSettings(Section):
    """The schedule of sweeps.

    Attributes:
        every: time between two sweeps of a catalog; None for never (`off`).
    """

    every: Annotated[DurationOrOff, duration_between("1s", "36500d")] = timedelta(minutes=15)


def java_home() -> str | None:
    """Return the environment variable `JAVA_HOME`; None if it is not set."""
    return os.environ.get("JAVA_HOME") or None
