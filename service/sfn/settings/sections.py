"""The sections `catalogs.NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
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

# ── catalogs: The sections `catalogs


def _require_uri_for_rest(value: str | None, info: ValidationInfo) -> str | None:
    if value is None and info.data.get("type") == "rest":
        raise PydanticKnownError("missing")
    return value


class CatalogSettings(Section):
    """A catalog whose tables get files.

    Attributes:
        type: how it is spoken to: `told` is not at all, and then its events are the truth.
        properties: with `pyiceberg` all that PyIceberg is told, by its own names; then there are none of those up to
            `vended_credentials`.
        uri: where its REST API begins, without `/v1`; may hold a user and a password. With `rest` it must be there.
        warehouse: which warehouse of that server.
        catalog_id: its identity in our files, None for one derived from where it is.
        ca_file: certificates (PEM) that are trusted instead of the system's; read again when it changes.
        headers: sent with every request.
        token: bearer token; `token_file` a file with it, read again when it changes.
        credential: OAuth2 client credentials; `credential_file` a file with them, read for each new token.
        oauth2_uri: where tokens are to be had.
        scope: OAuth2 scope.
        auth: who asks is shown by AWS's signatures or Google's tokens; None for by a token or credential, if at all.
        signing_region: of what AWS's signatures are for; None for the one in the host of `uri`.
        signing_name: the service, `glue` or `s3tables`; None likewise.
        aws_profile: of AWS's shared files; None for the standard chain.
        role_arn: assumed by whoever that is, with an `external_id` if it asks for one.
        google_credentials_file: key of a service account; None for the application's default credentials.
        vended_credentials: whether stores are opened by what the catalog gives for each table.
        replica_lag: how long an answer may be behind, with the clock skew of our hosts.
        absence_delay: how long a table must be absent before it counts as dropped.
        max_drops: drops and steps back that pass in an hour; None for the greater of 10 and 1 % of the tables, and of
            drops fewer than half of the tables, or a single one.
        include: globs of the tables that are published; none is all.
        exclude: globs of those that are not.
        allowed_locations: canonical prefixes that locations must lie below; none is any below a store.
        version_hint: whether to keep `version-hint.text`.
        on_drop: what becomes of a dropped table's files.
        expire_after: how long a tombstone stays.
        refresh_after: how long a file goes unwritten.
        min_publish_interval: from one publish of a table to the next.
        naming: what the SFN files are called.
        placement: where they lie.
        root: with the placement `root`, the folder in which each table has one.
        branches: globs of the branches that get files.
        keep: with the naming `ordinal`, how many files of commits stay at least.
        keep_for: with that naming, how long they do.
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
        """Whether nobody can ask it, or list it: its events are the truth."""
        return self.type == "events"


# ── stores: The sections `stores

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
"""The keys that go with a scheme, beside those that go with every one."""


