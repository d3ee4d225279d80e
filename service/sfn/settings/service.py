"""The single sections: `facade`, `inbox`, `listener`, `telemetry`, `worker`, `retry` and `sweep`."""

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
    queue_limit: AtLeastOne = 10_000
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
    """The log and the metrics.

    Attributes:
        level: minimum severity of log records.
        format: JSON lines or text; `auto` for text on a terminal, else JSON lines.
        metrics_token: bearer token for `/metrics`; `metrics_token_file` is a file with such tokens, one a line. Without
            either everyone who reaches the listener may read the metrics.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    metrics_token: Token | None = None
    metrics_token_file: File | None = None


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
