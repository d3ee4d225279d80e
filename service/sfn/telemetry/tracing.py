"""Traces by OpenTelemetry: one from the event or the commit to the file that it leads to.

    POST /v1/events, a commit at a gateway   `serve`: continues the trace in the request's header `traceparent`
      inbox append                           `span`: each notification carries the trace (`Notification.trace`)
    publish                                  `resume`: an attempt for the table, perhaps much later in another process
      GET catalog, PUT store                 `request`: requests to the catalog and the store
      inbox settle

Only `serve` and `resume` begin a trace. Everything else is a step of the trace that is current in its task, and nothing
without one: health checks, sweeps and renewals of tokens have no trace. What is not sampled costs nothing further.

Tracing is off until `start_tracing` is called. Until then every function here returns at once, and OpenTelemetry's SDK,
an extra, is not imported.

Names and attributes follow OpenTelemetry's semantic conventions for HTTP and messaging; attributes of the service's own
begin with `sfn.`. A span has no body, no query of a URL, no header and no credential.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from structlog.typing import EventDict, WrappedLogger
from typing_extensions import override

from sfn.errors import SfnError
from sfn.extras import install_command

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OpenTelemetrySpan

Kind: TypeAlias = Literal["internal", "server", "client", "producer", "consumer"]
Value: TypeAlias = str | int | float | bool
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

FLUSH_TIMEOUT: Final = 5.0
"""Seconds at the end of the process for sending spans."""
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_OTLP_PATH: Final = "/v1/traces"
"""The path of traces in OTLP over HTTP, for an endpoint without a path."""
_LOG_INTERVAL: Final = 60.0
"""Seconds between two log records of the exporter."""

_exporter_log: Final = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")


class Span:
    """A step of a trace that is under way. This class is the one that records nothing."""

    __slots__ = ()

    @property
    def context(self) -> bytes:
        """The ids of the trace and of the step, 16 and 8 bytes, to continue the trace; empty if it is not recorded."""
        return b""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Set attributes; None sets nothing. One call for several is much faster than several calls."""

    def fail(self, error_type: str, description: str = "") -> None:
        """Mark the step as failed.

        Args:
            error_type: class of the error: a status code, or the name of an exception.
            description: what happened, for people; without secrets.
        """


NOT_RECORDED: Final = Span()
_OFF: Final[AbstractContextManager[Span]] = nullcontext(NOT_RECORDED)
_current: ContextVar[RecordedSpan | None] = ContextVar("span", default=None)
_recorder: Recorder | None = None


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """How and where to send traces.

    Attributes:
        endpoint: URL of a collector that takes OTLP over HTTP; None for the variables `OTEL_EXPORTER_OTLP_…`.
        sample_ratio: part of the traces that is recorded, of those that begin here; a client's trace is recorded if the
            client records it. None for the variables `OTEL_TRACES_SAMPLER…`, or for all.
        headers: headers of each request to the collector, such as a key.
        ca_file: certificates (PEM) that are trusted instead of the usual ones.
    """

    endpoint: str | None = None
    sample_ratio: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None


def start_tracing(options: TracingOptions, version: str, exporter: SpanExporter | None = None) -> None:
    """Record traces from now on.

    Args:
        options: how and where to send them.
        version: version of the service.
        exporter: receiver of the spans, as soon as they end; None to send them to the endpoint, in batches.

    Raises:
        SfnError: the packages of the extra `otel` are not installed.
    """
    global _recorder  # noqa: PLW0603 - as the set-up of the log: one for the process
    require_packages()
    _recorder = Recorder(_provider(options, version, exporter), options.sample_ratio)