class StoreSettings(Section):
    """Where tables lie.

    Who asks is found as the service's own tools find it, where no key says: AWS's chain (environment, profile, SSO, web
    identity, container, instance), Azure's (environment, workload or managed identity, command line), Google's default
    credentials.

    Attributes:
        prefix: canonical; locations below it are this store's.
        unsafe_unconditional_writes: use a store that cannot compare and swap.
        links_to: other folders that symbolic links between the prefix and a table's location may lead into.
        endpoint: where it answers, if not at its service's own address.
        ca_file: certificates (PEM) that are trusted instead of the system's.
        anonymous: ask without credentials.
        region: of S3; None for AWS's chain, then for what the bucket tells.
        path_style: name buckets in the path; None: with an endpoint of its own.
        profile: of AWS's shared files.
        access_key_id: of S3, with `secret_access_key` and perhaps a `session_token`.
        role_arn: assumed, with an `external_id` if it asks for one.
        account_key: of an Azure account; `sas_token` a shared access signature instead.
        client_id: of a managed identity, or with `tenant_id` and `client_secret` of an application.
        credentials_file: of a Google service account, or another file that Google's libraries take.
        billing_project: of Google, where the one who asks pays.
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
        """Of the locations below it."""
        return scheme_of(self.prefix)


# ── bound: What every party has that tells of commits


class EventOrigin(Section):
    """Who tells of commits.

    Attributes:
        catalog: the one catalog that it speaks for.
        catalogs: or several: its own names of them, and ours.
        dialect: the format of its events, and no other; None: whichever they are recognised to be of.
    """

    catalog: Text | None = None
    catalogs: CatalogNames = Field(default_factory=dict)
    dialect: EventFormatName | None = None

    def resolve_catalogs(self, configured: Mapping[str, object]) -> Mapping[str, str]:
        """The catalogs that it speaks for, by its own names; without any of its own, the only one that there is."""
        if self.catalogs:
            return self.catalogs
        ours = [self.catalog] if self.catalog is not None else configured
        return {catalog: catalog for catalog in ours}


def check_origin_catalogs(
    keys: tuple[str, ...], origin: EventOrigin, catalogs: Mapping[str, object], sources: SettingsSources
) -> Iterator[SfnError]:
    """What is wrong with the catalogs of one party.

    Args:
        keys: to its section.
        catalogs: the configured ones, by name.
    """
    known = list(catalogs)
    if origin.catalog is not None and origin.catalogs:
        place = sources.location_of((*keys, "catalog"))
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if origin.catalog is None and not origin.catalogs and len(known) > 1:
        yield SfnError(
            sources.location_of((*keys, "catalog")),
            expected="the catalog that it speaks for, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    meant: dict[tuple[str, ...], str] = {("catalogs", theirs): ours for theirs, ours in origin.catalogs.items()}
    if origin.catalog is not None:
        meant["catalog",] = origin.catalog
    for place_of, ours in meant.items():
        if ours not in catalogs:
            yield SfnError(
                sources.location_of((*keys, *place_of)),
                expected="a configured catalog",
                found=ours,
                remedy=suggest_name(ours, known),
            )


# ── parties: The sections `senders


class SenderSettings(EventOrigin):
    """Who may send events.

    Attributes:
        scheme: how a sender shows who it is: by a bearer token, by a signature, or not at all.
        secrets: active tokens, or secrets that sign, by name.
        secrets_file: more of them, one a line; read again when it changes.
        signature_header: where the signature is, with `hmac-sha256`.
        rate_limit: most requests a minute.
    """

    scheme: AuthScheme = AuthScheme.BEARER
    secrets: Secrets = Field(default_factory=dict)
    secrets_file: File | None = None
    signature_header: HeaderName = "X-Hub-Signature-256"
    rate_limit: AtLeastOne | None = None

    @property
    def signature_scheme(self) -> SignatureScheme | None:
        """How it signs; None for one that does not."""
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
    """Who operates the service; without a token there are no admin routes.

    Attributes:
        token: bearer token; `token_file` a file with such tokens, one a line; read again when it changes.
    """

    token: Token | None = None
    token_file: File | None = None


# ── pulls: The sections `pull

_PORT: Final = 4222
"""Where a URL names none."""
_WORD: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,200}")
"""A level of a subject, or a name (NATS documentation, "Subject-Based Messaging" and "Naming Streams")."""


def _validate_server(value: str) -> str:
    """Where a server is: no user, no password, no path."""
    try:
        parts = urlsplit(value)
        right = parts.scheme in {"nats", "tls"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    else:
        right = right and "@" not in value and not (parts.path or parts.query or parts.fragment)
    if not right:
        raise ValueError("nats://host:port or tls://host:port: a user and a password have keys of their own")
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
    """A source of events.

    Attributes:
        type: how it is spoken to.
        servers: where it answers; one of them is enough. `tls://` is refused by a server without TLS.
        subject: whose messages are events; may have wildcards.
        queue: the group of those who share the messages of core NATS.
        stream: of JetStream, with `durable` the consumer of it that all replicas share; without both it is core NATS.
        ca_file: certificates (PEM) that are trusted instead of the system's; read for each new connection, as are the
            next ones.
        credentials_file: who asks: a file `.creds`.
        token_file: or a token.
        user: or a name, with its `password_file`.
        body_limit: most bytes of a message; None for the listener's.
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
        """Whether no server without TLS is spoken to."""
        return self.ca_file is not None or all(server.startswith("tls:") for server in self.servers)


# ── gateways: The sections `gateway

ResponseTimeout = Annotated[Duration, duration_between("1s", "30m")]
"""A commit that is answered later than its intent is asked for last would not be asked for at all."""

IdleTimeout = Annotated[Duration, duration_between("0", "10m")]


class GatewaySettings(Section):
    """A catalog, and how clients reach it through us.

    Attributes:
        upstream: where the catalog's REST API begins, without `/v1`.
        catalog: our name of it; None for the one of the gateway's own name, or the only one that there is.
        catalogs: or of several behind one address: the prefix that each has its clients use, and our name of it.
        host: address of a listener of its own, where the gateway begins at `/`; None for none: it is below
            `/catalog/NAME` of the listener.
        port: of that listener; 0 is any free one.
        public_url: how clients reach it; None: as each of them says, and the proxies before us.
        ca_file: certificates (PEM) that are trusted instead of the system's; read again when it changes.
        timeout: how long the catalog may be silent.
        connections: to the catalog at once.
        idle: the longest time for which a connection may have been idle before a commit is sent over it. A
            `Keep-Alive: timeout` of the catalog replaces it. A commit on a connection that ends gets no answer.
        body_limit: most bytes of a request that are read before a connection to the catalog is taken for it, and to
            know which tables it names. Of a longer one the rest passes as it comes.
        on_inbox_failure: what becomes of a commit that the inbox does not take.
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
