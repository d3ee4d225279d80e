"""Signatures of requests."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.event import EventRequest, Sender
from sfn.http.signature import (
    MAX_ID,
    MAX_SIGNATURES,
    TOLERANCE,
    HmacSha256,
    SigningKey,
    sign,
    signed_parts,
    verify_signature,
    with_message_id,
)
from tests.unit.webhooks import AT, BODY, GITHUB, KEY, MESSAGE, SIGNATURE, STANDARD, claim_of, head, signer

SENDER = Sender("hook", {"theirs": "prod", "other": "dev"})
HEADERS = [
    (b"host", b"sfn"),
    (b"content-type", b"application/json"),
    (b"ce-subject", b"sales.orders"),
    (b"x-polaris-event", b"x"),
]
NOTIFICATION = "/v1/theirs/namespaces/sales/tables/orders/notifications"


def arrived(path: str = "/v1/events") -> EventRequest:
    return EventRequest(path, HEADERS, b"{}", SENDER)


@pytest.mark.parametrize("told", [set(), {"another"}])
@pytest.mark.parametrize("path", ["/v1/events", NOTIFICATION])
def test_unsigned_parts_are_used_for_a_catalog_that_can_be_queried(told: set[str], path: str) -> None:
    assert signed_parts(arrived(path), told) == arrived(path)


@pytest.mark.parametrize("told", [{"prod"}, {"dev", "another"}])
def test_unsigned_parts_are_removed_for_an_event_only_catalog(told: set[str]) -> None:
    assert signed_parts(arrived(), told) == msgspec.structs.replace(
        arrived(), headers=[(b"content-type", b"application/json")]
    )


def test_unsigned_path_is_rejected_for_an_event_only_catalog() -> None:
    with pytest.raises(Rejected) as caught:
        signed_parts(arrived(NOTIFICATION), {"prod", "dev"})
    assert caught.value.status == 400
    assert caught.value.found == "a signature, which does not cover the path"
    assert "because the catalogs dev, prod are event-only" in caught.value.expected


def test_event_without_id_gets_one_from_its_message() -> None:
    table = TableIdentifier("prod", ("sales",), "orders")
    hints = [Notification(table), Notification(table, event_id="own"), Notification(table, drop=True)]
    assert with_message_id(hints, "msg") == [
        Notification(table, event_id="msg\x1f0"),
        hints[1],
        Notification(table, "", "msg\x1f2", drop=True),
    ]
    assert with_message_id(hints, None) == hints


T = TypeVar("T")
OTHER = SigningKey("other", b"another secret, of 24 bytes")
WRONG = b"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
ASYMMETRIC = b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
THE_VECTOR = {
    b"webhook-id": MESSAGE.encode(),
    b"webhook-timestamp": b"1614265330",
    b"webhook-signature": SIGNATURE.encode(),
}


def test_the_published_vector_is_signed_as_published() -> None:
    assert head() == THE_VECTOR


def test_the_published_vector_is_verified() -> None:
    assert signer(THE_VECTOR) == "main"
    claim = claim_of(THE_VECTOR)
    assert claim is not None
    assert claim.message_id == MESSAGE


@pytest.mark.parametrize("missing", THE_VECTOR)
def test_missing_header_is_rejected(missing: bytes) -> None:
    rest = {name: value for name, value in THE_VECTOR.items() if name != missing}
    assert claim_of(rest) is None
    assert claim_of({**rest, missing: b""}) is None


@pytest.mark.parametrize("doubled", THE_VECTOR)
@pytest.mark.parametrize("second", [b"another", None])
def test_repeated_header_is_rejected(doubled: bytes, second: bytes | None) -> None:
    again = (doubled, THE_VECTOR[doubled] if second is None else second)
    assert claim_of([*THE_VECTOR.items(), again]) is None
    assert claim_of([again, *THE_VECTOR.items()]) is None


@pytest.mark.parametrize(
    "signatures",
    [
        *(b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA=", b"v1,dawfeoifkpqwoekfpqoekf", b"v1,", b"v1", b","),
        *(SIGNATURE[:8].encode(), SIGNATURE[3:].encode(), SIGNATURE.replace("v1", "v2").encode(), WRONG, ASYMMETRIC),
        *(SIGNATURE.replace("v1", "V1").encode(), SIGNATURE.rstrip("=").encode(), SIGNATURE.encode() + b"="),
        *(SIGNATURE.replace("OE=", "OF=").encode(), SIGNATURE.replace("/", "_").replace("+", "-").encode()),
        *(SIGNATURE.replace(",", " ").encode(), SIGNATURE.encode() + b"," + SIGNATURE.encode(), b"v1,\xff"),
    ],
)
def test_wrong_signature_is_rejected(signatures: bytes) -> None:
    assert signer({**THE_VECTOR, b"webhook-signature": signatures}) is None


@pytest.mark.parametrize("before", [[], [WRONG], [b"v2," + WRONG[3:], WRONG], [ASYMMETRIC, b"nonsense", b""]])
@pytest.mark.parametrize("after", [[], [WRONG], [ASYMMETRIC, WRONG]])
def test_one_of_several_signatures_is_enough(before: list[bytes], after: list[bytes]) -> None:
    listed = b" ".join([*before, SIGNATURE.encode(), *after])
    assert signer({**THE_VECTOR, b"webhook-signature": listed}) == "main"


def test_too_many_signatures_are_rejected() -> None:
    most = b" ".join([WRONG] * (MAX_SIGNATURES - 1) + [SIGNATURE.encode()])
    assert signer({**THE_VECTOR, b"webhook-signature": most}) == "main"
    assert claim_of({**THE_VECTOR, b"webhook-signature": most + b" " + ASYMMETRIC}) is None


def test_matching_key_is_returned_by_name() -> None:
    new = SigningKey("new", OTHER.secret)
    for key in (KEY, new):
        assert signer(head(key=key), BODY, KEY, new) == key.name
    assert signer(THE_VECTOR, BODY, OTHER) is None
    assert signer(THE_VECTOR, BODY, SigningKey("none", b"")) is None


@pytest.mark.parametrize("off", [-TOLERANCE, -1, 0, 1, TOLERANCE])
def test_timestamp_may_be_five_minutes_off(off: int) -> None:
    assert signer(head(at=AT + timedelta(seconds=off))) == "main"


@pytest.mark.parametrize("off", [-TOLERANCE - 1, TOLERANCE + 1, -86_400, 86_400])
def test_old_or_future_timestamp_is_rejected_without_the_body(off: int) -> None:
    assert claim_of(head(at=AT + timedelta(seconds=off))) is None


@pytest.mark.parametrize(
    "timestamp",
    [
        *(b"hello", b"-1614265330", b"+1614265330", b"1614265330.0", b"1_614_265_330", b"0x6037C0F2", b"1.6e9"),
        *(b"1614265330000", b"9" * 5_000, "\u0661\u0666\u0661\u0664\u0662\u0666\u0665\u0663\u0663\u0660".encode()),
        *(b"1614265330 1614265330", b"nan", b"inf"),
    ],
)
def test_timestamp_must_be_whole_seconds(timestamp: bytes) -> None:
    assert claim_of({**THE_VECTOR, b"webhook-timestamp": timestamp}) is None


def test_leading_zeros_of_a_timestamp_are_signed() -> None:
    assert signer({**THE_VECTOR, b"webhook-timestamp": b"01614265330"}) is None


@pytest.mark.parametrize("message", [b"a.b", b"a b", b"a\tb", b"\x7f", "ä".encode(), b"\xff", b"x" * (MAX_ID + 1)])
def test_message_id_has_visible_ascii_without_full_stop(message: bytes) -> None:
    assert claim_of({**THE_VECTOR, b"webhook-id": message}) is None


def test_signed_text_is_unambiguous() -> None:
    """What is signed is the same: `a.1614265330.1614265331.{}`."""
    parted = SigningKey("main", b"a secret of twenty-four b")
    body = b"1614265331.{}"
    told = head(key=parted, body=body) | {b"webhook-id": b"a"}
    told |= {name.encode(): value.encode() for name, value in sign(STANDARD, parted.secret, body, "a", AT).items()}
    assert signer(told, body, parted) == "main"
    shifted = {**told, b"webhook-id": b"a.1614265330", b"webhook-timestamp": b"1614265331"}
    assert claim_of(shifted) is None


def test_spaces_around_a_value_are_ignored() -> None:
    assert signer({name: b" \t" + value + b" " for name, value in THE_VECTOR.items()}) == "main"


def test_github_signature_covers_the_body_only() -> None:
    """The example of GitHub's documentation."""
    key = SigningKey("main", b"It's a Secret to Everybody")
    digest = b"757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    told = {b"x-hub-signature-256": b"sha256=" + digest}
    assert head(GITHUB, key, b"Hello, World!") == told
    assert signer(told, b"Hello, World!", key, manner=GITHUB) == "main"
    for value in (b"SHA256=" + digest, b"sha256=" + digest.upper(), b" sha256=" + digest + b" "):
        assert signer({b"x-hub-signature-256": value}, b"Hello, World!", key, manner=GITHUB) == "main"
    claim = claim_of(told, GITHUB)
    assert claim is not None
    assert claim.message_id is None


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"sha256=", b"sha1=" + b"0" * 40, b"sha512=" + b"0" * 64, b"0" * 64, b"sha256=" + b"0" * 63),
        *(b"sha256=" + b"0" * 65, b"sha256=" + b"g" * 64, b"sha256= " + b"0" * 63, b"sha256=" + b"00 " * 32),
        *(b"sha256=" + b"0" * 64 + b" sha256=" + b"0" * 64, b"sha256=" + b"\xff" * 64),
        b"sha256=" + "\u0661".encode() * 64,
    ],
)
def test_malformed_github_signature_is_rejected(value: bytes) -> None:
    assert claim_of({b"x-hub-signature-256": value}, GITHUB) is None


