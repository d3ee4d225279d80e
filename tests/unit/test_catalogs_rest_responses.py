"""Bodies of the REST API, read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.catalogs.metadata import LAST_MILLISECOND, UnreadableDocument
from sfn.catalogs.rest import responses
from sfn.catalogs.rest.responses import CatalogConfig, ListingPage
from sfn.domain.identifiers import Table
from tests.support.rest_catalog import table

Read = Callable[[bytes], object]

STRICT: list[Read] = [
    responses.read_table,
    responses.read_config,
    responses.read_tables,
    responses.read_namespaces,
    responses.read_token,
]
LENIENT: list[Read] = [responses.read_error, responses.read_token_error]

KEYS = st.sampled_from(
    [
        "metadata",
        "metadata-location",
        "format-version",
        "location",
        "table-uuid",
        "last-updated-ms",
        "metadata-log",
        "metadata-file",
        "refs",
        "main",
        "snapshot-id",
        "current-snapshot-id",
        "properties",
        "encryption.key-id",
        "sfn.enabled",
        "write.metadata.delete-after-commit.enabled",
        "write.metadata.previous-versions-max",
        "defaults",
        "overrides",
        "prefix",
        "uri",
        "error",
        "type",
        "code",
        "message",
        "identifiers",
        "namespaces",
        "namespace",
        "name",
        "next-page-token",
        "nextPageToken",
        "endpoints",
        "access_token",
        "expires_in",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=8),
    max_leaves=20,
)


@given(st.binary() | JSON.map(msgspec.json.encode))
def test_no_body_raises_anything_but_unintelligible(body: bytes) -> None:
    for read in STRICT:
        try:
            read(body)
        except UnreadableDocument as error:
            assert str(error)  # noqa: PT017 - it need not be raised
    for read in LENIENT:
        read(body)


@given(st.data())
def test_a_table_with_any_one_field_changed_is_read_or_unintelligible(data: st.DataObject) -> None:
    body = table(properties={}, refs={"main": {"snapshot-id": 1}}, metadata_log=[{"metadata-file": "x"}])
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    target = data.draw(st.sampled_from([body, metadata]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(st.sampled_from(["", None, 0, -1, [], {}]) | JSON)
    try:
        found = responses.read_table(msgspec.json.encode(body))
    except UnreadableDocument:
        return
    assert found is None or (found.location and found.metadata_location and found.uuid)


@given(st.lists(st.text()))
def test_the_log_keeps_its_order(files: list[str]) -> None:
    body = table(metadata_log=[{"metadata-file": file, "timestamp-ms": 1} for file in files])
    assert read(body).metadata_log == tuple(files)


def read(body: object) -> Table:
    found = responses.read_table(msgspec.json.encode(body))
    assert found is not None
    return found


def test_a_table_is_read_whole() -> None:
    body = table(
        "file:/t/metadata/2.json",
        location="file:///t/",
        metadata_log=[{"metadata-file": "file:/t/metadata/1.json", "timestamp-ms": 1}],
        refs={
            "main": {"snapshot-id": 7, "type": "branch"},
            "q1": {"snapshot-id": 9, "type": "tag"},
            "release-2": {"snapshot-id": 8, "type": "branch", "max-ref-age-ms": 1},
            "audit": {"snapshot-id": 9, "type": "branch"},
        },
        current_snapshot_id=7,
        snapshots=[{"snapshot-id": 7}],
    )
    assert read(body) == Table(
        uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        location="file:///t",
        metadata_location="file:/t/metadata/2.json",
        metadata_log=("file:/t/metadata/1.json",),
        last_updated_ms=1_700_000_000_000,
        snapshot_id=7,
        log_times=(1,),
        branches=(("audit", 9), ("release-2", 8)),
    )


@pytest.mark.parametrize(
    ("refs", "current", "head"),
    [
        ({"main": {"snapshot-id": 7}}, 7, 7),
        ({"main": {"snapshot-id": 7}}, 8, None),
        ({"main": {"snapshot-id": 7}}, None, None),
        ({"main": {"snapshot-id": 7}}, -1, None),
        ({"audit": {"snapshot-id": 7}}, -1, None),
        ({"audit": {"snapshot-id": 7}}, 8, 8),
        ({}, None, None),
        (None, -1, None),
        (None, 8, 8),
        (None, 0, 0),
        ({"main": {"snapshot-id": -1}}, None, None),
    ],
)
def test_the_head_is_that_of_main_and_none_where_main_is_not_current(
    refs: object, current: int | None, head: int | None
) -> None:
    assert read(table(refs=refs, current_snapshot_id=current)).snapshot_id == head


@pytest.mark.parametrize("updated", [-1, -(10**15), 1_700_000_000_000_000, 2**62])
def test_a_time_that_can_be_none_keeps_nobody_from_the_table(updated: int) -> None:
    log = [{"metadata-file": "s3://b/t/1.json", "timestamp-ms": at} for at in (updated, None, "x", 1.5)]
    found = read(table(last_updated_ms=updated, metadata_log=log))
    assert found.last_updated_ms == 0
    assert len(found.log_times) == len(found.metadata_log) == 4
    assert all(0 <= at <= LAST_MILLISECOND for at in found.log_times)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, None),
        (None, None),
        ({"encryption.key-id": "kms/1"}, "encrypted: "),
        ({"encryption.key-id": ""}, None),
        ({"sfn.enabled": "false"}, "switched off: "),
        ({"sfn.enabled": " FALSE"}, "switched off: "),
        ({"sfn.enabled": False}, "switched off: "),
        ({"sfn.enabled": "true", "owner": "me"}, None),
    ],
    ids=str,
)
def test_properties_say_what_is_left_alone(properties: object, reason: str | None) -> None:
    left_alone = read(table(properties=properties)).skip_reason
    assert left_alone is None if reason is None else (left_alone or "").startswith(reason)
    assert "kms/1" not in str(left_alone)


@pytest.mark.parametrize(
    ("deletes", "most", "kept"),
    [
        ("true", "20", 20),
        ("TRUE", 20, 20),
        (True, None, 100),
        ("true", "0", 1),
        ("true", "-3", 1),
        ("true", "9" * 5000, 100),
        ("true", "many", 100),
        ("true", {"of": ["any", "kind"]}, 100),
        ("true", 2.5, 100),
        ("false", "20", None),
        ("yes", "20", None),
        (None, "20", None),
        ([], "20", None),
        (1, "20", None),
    ],
)
def test_properties_say_how_many_metadata_files_stay(deletes: object, most: object, kept: int | None) -> None:
    properties = {"write.metadata.delete-after-commit.enabled": deletes, "write.metadata.previous-versions-max": most}
    assert read(table(properties=properties)).previous_versions_max == kept
    assert read(table(properties=None)).previous_versions_max is None


def test_only_a_table_of_version_1_may_lack_a_uuid() -> None:
    assert read(table(format_version=1, table_uuid=None)).uuid is None
    for version in (2, 3):
        with pytest.raises(UnreadableDocument):
            read(table(format_version=version, table_uuid=None))


@pytest.mark.parametrize("pointer", [None, ""])
def test_a_table_without_a_metadata_file_is_none(pointer: str | None) -> None:
    assert responses.read_table(msgspec.json.encode(table(pointer))) is None


@pytest.mark.parametrize(
    "metadata",
    [{"location": ""}, {"location": None}, {"last_updated_ms": None}, {"last_updated_ms": "1"}, {"table_uuid": ""}],
    ids=str,
)
def test_impossible_metadata_is_unintelligible(metadata: dict[str, object]) -> None:
    with pytest.raises(UnreadableDocument):
        read(table("file:/t/1.json", **metadata))


def test_overrides_win_over_defaults_and_empty_settings_count_for_nothing() -> None:
    body = {
        "defaults": {"prefix": "d", "uri": "https://d", "header.a": "1", "namespace-separator": None},
        "overrides": {"prefix": "o", "uri": "", "header.b": "2", "s3.signer.uri": "https://s"},
    }
    assert responses.read_config(msgspec.json.encode(body)) == CatalogConfig(
        prefix="o",
        uri="https://d",
        separator=None,
        defaults={"a": "1"},
        overrides={"b": "2"},
        settings={"prefix": "o", "uri": "https://d", "header.a": "1", "header.b": "2", "s3.signer.uri": "https://s"},
    )


@pytest.mark.parametrize(
    ("endpoints", "vends"),
    [
        (None, None),
        ("GET /v1/config", None),
        ([], False),
        (["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", 1], False),
        (["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"], True),
    ],
)
def test_a_list_of_endpoints_tells_whether_credentials_have_their_own(endpoints: object, vends: bool | None) -> None:
    body = {"defaults": {}, "overrides": {}, "endpoints": endpoints}
    assert responses.read_config(msgspec.json.encode(body)).has_credentials_endpoint is vends


def test_a_token_of_the_next_page_may_be_spelled_as_s3_tables_does() -> None:
    body = msgspec.json.encode({"identifiers": [{"namespace": ["a"], "name": "t"}], "nextPageToken": "x"})
    assert responses.read_tables(body) == ListingPage(((("a",), "t"),), "x")
    page = responses.read_namespaces(msgspec.json.encode({"namespaces": [["a"]], "nextPageToken": "x"}))
    assert page == ListingPage((("a",),), "x")


def test_pages_end_without_a_token() -> None:
    def page(token: str | None) -> bytes:
        return msgspec.json.encode({"namespaces": [["a", "b"]], "next-page-token": token})

    assert responses.read_namespaces(page("x")) == ListingPage((("a", "b"),), "x")
    assert responses.read_namespaces(page("")) == ListingPage((("a", "b"),), None)
    assert responses.read_namespaces(page(None)) == ListingPage((("a", "b"),), None)


def test_no_error_quotes_the_body() -> None:
    with pytest.raises(UnreadableDocument) as caught:
        responses.read_table(b'{"metadata": "s3cret", "metadata-location": 5}')
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, CatalogConfig()),
        ({"defaults": None, "overrides": None}, CatalogConfig()),
        ({"endpoints": [None, 7, "GET /v1/x"]}, CatalogConfig(has_credentials_endpoint=False)),
        (
            {"defaults": {"rest-page-size": 200, "s3.path-style-access": True, "x": None, "y": [1], "z": 0.5}},
            CatalogConfig(),
        ),
        ({"overrides": {"prefix": 7}}, CatalogConfig(prefix="7")),
        ({"overrides": {"prefix": None, "uri": ""}}, CatalogConfig()),
        ({"defaults": {"prefix": "a"}, "overrides": {"prefix": ""}}, CatalogConfig(prefix="a")),
        ({"defaults": {"header.X-N": 1}}, CatalogConfig(defaults={"X-N": "1"})),
    ],
)
def test_a_configuration_with_values_that_are_no_texts_is_read(body: object, found: CatalogConfig) -> None:
    assert replace(responses.read_config(msgspec.json.encode(body)), settings={}) == found


@pytest.mark.parametrize(
    "body",
    [
        {"hello": "world"},
        {"error": {"message": "no", "type": "x", "code": 500}},
        {"defaults": []},
        {"overrides": {"prefix": ["a"]}},
        {"overrides": {"uri": False}},
        {"defaults": {"namespace-separator": 0.5}},
        {"defaults": {"header.X": {}}},
        None,
    ],
)
def test_a_configuration_without_what_is_needed_of_it_is_none(body: object) -> None:
    with pytest.raises(UnreadableDocument):
        responses.read_config(msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("said", "lasts"),
    [
        (60, 60.0),
        ("70", 70.0),
        (None, None),
        (0, None),
        (-1, None),
        (0.001, None),
        ("soon", None),
        (True, None),
        ("inf", None),
    ],
)
def test_a_lifetime_that_is_none_is_not_known(said: object, lasts: float | None) -> None:
    assert responses.read_token(msgspec.json.encode({"access_token": "t", "expires_in": said})).lifetime == lasts


@pytest.mark.parametrize(
    ("identifiers", "found", "odd"),
    [
        ([], 0, 0),
        (None, 0, 0),
        ([{"namespace": ["a"], "name": "t", "id": 1}], 1, 0),
        ([None, {"namespace": ["a"], "name": "t"}, "t", {"name": "u"}, {"namespace": None, "name": "u"}], 1, 4),
    ],
)
def test_entries_of_another_shape_are_left_out_and_counted(identifiers: object, found: int, odd: int) -> None:
    page = responses.read_tables(msgspec.json.encode({"identifiers": identifiers, "more": 1}))
    assert (len(page.items), page.malformed, page.next_token) == (found, odd, None)


@pytest.mark.parametrize(
    ("namespaces", "found", "odd"), [(None, 0, 0), ([["a"], None, [], "b", ["c", 1]], 1, 4), ([["a"], ["a"]], 2, 0)]
)
def test_namespaces_of_another_shape_are_left_out_and_counted(namespaces: object, found: int, odd: int) -> None:
    page = responses.read_namespaces(msgspec.json.encode({"namespaces": namespaces, "next-page-token": "x"}))
    assert (len(page.items), page.malformed, page.next_token) == (found, odd, "x")
