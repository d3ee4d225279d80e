"""The sections and their keys, with the defaults of the specification's table "Settings".

A key that this version does not know is refused, also one that a later version may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from sfn.settings import texts
from sfn.settings.quantities import Duration, DurationOrOff, PositiveDuration, Size, between

Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""What an operator may call a catalog, a sender or a store: it goes into URLs, metrics and logs."""

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(texts.array)]
Prefix: TypeAlias = Annotated[Text, AfterValidator(texts.prefix)]
Prefixes: TypeAlias = Annotated[tuple[Prefix, ...], BeforeValidator(texts.array)]
LocalPrefix: TypeAlias = Annotated[Text, AfterValidator(texts.local_prefix)]
File: TypeAlias = Annotated[Path, BeforeValidator(texts.path)]
Url: TypeAlias = Annotated[str, AfterValidator(texts.http_url)]
Secret: TypeAlias = Annotated[SecretStr, Field(min_length=1)]
Token: TypeAlias = Annotated[SecretStr, AfterValidator(texts.bearer_token)]
Tokens: TypeAlias = Annotated[Mapping[Text, Token], BeforeValidator(texts.table)]
HttpHeaders: TypeAlias = Annotated[Mapping[str, SecretStr], BeforeValidator(texts.table)]
Names: TypeAlias = Annotated[Mapping[Text, Text], BeforeValidator(texts.table)]
Pause: TypeAlias = Annotated[Duration, between("0s", "1h")]
"""The inbox takes a longer one for a clock that jumped, and passes over it."""
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ListenerSettings(Section):
    """Where events arrive.

    Attributes:
        host: the address to bind.
        port: 0 is any free one.
        body_limit: most bytes of a request's body.
        drain: how long a shutdown waits for what is under way.
        queue_limit: how many hints may wait for the disk before events are answered with 503.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8085
    body_limit: Size = 1 << 20
    drain: Duration = timedelta(seconds=30)
    queue_limit: AtLeastOne = 10_000


class InboxSettings(Section):
    """Where hints are kept.

    Attributes:
        url: `sqlite:///` and the path of a file.
        event_retention: how long an event's id is known, and the event itself kept.
    """

    url: Annotated[str, AfterValidator(texts.sqlite_url)] = "sqlite:///sfn/inbox.db"
    event_retention: PositiveDuration = timedelta(hours=72)

    @property
    def path(self) -> Path:
        """The inbox's file."""
        return Path(texts.sqlite_path(self.url))


class WorkerSettings(Section):
    """How hints become files.

    Attributes:
        concurrency: publishes at a time.
        lease: how long a publish may be silent before its row is taken from it.
    """

    concurrency: AtLeastOne = 32
    lease: Annotated[Duration, between("1s", "36500d")] = timedelta(seconds=30)


class RetrySettings(Section):
    """How often a table in trouble is tried.

    Attributes:
        base: the first delay; each further one is twice as long.
        cap: the longest delay.
        budget: the age since the first failure at which a table becomes a dead letter.
        max_attempts: the attempts after which it does.
    """

    base: PositiveDuration = timedelta(seconds=1)
    cap: PositiveDuration = timedelta(minutes=5)
    budget: PositiveDuration = timedelta(hours=24)
    max_attempts: AtLeastOne = 100


class SweepSettings(Section):
    """How often each catalog is walked over.

    Attributes:
        every: from one walk to the next, None for never (`off`).
    """

    every: Annotated[DurationOrOff, between("1s", "36500d")] = timedelta(minutes=15)


class SenderSettings(Section):
    """Who may send events.

    Attributes:
        scheme: how a sender shows who it is.
        secrets: active tokens by name.
        secrets_file: more tokens, one a line; read again when it changes.
        catalog: the one catalog that it speaks for.
        catalogs: or several: its own names of them, and ours.
    """

    scheme: Literal["bearer"] = "bearer"
    secrets: Tokens = Field(default_factory=dict)
    secrets_file: File | None = None
    catalog: Text | None = None
    catalogs: Names = Field(default_factory=dict)


