"""Steps of traces: what begins a trace, what continues one, and what is recorded of each step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from typing_extensions import override

from sfn.errors import SfnError
from sfn.telemetry import tracing
from sfn.telemetry.tracing import NOT_RECORDED, TracingOptions, add_trace_ids

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
CONTEXT = bytes.fromhex(TRACE + PARENT)
FIELD = (b"traceparent", TRACEPARENT.encode())


@pytest.fixture(name="spans")
def fixture_spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.start_tracing(TracingOptions(sample_ratio=1.0), "1.2.3", exporter)
    try:
        yield exporter
    finally:
        tracing.stop_tracing()


def step_now() -> bytes:
    """Return the context that a step of the current trace would continue; empty outside of a trace."""
    with tracing.span("now") as step:
        return step.context


def ended(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {one.name: one for one in exporter.get_finished_spans()}


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """Return the ids of trace, parent and span in hexadecimal digits; no parent is empty."""
    context = span.get_span_context()
    assert context is not None
    parent = "" if span.parent is None else f"{span.parent.span_id:016x}"
    return f"{context.trace_id:032x}", parent, f"{context.span_id:016x}"


def test_nothing_is_recorded_or_imported_while_tracing_is_off() -> None:
    with tracing.serve("POST /", [FIELD]) as served, tracing.resume("publish", [CONTEXT]) as resumed:
        with tracing.span("step") as step, tracing.request("GET", "http://x", "catalog") as request:
            tracing.answered(request, 500)
        assert served is resumed is step is request is NOT_RECORDED
        assert step_now() == b""
    program = (
        "import sys; import sfn.app.service; from sfn.telemetry import tracing\n"
        "with tracing.serve('a', []): pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_request_continues_the_trace_of_its_client(spans: InMemorySpanExporter) -> None:
    with tracing.serve("POST /v1/events", [(b"Traceparent", TRACEPARENT.encode())]) as served:
        with tracing.span("inbox append", "producer") as append:
            assert append.context == bytes.fromhex(TRACE) + append.context[16:]
        tracing.answered(served, 202)
    found = ended(spans)
    trace, parent, server = ids(found["POST /v1/events"])
    assert (trace, parent) == (TRACE, PARENT)
    assert ids(found["inbox append"])[:2] == (TRACE, server)
    assert (found["POST /v1/events"].attributes or {})["http.response.status_code"] == 202
    assert found["POST /v1/events"].status.is_unset
    assert found["POST /v1/events"].resource.attributes["service.version"] == "1.2.3"


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [FIELD, FIELD],
        [(b"traceparent", b"")],
        [(b"traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01")],
        [(b"traceparent", b"\xff\x00 text")],
        [(b"traceparent", b"ff" + TRACEPARENT[2:].encode())],
    ],
)
def test_a_request_without_one_valid_trace_begins_one(
    spans: InMemorySpanExporter, fields: Sequence[tuple[bytes, bytes]]
) -> None:
    with tracing.serve("GET /", fields):
        pass
    trace, parent, _ = ids(ended(spans)["GET /"])
    assert (trace != TRACE, parent) == (True, "")


def test_a_trace_that_its_client_does_not_record_costs_no_step(spans: InMemorySpanExporter) -> None:
    with tracing.serve("POST /", [(b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())]) as served:
        with tracing.span("step") as step:
            assert served is step is NOT_RECORDED
        assert step_now() == b""
    assert spans.get_finished_spans() == ()


def test_a_step_outside_of_a_trace_is_not_recorded(spans: InMemorySpanExporter) -> None:
    with tracing.span("health check"), tracing.request("GET", "http://catalog/v1/config", "catalog"):
        pass
    assert spans.get_finished_spans() == ()


def test_work_resumes_the_first_trace_and_is_linked_with_the_others(spans: InMemorySpanExporter) -> None:
    other = b"\x11" * 16 + b"\x22" * 8
    with tracing.resume("publish", [CONTEXT, other]):
        pass
    with tracing.resume("refresh", []):
        pass
    found = ended(spans)
    assert ids(found["publish"])[:2] == (TRACE, PARENT)
    assert [f"{link.context.trace_id:032x}" for link in found["publish"].links] == ["1" * 32]
    trace, parent, _ = ids(found["refresh"])
    assert (trace != TRACE, parent) == (True, "")


def test_a_request_is_recorded_without_its_secrets(spans: InMemorySpanExporter) -> None:
    with tracing.resume("publish", []):
        with tracing.request("GET", "https://user:word@lake:9000/wh/a%20b?sig=secret#part", "store") as request:
            tracing.answered(request, 404)
        with tracing.request("PUT", "http://lake/x", "store") as request:
            tracing.answered(request, 503)
    found = ended(spans)
    assert dict(found["GET store"].attributes or {}) == {
        "http.request.method": "GET",
        "server.address": "lake",
        "server.port": 9000,
        "url.full": "https://lake:9000/wh/a%20b",
        "http.response.status_code": 404,
    }
    assert found["GET store"].status.is_unset
    assert ((found["PUT store"].attributes or {})["error.type"], found["PUT store"].status.is_ok) == ("503", False)


def test_an_error_marks_its_step_and_a_library_s_text_is_left_out(spans: InMemorySpanExporter) -> None:
    def fail() -> None:
        with tracing.resume("publish", []):
            with suppress(OSError), tracing.span("read"):
                raise OSError("key=secret")
            raise SfnError("s3://lake", expected="an answer", found="none")

    with pytest.raises(SfnError):
        fail()
    found = ended(spans)
    assert ((found["read"].attributes or {})["error.type"], found["read"].status.description) == ("OSError", None)
    assert found["publish"].status.description == "s3://lake: expected an answer, found none"
    assert not found["read"].events


async def test_a_cancelled_step_ends_and_is_no_error(spans: InMemorySpanExporter) -> None:
    with anyio.CancelScope() as scope, tracing.resume("publish", []), tracing.span("read"):
        scope.cancel()
        await anyio.sleep(1)
    found = ended(spans)
    assert found["read"].status.is_unset
    assert step_now() == b""


async def test_steps_of_concurrent_tasks_stay_in_their_traces(spans: InMemorySpanExporter) -> None:
    async def work(name: str) -> None:
        with tracing.resume(name, []):
            await anyio.lowlevel.checkpoint()
            with tracing.span(f"step of {name}"):
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for name in ("a", "b"):
            tasks.start_soon(work, name)
    found = ended(spans)
    for name in ("a", "b"):
        assert ids(found[f"step of {name}"])[:2] == ids(found[name])[::2]


def test_a_sweep_has_no_steps_and_log_records_have_the_ids(spans: InMemorySpanExporter) -> None:
    assert add_trace_ids(None, "", {"event": "x"}) == {"event": "x"}
    with tracing.serve("POST /", [FIELD]):
        record = add_trace_ids(None, "", {"event": "x"})
        with tracing.without_steps(), tracing.span("one table"):
            assert step_now() == b""
        with tracing.span("next"):
            pass
    found = ended(spans)
    assert list(found) == ["next", "POST /"]
    assert (record["trace_id"], record["span_id"]) == ids(found["POST /"])[::2]


class Hanging(SpanExporter):
    """An exporter that does not come to an end."""

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    @override
    def shutdown(self) -> None:
        time.sleep(5)


def test_the_end_waits_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FLUSH_TIMEOUT", 0.1)
    tracing.start_tracing(TracingOptions(), "1.2.3", Hanging())
    began = time.monotonic()
    tracing.stop_tracing()
    assert time.monotonic() - began < 2


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    with pytest.raises(SfnError, match=r"pip install 'iceberg-sfn\[otel\]"):
        tracing.start_tracing(TracingOptions(), "1.2.3")
