"""A collector of traces, as OpenTelemetry's: it takes OTLP over HTTP, and shows the spans that arrived."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.support.processes import until
from tests.support.rest_catalog import Runner

SOON: Mapping[str, str] = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""Variables of a process that sends its spans after 50 ms, and not after seconds."""


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it was sent.

    Attributes:
        trace, id, parent: in hexadecimal digits; `parent` is empty for the first span of a trace.
        links: ids of the traces that the span is linked with.
        error: description of the failure; None for a span that did not fail.
        service: attributes of the process.
    """

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: Mapping[str, object]
    links: tuple[str, ...]
    error: str | None
    service: Mapping[str, object]


@dataclass(slots=True)
class TraceCollector:
    """A running collector.

    Attributes:
        url: its address.
        status: status of its answers.
        spans: the spans that arrived.
        headers: header fields of the last request.
    """

    url: str = ""
    status: int = 200
    spans: list[ReceivedSpan] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)

    def named(self, name: str) -> list[ReceivedSpan]:
        return [one for one in self.spans if one.name == name]

    async def until(self, holds: Callable[[Sequence[ReceivedSpan]], object], within: float = 20.0) -> None:
        """Wait until the spans are as expected."""
        await until(lambda: bool(holds(self.spans)), within)

    def tree(self, trace: str) -> dict[str, set[str]]:
        """Return the names of the spans in a trace, each with those directly below it."""
        found = [one for one in self.spans if one.trace == trace]
        return {one.name: {below.name for below in found if below.parent == one.id} for one in found}

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        received = ExportTraceServiceRequest.FromString(await request.read())
        self.headers = dict(request.headers)
        for resource in received.resource_spans:
            service = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        one.name,
                        one.kind,
                        one.trace_id.hex(),
                        one.span_id.hex(),
                        one.parent_span_id.hex(),
                        _values(one.attributes),
                        tuple(link.trace_id.hex() for link in one.links),
                        one.status.message if one.status.code == one.status.STATUS_CODE_ERROR else None,
                        service,
                    )
                    for one in scope.spans
                ]
        return web.Response(body=b"", status=self.status, content_type="application/x-protobuf")


def _values(attributes: Sequence[KeyValue]) -> dict[str, object]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}


@asynccontextmanager
async def collecting_traces() -> AsyncGenerator[TraceCollector]:
    """Run a collector on a free port."""
    collector = TraceCollector()
    runner = Runner(collector._answer)  # noqa: SLF001 - its own
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
