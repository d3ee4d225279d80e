"""Configuration of structured logging, and throttles for frequent records."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TextIO, TypeAlias

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.telemetry.tracing import add_trace_ids

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Format: TypeAlias = Literal["auto", "json", "console"]

REDACTED: Final = "***"

_VERBOSE_LOGGERS: Final = {
    **dict.fromkeys(
        ("azure", "boto3", "botocore", "google", "msal", "pyiceberg", "sqlalchemy", "urllib3"), logging.WARNING
    ),
    "thrift": logging.CRITICAL,
}
"""Minimum levels of libraries that log each of their calls, two of them with secrets. Thrift also logs every error that
it raises."""

_FIRST_KEYS: Final = ("timestamp", "level", "event")

_SECRET: Final = re.compile(r"token|authorization|credential|secret|password|cookie|api.?key", re.IGNORECASE)
_MAX_DEPTH: Final = 8


def key_fields(subject: JobKey) -> dict[str, str | None]:
    """Return the fields of a log record about a table or a catalog: names as commands take them.

    Returns:
        `catalog`, and `table` such as `prod:sales.orders`; `table` is None for a whole catalog.
    """
    return {"catalog": subject.catalog, "table": str(subject) if isinstance(subject, TableIdentifier) else None}


def configure_logging(level: Level = "info", form: Format = "auto", stream: TextIO | None = None) -> None:
    """Write every log record to one stream, as JSON lines or as text.

    Args:
        level: minimum severity.
        form: `auto` for text on a terminal, else JSON.
        stream: output; None for standard error.
    """
    target = sys.stderr if stream is None else stream
    readable = form == "console" or (form == "auto" and target.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace_ids,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        redact,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_handler(target, shared, readable=readable)]
    root.setLevel(level.upper())
    # Warnings of libraries (module `warnings`) become records too.
    logging.captureWarnings(capture=True)
    _route_servers()


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the values of keys with a name such as `token` or `password`, at any depth."""
    for key, value in event.items():
        event[key] = _redacted(key, value, _MAX_DEPTH)
    return event


@lru_cache(1024)
def _is_secret(key: str) -> bool:
    return _SECRET.search(key) is not None


def _redacted(key: str, value: object, deeper: int) -> object:
    if _is_secret(key):
        return REDACTED
    # Nearly all values are plain, and the abstract types below are slow to test.
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), inner, deeper - 1) for name, inner in value.items()} if deeper else "…"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_redacted("", inner, deeper - 1) for inner in value] if deeper else "…"
    return value


def _handler(target: TextIO, shared: Sequence[Processor], *, readable: bool) -> logging.Handler:
    """Return a handler for all records, including those of libraries that use the standard module `logging`."""
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(readable=readable)],
        )
    )
    return handler


def _renderers(*, readable: bool) -> list[Processor]:
    if readable:
        # Plain tracebacks show no local variables, which may be secrets.
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, _order_keys, structlog.processors.JSONRenderer(_to_json)]


_encoder: Final = json.JSONEncoder(default=str)
"""One for all records: `json.dumps` would make a new one for each, because of `default`."""


def _to_json(event: EventDict, **_options: object) -> str:
    return _encoder.encode(event)


def _order_keys(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put timestamp, level and event first, so that lines align for a reader."""
    return {key: event[key] for key in _FIRST_KEYS if key in event} | dict(event)


def _route_servers() -> None:
    """Send the records of HTTP servers to the common handler instead of their own; mute verbose libraries."""
    for name in ("uvicorn", "uvicorn.error", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        logger.disabled = False
    # The access log has one record for each request. The service counts requests instead.
    access = logging.getLogger("uvicorn.access")
    access.handlers = []
    access.propagate = False
    access.disabled = True
    for name, level in _VERBOSE_LOGGERS.items():
        logging.getLogger(name).setLevel(max(level, logging.getLogger().level))


LOG_INTERVAL: Final = 1.0
"""Minimum time in seconds between two records of a kind."""

_log = structlog.stdlib.get_logger(__name__)


class LogThrottle:
    """A limit of one record of each kind per second, so that a client cannot flood the log.

    Args:
        monotonic: monotonic clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._logged_at: dict[Hashable, float] = {}
        self._suppressed: Counter[Hashable] = Counter()

    def allow(self, kind: Hashable) -> int | None:
        """Return how many records of a kind were suppressed since the last one; None if this record is suppressed."""
        now = self._monotonic()
        logged_at = self._logged_at.get(kind)
        if logged_at is not None and now - logged_at < LOG_INTERVAL:
            self._suppressed[kind] += 1
            return None
        self._logged_at[kind] = now
        return self._suppressed.pop(kind, 0)


class RejectionLog:
    """A log of refused requests, with at most one record a second for each HTTP status.

    Args:
        where: part of the service that refuses, such as `admin`.
        throttle: limit of records.
    """

    def __init__(self, where: str, throttle: LogThrottle | None = None) -> None:
        self._where = where
        self._throttle = throttle or LogThrottle()

    def log_rejected(self, status: int, why: str, client: str | None) -> None:
        """Log that a request was refused.

        Args:
            status: HTTP status of the response.
            why: reason, without any text of the request.
            client: address of the client; None if unknown.
        """
        suppressed = self._throttle.allow(status)
        if suppressed is not None:
            _log.warning(
                "request refused", where=self._where, status=status, why=why, client=client, suppressed=suppressed
            )
