"""Events that are nearly right are taken or refused, whatever is wrong with them; nothing else is ever raised."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sfn.formats import FORMAT_NAMES
from sfn.formats.event import Headers, Sender
from tests.dialects.asking import BATCH, ONE, SENDER, STRUCTURED, refusal_of
from tests.dialects.drawing import anything, nearly
from tests.dialects.samples import SAMPLES

CONTENTS = [sample.content for sample in SAMPLES]
ATTRIBUTES = [(b"ce-specversion", b"1.0"), (b"ce-id", b"e1"), (b"ce-source", b"/ci"), (b"ce-type", b"commit")]
HEADERS: list[Headers] = [
    *((), STRUCTURED, BATCH, ATTRIBUTES),
    [(b"content-type", b"application/json")],
    [(b"x-polaris-event", b"AFTER_UPDATE_TABLE")],
    [*ATTRIBUTES[:2], (b"ce-source", b"uri:iceberg-catalog-service:h"), (b"ce-type", b"updateTable")],
]

senders = st.builds(
    Sender, st.just("any"), st.sampled_from([SENDER.catalogs, ONE.catalogs, {}]), st.sampled_from([None, *FORMAT_NAMES])
)


@settings(max_examples=400)
@given(st.sampled_from(CONTENTS).flatmap(nearly), senders, st.sampled_from(HEADERS))
def test_an_event_that_is_nearly_right_is_taken_or_refused(content: object, sender: Sender, headers: Headers) -> None:
    raw = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for body in (raw, b"[" + raw + b"]"):
        refusal = refusal_of(body, sender, headers)
        assert refusal is None or refusal.status in {400, 415, 422}


@settings(max_examples=400)
@given(st.sampled_from(SAMPLES).flatmap(lambda sample: st.tuples(st.just(sample.sender), nearly(sample.content))))
def test_so_it_is_for_whom_it_is_of(sent: tuple[Sender, object]) -> None:
    sender, content = sent
    refusal = refusal_of(json.dumps(content).encode("utf-8", "surrogatepass"), sender)
    assert refusal is None or refusal.status in {400, 415, 422}
    if refusal is not None and refusal.status == 422:
        assert refusal.where.startswith(("#", "path"))


@given(anything, senders, st.sampled_from(HEADERS))
def test_so_is_any_json(content: object, sender: Sender, headers: Headers) -> None:
    raw = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    refusal = refusal_of(raw, sender, headers)
    assert refusal is None or refusal.status in {400, 415, 422}


@given(st.binary(max_size=200), senders, st.sampled_from(HEADERS))
def test_so_are_any_bytes(body: bytes, sender: Sender, headers: Headers) -> None:
    refusal = refusal_of(body, sender, headers)
    assert refusal is None or refusal.status in {400, 415, 422}