def require_packages() -> None:
    """Check that OpenTelemetry's packages are installed.

    Raises:
        SfnError: they are not.
    """
    if any(find_spec(name) is None for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")):
        raise SfnError(
            "telemetry.traces_endpoint",
            expected="the packages of OpenTelemetry",
            found="none",
            remedy=install_command("otel"),
        )


def collector_url(endpoint: str) -> str:
    """Return the URL to which traces are posted."""
    return f"{endpoint.rstrip('/')}{_OTLP_PATH}" if urlsplit(endpoint).path in {"", "/"} else endpoint


def stop_tracing() -> None:
    """Send what is recorded, for at most `FLUSH_TIMEOUT`, and record nothing any more. Blocks."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        # The SDK has no time limit for this that a collector which does not answer would keep.
        last = threading.Thread(target=recorder.provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(FLUSH_TIMEOUT)


def _provider(options: TracingOptions, version: str, exporter: SpanExporter | None) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

    ratio = options.sample_ratio
    provider = TracerProvider(
        shutdown_on_exit=False,
        sampler=None if ratio is None else ParentBased(ALWAYS_ON),
        resource=Resource.create({"service.version": version} | _service_name()),
    )
    provider.add_span_processor(
        SimpleSpanProcessor(exporter) if exporter is not None else BatchSpanProcessor(_otlp_exporter(options))
    )
    return provider


def _service_name() -> dict[str, str]:
    """Return the name of the service, unless a standard variable sets one."""
    from opentelemetry.sdk.resources import OTELResourceDetector

    named = OTELResourceDetector().detect().attributes
    return {} if "service.name" in named else {"service.name": "iceberg-sfn"}


def _otlp_exporter(options: TracingOptions) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    _exporter_log.addFilter(_once_a_minute())
    return OTLPSpanExporter(
        endpoint=None if options.endpoint is None else collector_url(options.endpoint),
        headers=options.headers or None,
        certificate_file=None if options.ca_file is None else str(options.ca_file),
    )


def _once_a_minute() -> Callable[[logging.LogRecord], bool]:
    """Return a filter of log records: while the collector is down, the SDK logs each of its many attempts."""
    logged_at = -_LOG_INTERVAL

    def is_due(_record: logging.LogRecord) -> bool:
        nonlocal logged_at
        now = time.monotonic()
        if now - logged_at < _LOG_INTERVAL:
            return False
        logged_at = now
        return True

    return is_due


def span(name: str, kind: Kind = "internal") -> AbstractContextManager[Span]:
    """Return a step of the current trace, which lasts as long as the block; without a trace it records nothing.

    An exception that leaves the block marks the step as failed, except a cancellation.
    """
    parent = _current.get()
    return _OFF if parent is None or _recorder is None else _recorder.begin(name, kind, parent=parent)


def request(method: str, url: str, target: str) -> AbstractContextManager[Span]:
    """Return the step of one HTTP request; set its status with `answered`.

    Args:
        method: HTTP method.
        url: URL; its query, its fragment and its user are not recorded.
        target: what the request goes to, such as `catalog`: few words for many requests.
    """
    begun = span(f"{method} {target}", "client")
    if isinstance(begun, RecordedSpan):
        parts = urlsplit(url)
        begun.set(
            {
                "http.request.method": method,
                "server.address": parts.hostname,
                "server.port": parts.port,
                "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
            }
        )
    return begun


def answered(step: Span, status: int, more: Mapping[str, Value | None] | None = None) -> None:
    """Set the HTTP status of the answer to a `request`, or of a request that is served, and more attributes."""
    step.set({"http.response.status_code": status, **(more or {})})
    if status >= 500:  # noqa: PLR2004 - of a server's failure; a client span's 4xx is often an expected answer here
        step.fail(str(status))


def serve(name: str, headers: Headers, kind: Kind = "server") -> AbstractContextManager[Span]:
    """Return the step of a request or a message that arrives. It continues the sender's trace, or begins one.

    Args:
        name: method and route, such as `POST /v1/events`: few names for many requests.
        headers: header fields.
        kind: kind of the step.
    """
    if _recorder is None:
        return _OFF
    found = [value for field_name, value in headers if field_name.lower() == b"traceparent"]
    states = b",".join(value for field_name, value in headers if field_name.lower() == b"tracestate")
    # Several `traceparent` fields are none (W3C Trace Context, section 3.2.2.5.1).
    context = _recorder.remote(found[0].decode("latin-1"), states.decode("latin-1")) if len(found) == 1 else None
    return _recorder.begin_trace(name, kind, context)


def resume(name: str, contexts: Sequence[bytes]) -> AbstractContextManager[Span]:
    """Return the step that works on what earlier steps stored.

    It continues the trace of the first, and is linked with the others. Without any, a trace begins.

    Args:
        name: name of the step.
        contexts: values of `Span.context`.
    """
    if _recorder is None:
        return _OFF
    first, *others = contexts or (b"",)
    return _recorder.begin_trace(name, "consumer", _recorder.stored(first) if first else None, others)


def without_steps() -> AbstractContextManager[None]:
    """Return a block that has no steps in the current trace: a sweep of many tables would make a huge one."""
    return nullcontext() if _recorder is None else _WithoutSteps()


def add_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the current trace and step to a log record."""
    current = _current.get()
    if current is not None:
        ids = current.context
        event["trace_id"], event["span_id"] = ids[:_TRACE_BYTES].hex(), ids[_TRACE_BYTES:].hex()
    return event


class _WithoutSteps(AbstractContextManager[None]):
    @override
    def __enter__(self) -> None:
        self._token = _current.set(None)

    @override
    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


class RecordedSpan(Span, AbstractContextManager[Span]):
    """A step that is recorded. As a context manager it is current until its block ends.

    Args:
        recorded: OpenTelemetry's span.
    """

    __slots__ = ("_recorded", "_token")

    def __init__(self, recorded: OpenTelemetrySpan) -> None:
        self._recorded = recorded

    @property
    def recorded(self) -> OpenTelemetrySpan:
        """OpenTelemetry's span."""
        return self._recorded

    @property
    @override
    def context(self) -> bytes:
        context = self._recorded.get_span_context()
        return context.trace_id.to_bytes(_TRACE_BYTES) + context.span_id.to_bytes(_SPAN_BYTES)

    @override
    def set(self, attributes: Mapping[str, Value | None]) -> None:
        self._recorded.set_attributes({name: value for name, value in attributes.items() if value is not None})

    @override
    def fail(self, error_type: str, description: str = "") -> None:
        from opentelemetry.trace import StatusCode

        self._recorded.set_attribute("error.type", error_type)
        self._recorded.set_status(StatusCode.ERROR, description or None)

    @override
    def __enter__(self) -> Span:
        self._token: Token[RecordedSpan | None] = _current.set(self)
        return self

    @override
    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)
        if isinstance(error, Exception):
            # Our own errors have no secrets; the text of a library's error may have anything.
            self.fail(type(error).__name__, str(error) if isinstance(error, SfnError) else "")
        self._recorded.end()


