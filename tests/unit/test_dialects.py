"""What any request to the table of dialects meets, whatever the format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.formats import EVENT_FORMATS, MAX_EVENTS
from tests.dialects.drawing import anything
from tests.unit.telling import orders, refusal_of, refused, said


def test_an_array_is_all_or_nothing_and_each_hint_has_its_own_bytes() -> None:
    one, two = b'{"namespace":["a"], "name":"t"}', b'{"name":"u","namespace":"b"}'
    hints = said(b" [" + one + b" ,\n" + two + b"]")
    assert [(str(hint.subject), hint.body) for hint in hints] == [("prod:a.t", one), ("prod:b.u", two)]
    assert refused([orders(), orders(name="")]) == (422, "#/1/name")
    assert refused([orders(), {}]) == (415, "#/1")
    assert said([]) == ()


def test_an_array_is_bounded() -> None:
    assert len(said([orders()] * MAX_EVENTS)) == MAX_EVENTS
    assert refused([orders()] * (MAX_EVENTS + 1)) == (422, "#")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b"nonsense", b"\xff", b'{"name": "\xff"}', b'{"a": "\\ud800"}', b"{} {}", b"\xef\xbb\xbf{}"),
        *(b"NaN", b'[{"namespace": "\\udc00"}]', b'{"a": 1e999}'),
    ],
)
def test_what_is_no_json_is_400(body: bytes) -> None:
    assert refused(body)[0] == 400


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'{"namespace":[', b"[" * 7 + b'{"":'])
def test_endless_nesting_is_400(opening: bytes) -> None:
    assert refused(opening * (1_048_576 // len(opening)))[0] == 400


def test_deep_nesting_that_ends_is_refused_too() -> None:
    depth = 500_000
    assert refused(b'{"namespace":["a"],"name":"t","more":' + b"[" * depth + b"]" * depth + b"}")[0] == 400
    assert refused(b"[" * depth + b"]" * depth)[0] == 400


@pytest.mark.parametrize("body", [1, None, "x", {}, {"name": "t"}, {"namespace": "a"}, {"type": "x"}])
def test_what_is_no_known_format_is_415(body: object) -> None:
    assert refused(body) == (415, "#")


def test_each_dialect_has_a_name_of_its_own() -> None:
    assert len({dialect.name for dialect in EVENT_FORMATS}) == len(EVENT_FORMATS)


@given(anything)
def test_any_json_is_taken_or_refused(content: object) -> None:
    raw = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for body in (raw, b"[" + raw + b"]"):
        refusal = refusal_of(body)
        assert refusal is None or refusal.status in {400, 415, 422}


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(body: bytes) -> None:
    refusal = refusal_of(body)
    assert refusal is None or refusal.status in {400, 415, 422}
