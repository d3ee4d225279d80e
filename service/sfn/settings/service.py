"""The section `facade`: a read-only catalog that is answered from SFN files."""

from __future__ import annotations

import ipaddress
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from sfn.settings import types
from sfn.settings.types import (
    AtLeastOne,
    Duration,
    DurationOrOff,
    File,
    PositiveDuration,
    Prefixes,
    Section,
    Size,
    Text,
    Token,
    duration_between,
)

# ── facade: The section `facade`


class FacadeSettings(Section):
    """Who may read through it, and what. Without a token, and not open, there is none.

    Attributes:
        token: its readers' bearer token; `token_file` a file with such tokens, one a line; read again when it changes.
        open: everybody who reaches the listener may read.
        roots: canonical prefixes: a table whose files or whose location lie below none of them is not shown; empty for
            those of all stores.
        directories: tables may be called by their directories, in the namespace `dir`.
        metadata_limit: most bytes of a metadata file's JSON.
    """

    token: Token | None = Field(default=None, repr=False)
    token_file: File | None = None
    open: bool = False
    roots: Prefixes = ()
    directories: bool = True
    metadata_limit: Size = 64 << 20

    @property
    def has_token(self) -> bool:
        """Whether its readers show one."""
        return self.token is not None or self.token_file is not None

    @property
    def is_on(self) -> bool:
        """Whether there is a facade."""
        return self.open or self.has_token


# ── inbox: The section `inbox`


def _require_server(value: Path | None, info: ValidationInfo) -> Path | None:
    if value is not None and not types.is_postgres(info.data.get("url", "postgresql://")):
        raise ValueError("no such key with an inbox in SQLite")
    return value


class InboxSettings(Section):
    """Where hints are kept.

    Attributes:
        url: `sqlite:///` and the path of a file; or a database of PostgreSQL, as libpq's URLs name it.
        password_file: a file with the password for that database, read for each new connection.
        event_retention: how long an event's id is known, and the event itself kept.
    """

    url: Annotated[str, AfterValidator(types.validate_inbox_url)] = Field(default="sqlite:///sfn/inbox.db", repr=False)
    password_file: Annotated[File | None, AfterValidator(_require_server)] = None
    event_retention: PositiveDuration = timedelta(hours=72)

    @property
    def path(self) -> Path | None:
        """The inbox's file; None for an inbox in PostgreSQL."""
        return None if types.is_postgres(self.url) else Path(types.sqlite_path(self.url))


# ── listener: The section `listener`


class ListenerSettings(Section):
    """Where events arrive.

    Attributes:
        host: the address to bind.
        port: 0 is any free one.
        body_limit: most bytes of a request's body.
        body_memory: most bytes of bodies that are held at once of clients that have not shown who they are: who signs,
            who needs no token, who asks an operator's route. Gateways, whose clients only the catalog knows, have as
            much again, and 64 KiB more for each of their connections. Never less than one of the largest bodies needs.
        drain: how long a shutdown waits for what is under way.
        queue_limit: how many hints may wait for the disk before events are answered with 503. What is
            kept of an event, 4 KiB at most, waits with its hint in memory: 40 MiB for 10,000.
        tls_certificate_file: certificates (PEM) to show, its own first; with `tls_key_file` their private key. Both are
            read again when they change; without them it speaks plain HTTP.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8085
    body_limit: Size = 1 << 20
    body_memory: Size = 32 << 20
    drain: Duration = timedelta(seconds=30)
    queue_limit: AtLeastOne = 10_000
    tls_certificate_file: File | None = None
    tls_key_file: File | None = None

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "http" if self.tls_certificate_file is None else "https"

    @property
    def is_loopback(self) -> bool:
        """Whether it is reached from this machine alone."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone. Names but `localhost` are not looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


# ── telemetry: The section `telemetry`


class TelemetrySettings(Section):
    """What the service tells about itself.

    Attributes:
        level: the least severity that is logged.
        format: JSON lines, text for people, or whichever fits where the log goes.
        metrics_token: bearer token that opens `/metrics`, `metrics_token_file` a file with such tokens, one a line;
            without either it is open to everybody who reaches the listener.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    metrics_token: Token | None = None
    metrics_token_file: File | None = None


# ── work: The sections `worker`


class WorkerSettings(Section):
    """How hints become files.

    Attributes:
        concurrency: publishes at a time.
        lease: how long a publish may be silent before its row is taken from it.
    """

    concurrency: AtLeastOne = 32
    lease: Annotated[Duration, duration_between("1s", "36500d")] = timedelta(seconds=30)


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
    # A pause is three quarters of the cap on average: 24 h are some 390 attempts. So it is the age that ends them, and
    # the number only where somebody made the pauses shorter.
    max_attempts: AtLeastOne = 500


class SweepSettings(Section):
    """How often each catalog is walked over.

    Attributes:
        every: from one walk to the next, None for never (`off`).
    """

    every: Annotated[DurationOrOff, duration_between("1s", "36500d")] = timedelta(minutes=15)


# ── java: Where this machine's Java is


def java_home() -> str | None:
    """The variable `JAVA_HOME`, by which whatever starts a Java finds it; None where it is not set."""
    return os.environ.get("JAVA_HOME") or None