class CatalogSettings(Section):
    """A catalog whose tables get files.

    Attributes:
        type: how it is spoken to: `told` is not at all, and then its events are the truth.
        uri: where its REST API begins, without `/v1`; may hold a user and a password.
        warehouse: which warehouse of that server.
        catalog_id: its identity in our files, None for one derived from where it is.
        ca_file: certificates (PEM) that are trusted instead of the system's.
        headers: sent with every request.
        token: bearer token; `token_file` a file with it.
        credential: OAuth2 client credentials; `credential_file` a file with them.
        oauth2_uri: where tokens are to be had.
        scope: OAuth2 scope.
        replica_lag: how long an answer may be behind, with the clock skew of our hosts.
        absence_delay: how long a table must be absent before it counts as dropped.
        max_drops: steps back that are let pass an hour; None for the greater of 10 and 1 % of the tables.
        include: globs of the tables that are published; none is all.
        exclude: globs of those that are not.
        allowed_locations: canonical prefixes that locations must lie below; none is any below a store.
        version_hint: whether to keep `version-hint.text`.
        on_drop: what becomes of a dropped table's files.
        expire_after: how long a tombstone stays.
        refresh_after: how long a file goes unwritten.
        min_publish_interval: from one publish of a table to the next.
    """

    type: Literal["rest", "told"] = "rest"
    uri: Url | None = Field(default=None, repr=False, validate_default=True)
    warehouse: Text | None = None
    catalog_id: Text | None = None
    ca_file: File | None = None
    headers: HttpHeaders = Field(default_factory=dict)
    token: Token | None = None
    token_file: File | None = None
    credential: Secret | None = None
    credential_file: File | None = None
    oauth2_uri: Url | None = Field(default=None, repr=False)
    scope: Text | None = None
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
    min_publish_interval: Pause = timedelta(seconds=1)

    @property
    def is_told(self) -> bool:
        """Whether nobody can ask it, or list it: its events are the truth."""
        return self.type == "told"

    @field_validator("uri")
    @classmethod
    def _where_it_is_asked(cls, uri: str | None, others: ValidationInfo) -> str | None:
        if uri is None and others.data.get("type") == "rest":
            raise PydanticCustomError("missing", "a value")
        return uri


class StoreSettings(Section):
    """Where tables lie.

    Attributes:
        prefix: canonical; locations below it are this store's.
        unsafe_unconditional_writes: use a store that cannot compare and swap.
    """

    prefix: LocalPrefix
    unsafe_unconditional_writes: bool = False


class AdminSettings(Section):
    """Who operates the service; without a token there are no admin routes.

    Attributes:
        token: bearer token; `token_file` a file with such tokens, one a line.
    """

    token: Token | None = None
    token_file: File | None = None


class TelemetrySettings(Section):
    """What the service tells about itself.

    Attributes:
        level: the least severity that is logged.
        format: JSON lines, text for people, or whichever fits where the log goes.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Settings(Section):
    """Everything."""

    listener: ListenerSettings = ListenerSettings()
    inbox: InboxSettings = InboxSettings()
    worker: WorkerSettings = WorkerSettings()
    retry: RetrySettings = RetrySettings()
    sweep: SweepSettings = SweepSettings()
    senders: Mapping[Name, SenderSettings] = Field(default_factory=dict)
    catalogs: Mapping[Name, CatalogSettings] = Field(default_factory=dict)
    stores: Mapping[Name, StoreSettings] = Field(default_factory=dict)
    admin: AdminSettings = AdminSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def told(self) -> frozenset[str]:
        """The catalogs that nobody can ask."""
        return frozenset(name for name, one in self.catalogs.items() if one.is_told)

    def catalogs_of(self, sender: str) -> Mapping[str, str]:
        """The catalogs that a configured sender speaks for: its own names of them, and ours.

        A sender that names none speaks for the only one that there is.
        """
        named = self.senders[sender]
        if named.catalogs:
            return named.catalogs
        ours = [named.catalog] if named.catalog is not None else self.catalogs
        return {catalog: catalog for catalog in ours}
