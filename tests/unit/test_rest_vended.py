"""Storage credentials in bodies of the REST API, read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.catalogs.metadata import UnreadableDocument
from sfn.catalogs.rest.credentials import extract_credentials, read_credentials, secrets_in
from sfn.domain.catalog_answer import VendedCredential
from tests.unit.rest_server import table

KEYS = {"s3.access-key-id": "ASIA1", "s3.secret-access-key": "s3cret-of-theirs", "s3.session-token": "t0ken-of-theirs"}
END = {"s3.session-token-expires-at-ms": "1900000000000"}
AT = datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC)

NAMES = st.sampled_from(
    [
        "storage-credentials",
        "config",
        "prefix",
        "metadata",
        *KEYS,
        *END,
        "adls.sas-token",
        "adls.sas-token.account",
        "adls.sas-token-expires-at-ms.account",
        "gcs.oauth2.token",
        "gcs.oauth2.token-expires-at",
        "expiration-time",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(), inner, max_size=8),
    max_leaves=20,
)
CONFIGS = st.dictionaries(NAMES | st.text(), JSON, max_size=6)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "config": CONFIGS | JSON,
        "storage-credentials": st.lists(st.fixed_dictionaries({"prefix": st.text(), "config": CONFIGS}), max_size=3),
    },
)


def read(**body: object) -> tuple[VendedCredential, ...]:
    return read_credentials(msgspec.json.encode({key.replace("_", "-"): value for key, value in body.items()}))


def credential(prefix: str, **more: object) -> dict[str, object]:
    return {"prefix": prefix, "config": {**KEYS, **more}}


@given(st.binary() | (ANSWERS | JSON).map(msgspec.json.encode))
def test_no_body_raises_anything_but_unintelligible_and_each_grant_opens_something(body: bytes) -> None:
    try:
        grants = read_credentials(body)
    except UnreadableDocument as error:
        assert str(error)  # noqa: PT017 - it need not be raised
        return
    for grant in grants:
        assert secrets_in((grant,))
        assert all(isinstance(value, str) for value in grant.config.values())
        assert grant.expires_at is None or grant.expires_at.tzinfo is UTC


def test_storage_credentials_come_before_the_configuration() -> None:
    found = read(storage_credentials=[credential("s3a://lake/t/", **END)], config={"gcs.oauth2.token": "x"})
    assert found == (VendedCredential("s3://lake/t", {**KEYS, **END}, AT),)


def test_without_them_the_storage_keys_of_the_configuration_are_for_wherever_the_table_lies() -> None:
    others = {"token": "for the catalog", "scan-planning-mode": "client", "io-impl": "x"}
    ours = {**KEYS, **END, "client.region": "eu-central-1", "s3.path-style-access": True}
    kept = {**KEYS, **END, "client.region": "eu-central-1"}
    assert read(**table(), config={**others, **ours}) == (VendedCredential("", kept, AT),)


@pytest.mark.parametrize("value", [None, [], {}, "s3cret"])
def test_what_opens_nothing_is_no_grant(value: object) -> None:
    # Lakekeeper once sent entries that only say where the store is.
    entry = {"prefix": "s3://lake/t", "config": {"s3.region": "eu-central-1", "s3.access-key-id": ""}}
    assert read(storage_credentials=[entry], config={"client.region": "eu-central-1", "other": value}) == ()
    assert read(storage_credentials=[entry, credential("s3://lake/u")]) == (VendedCredential("s3://lake/u", KEYS),)
    assert read() == ()


@pytest.mark.parametrize(
    ("said", "prefix"),
    [
        ("s3://lake/t", "s3://lake/t"),
        ("s3n://lake/", "s3://lake"),
        ("s3", "s3://"),
        ("gs", "gs://"),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("", ""),
    ],
)
def test_a_prefix_has_one_spelling(said: str, prefix: str) -> None:
    (grant,) = read(storage_credentials=[credential(said)])
    assert grant.prefix == prefix


@pytest.mark.parametrize(
    ("config", "end"),
    [
        ({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1900000000000"}, AT),
        ({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": 1_900_000_000_000}, AT),
        ({"adls.sas-token.a.dfs.core.windows.net": "sig=x", "adls.sas-token-expires-at-ms.a": "1900000000000"}, AT),
        ({"adls.sas-token": "sig=x", "adls.sas-token-expires-at-ms": "1900000000000"}, AT),
        ({**KEYS, "expiration-time": "1900000000000"}, AT),
        ({**KEYS, "expiration-time": "1999999999999", **END}, AT),
        (KEYS, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "0"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "-1"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "soon"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "999999999999999"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "9" * 5000}, None),
    ],
    ids=str,
)
def test_a_grant_ends_when_the_first_of_its_parts_does(config: dict[str, object], end: datetime | None) -> None:
    (grant,) = read(storage_credentials=[{"prefix": "x://y", "config": config}])
    assert grant.expires_at == end


def test_no_value_shows_in_a_repr_or_an_error() -> None:
    grants = read(storage_credentials=[credential("s3://lake/t")])
    for secret in KEYS.values():
        assert secret not in repr(grants)
        assert secret not in str(grants)
    for body in ({"storage-credentials": [{"prefix": 1, "config": KEYS}]}, {"config": [KEYS]}):
        with pytest.raises(UnreadableDocument) as caught:
            read(**body)
        assert not any(secret in str(caught.value) for secret in KEYS.values())


@given(ANSWERS)
async def test_what_is_cut_out_of_a_large_body_says_the_same(answer: dict[str, object]) -> None:
    body = msgspec.json.encode({**table(properties={"config": "{[\"'}"}), **answer})

    async def parts() -> AsyncIterator[bytes]:
        for start in range(10, len(body), 7):
            yield body[start : start + 7]

    cut = await extract_credentials(body[:10], parts())
    assert msgspec.json.decode(cut, type=dict).keys() <= {"config", "storage-credentials"}
    try:
        whole = read_credentials(body)
    except UnreadableDocument:
        with pytest.raises(UnreadableDocument):
            read_credentials(cut)
    else:
        assert read_credentials(cut) == whole