def test_repeated_github_signature_is_rejected() -> None:
    told = [*head(GITHUB).items()]
    assert claim_of(told + told, GITHUB) is None
    assert claim_of([*told, (b"x-hub-signature-256", b"x")], GITHUB) is None


def test_configured_header_is_used() -> None:
    polaris = HmacSha256(b"x-polaris-signature-256")
    assert signer(head(polaris), manner=polaris) == "main"
    assert signer(head(GITHUB), manner=polaris) is None
    assert signer(head(polaris), manner=GITHUB) is None


@given(
    body=st.binary(max_size=60), message=st.from_regex(r"[a-zA-Z0-9_]{1,30}", fullmatch=True), off=st.integers(-9, 9)
)
def test_every_signed_body_is_verified(body: bytes, message: str, off: int) -> None:
    told = sign(STANDARD, KEY.secret, body, message, AT + timedelta(seconds=off))
    assert signer([(name.encode(), value.encode()) for name, value in told.items()], body) == "main"


@given(data=st.data(), part=st.sampled_from(["body", *THE_VECTOR]))
def test_changed_byte_is_rejected(data: st.DataObject, part: str | bytes) -> None:
    before = BODY if isinstance(part, str) else THE_VECTOR[part]
    where, byte = data.draw(st.integers(0, len(before) - 1)), data.draw(st.integers(0, 255))
    after = before[:where] + bytes([byte]) + before[where + 1 :]
    assume(after != before)
    if isinstance(part, str):
        assert signer(THE_VECTOR, after) is None
    else:
        assert signer({**THE_VECTOR, part: after}) is None