class Recorder:
    """The spans of a process, by OpenTelemetry's SDK.

    Args:
        provider: the SDK's provider, with its sampler and exporter.
        ratio: part of the traces that is recorded, of those that begin here; None if the sampler decides.

    Attributes:
        provider: see Args.
    """

    def __init__(self, provider: TracerProvider, ratio: float | None) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.provider, self._ratio = provider, ratio
        self._trace, self._no_context = trace, Context()
        self._tracer = provider.get_tracer("sfn")
        self._propagator = TraceContextTextMapPropagator()
        self._kinds = {kind.name.lower(): kind for kind in trace.SpanKind}

    def begin(self, name: str, kind: Kind, parent: RecordedSpan) -> RecordedSpan:
        """Begin a step below another one."""
        context = self._trace.set_span_in_context(parent.recorded, self._no_context)
        return RecordedSpan(self._tracer.start_span(name, context, self._kinds[kind]))

    def begin_trace(
        self, name: str, kind: Kind, context: Context | None, others: Iterable[bytes] = ()
    ) -> AbstractContextManager[Span]:
        """Begin the first step of this process in a trace; it records nothing if the trace is not sampled.

        Args:
            context: the step before, in another process or at another time; None to begin a trace.
            others: further steps to link with.
        """
        # The SDK takes 20 µs for a span that is not recorded, and most requests have such a one.
        if self._ratio is not None and context is None and random.random() >= self._ratio:  # noqa: S311 - no secret
            return _OFF
        links = [self._trace.Link(self._trace.get_current_span(self.stored(one)).get_span_context()) for one in others]
        begun = self._tracer.start_span(name, context or self._no_context, self._kinds[kind], links=links)
        return RecordedSpan(begun) if begun.is_recording() else _OFF

    def stored(self, context: bytes) -> Context:
        """Return the context that a `Span.context` names."""
        return self.remote(f"00-{context[:_TRACE_BYTES].hex()}-{context[_TRACE_BYTES:].hex()}-01")

    def remote(self, parent: str, state: str = "") -> Context:
        """Return the context of the headers `traceparent` and `tracestate`; an empty one if they are malformed."""
        return self._propagator.extract({"traceparent": parent, "tracestate": state}, self._no_context)
