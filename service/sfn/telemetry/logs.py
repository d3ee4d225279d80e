"""What the service tells about itself: logs, and metrics for Prometheus (`sfn.telemetry.metrics`)."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Literal, TextIO, TypeAlias

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# ── logs: Logs

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Format: TypeAlias = Literal["auto", "json", "console"]

REDACTED: Final = "***"

_VERBOSE_LOGGERS: Final = {
    **dict.fromkeys(
        ("azure", "boto3", "botocore", "google", "msal", "pyiceberg", "sqlalchemy", "urllib3"), logging.WARNING
    ),
    "thrift": logging.CRITICAL,
}
"""Libraries that tell of each of their calls, two of them with secrets, and thrift of all that they raise too."""

_SECRET: Final = re.compile(r"token|authorization|credential|secret|password|cookie|api.?key", re.IGNORECASE)
_MAX_DEPTH: Final = 8


def configure_logging(level: Level = "info", form: Format = "auto", stream: TextIO | None = None) -> None:
    """Send every record to one stream: JSON lines, or text where people read it.

    Args:
        level: the least severity that is written.
        form: `auto` is text on a terminal and JSON elsewhere.
        stream: standard error when not given.
    """
    target = sys.stderr if stream is None else stream
    readable = form == "console" or (form == "auto" and target.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
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
    # What libraries say by `warnings` becomes a record too.
    logging.captureWarnings(capture=True)
    _route_servers()


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the value of each key that speaks of a secret, at any depth."""
    for key, value in event.items():
        event[key] = _redacted(key, value, _MAX_DEPTH)
    return event


def _redacted(key: str, value: object, deeper: int) -> object:
    if _SECRET.search(key):
        return REDACTED
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), inner, deeper - 1) for name, inner in value.items()} if deeper else "…"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_redacted("", inner, deeper - 1) for inner in value] if deeper else "…"
    return value


def _handler(target: TextIO, shared: Sequence[Processor], *, readable: bool) -> logging.Handler:
    """Writes every record, also of those who know the standard library alone."""
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
        # Its tracebacks show no local variables: those may be secrets.
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def _route_servers() -> None:
    """Let the servers' loggers, which bring handlers of their own, write where all others do; others only warn."""
    for name in ("uvicorn", "uvicorn.error", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        logger.disabled = False
    # One record a request: the service counts them instead.
    access = logging.getLogger("uvicorn.access")
    access.handlers = []
    access.propagate = False
    access.disabled = True
    for name, level in _VERBOSE_LOGGERS.items():
        logging.getLogger(name).setLevel(max(level, logging.getLogger().level))


# ── refusals: What the log is told of what anybody can cause as often as they like

LOG_INTERVAL: Final = 1.0
"""Seconds from one record of a kind to the next."""

_log = structlog.stdlib.get_logger(__name__)


class LogThrottle:
    """Lets a record of a kind pass at most once a second.

    Args:
        monotonic: seconds that never run backwards.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._logged_at: dict[Hashable, float] = {}
        self._suppressed: Counter[Hashable] = Counter()

    def allow(self, kind: Hashable) -> int | None:
        """How many of a kind were left out since the last one; None: this one is too."""
        now = self._monotonic()
        logged_at = self._logged_at.get(kind)
        if logged_at is not None and now - logged_at < LOG_INTERVAL:
            self._suppressed[kind] += 1
            return None
        self._logged_at[kind] = now
        return self._suppressed.pop(kind, 0)


class RejectionLog:
    """Tells of refused requests, a status at most once a second.

    Args:
        where: what was asked for.
        throttle: keeps the log small.
    """

    def __init__(self, where: str, throttle: LogThrottle | None = None) -> None:
        self._where = where
        self._throttle = throttle or LogThrottle()

    def log_rejected(self, status: int, why: str, client: str | None) -> None:
        """A request was refused.

        Args:
            status: HTTP status of the answer.
            why: in words of ours, nothing that was sent.
            client: its address, None where the server does not know it.
        """
        suppressed = self._throttle.allow(status)
        if suppressed is not None:
            _log.warning(
                "request refused", where=self._where, status=status, why=why, client=client, left_out=suppressed
            )