@given(data=st.data(), part=st.sampled_from(["body", "signature"]))
def test_changed_byte_is_rejected_for_github_signatures(data: st.DataObject, part: str) -> None:
    ((name, said),) = head(GITHUB).items()
    before = BODY if part == "body" else said
    where, byte = data.draw(st.integers(0, len(before) - 1)), data.draw(st.integers(0, 255))
    after = before[:where] + bytes([byte]) + before[where + 1 :]
    if part == "body":
        assume(after != before)
        assert signer({name: said}, after, manner=GITHUB) is None
    else:
        assume(after.lower() != before)
        assert signer({name: after}, manner=GITHUB) is None


@given(st.lists(st.tuples(st.sampled_from([*THE_VECTOR, b"x"]), st.binary(max_size=90)), max_size=6))
def test_arbitrary_headers_raise_no_error(headers: list[tuple[bytes, bytes]]) -> None:
    for manner in (STANDARD, GITHUB):
        assert signer(headers, manner=manner) is None


class Drawn(tuple[T, ...]):  # noqa: SLOT001 - it counts
    """What counts how often one of it is asked for."""

    drawn = 0

    @override
    def __iter__(self) -> Iterator[T]:
        for one in super().__iter__():
            self.drawn += 1
            yield one


def test_all_signatures_and_keys_are_compared_after_a_match() -> None:
    keys = Drawn([KEY, OTHER, SigningKey("again", KEY.secret)])
    claim = claim_of({**THE_VECTOR, b"webhook-signature": b" ".join([SIGNATURE.encode(), WRONG, WRONG])})
    assert claim is not None
    digests = Drawn(claim.digests)
    assert verify_signature(replace(claim, digests=digests), BODY, keys) == "main"
    assert (keys.drawn, digests.drawn) == (3, 9)


def test_repr_contains_no_secret() -> None:
    assert "MfKQ" not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)


def test_the_digest_is_that_of_rfc_2104() -> None:
    """Beside our own signing side: a wrong one would agree with a verifying side that is wrong alike."""
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in KEY.secret.ljust(64, b"\0")))
    inner.update(f"{MESSAGE}.1614265330.".encode() + BODY)
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in KEY.secret.ljust(64, b"\0")) + inner.digest())
    assert f"v1,{b64encode(outer.digest()).decode()}" == SIGNATURE
