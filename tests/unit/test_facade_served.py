"""What a facade serves of a metadata file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfn.errors import MalformedMetadata, Unsafe, WrongTable
from sfn.facade.tables import READ_ONLY_PROPERTIES, SnapshotMode, load_table_result
from sfn.reader.metadata import AllowedLocations
from sfn.sfnfile.document import Document
from tests.unit.directory import FIRST_ORDINAL, OTHER_UUID, UUID, WRITTEN_AT

KEY = "file:///w/t/metadata/1.metadata.json"
TRUST = AllowedLocations("file:///w/t", ("file:///w",))
WHOLE = {"format-version": 2, "table-uuid": UUID, "location": "file:/w/t"}


def doc(**more: Any) -> Document:  # noqa: ANN401 - any attribute
    plain: dict[str, Any] = {
        "catalog_id": "c",
        "namespace": ("sales",),
        "name": "orders",
        "guid": UUID,
        "metadata_file_path": "file:/w/t/metadata/1.metadata.json",
        "ordinal": FIRST_ORDINAL,
        "written_at": WRITTEN_AT,
    }
    return Document(**(plain | more))


def body(content: str | bytes, snapshots: SnapshotMode = SnapshotMode.ALL, **more: Any) -> bytes:  # noqa: ANN401 - as above
    return load_table_result(
        content.encode() if isinstance(content, str) else content, doc(**more), KEY, "said", TRUST, snapshots
    )


THEIRS = {
    "owner": "shop",
    "write.format.default": "orc",
    "write.location-provider.impl": "shop.Places",
    "write.target-file-size-bytes": "1048576",
}
"""Properties that some engines look at to read, so that they are the table's own."""


def test_the_table_is_served_as_it_is_but_for_the_guard() -> None:
    odd = '{"x":9007199254740993123456789,"y":1.10,"z":"\\u00e4","deep":' + "[" * 500 + "]" * 500 + "}"
    text = json.dumps(WHOLE | {"properties": {"gc.enabled": "true", **THEIRS}})[:-1] + f',"last":{odd}' + "}"
    answer = body(text)
    assert odd.encode() in answer
    found = json.loads(answer)
    assert found["metadata-location"] == doc().metadata_file_path
    assert found["config"] == {}
    assert found["metadata"]["properties"]["gc.enabled"] == "false"
    assert found["metadata"]["properties"]["write.data.path"].startswith("file:///dev/null/")
    assert found["metadata"]["properties"] == {**THEIRS, **READ_ONLY_PROPERTIES}
    assert "storage-credentials" not in found


def test_of_what_stands_there_twice_what_is_checked_is_served() -> None:
    text = json.dumps(WHOLE)[:-1]
    with pytest.raises(Unsafe):
        body(text + ',"location":"file:/etc"}')
    with pytest.raises(Unsafe):
        body(text + ',"loc\\u0061tion":"file:/etc"}')
    found = body('{"location":"file:/etc",' + text[1:] + ',"properties":{"gc.enabled":"true"},"properties":{"a":"b"}}')
    assert found.count(b'"location"') == 1
    assert found.count(b"/etc") == 0
    assert found.count(b"gc.enabled") == 1


@pytest.mark.parametrize(
    "location",
    [
        "file:/etc",
        "/w/tt/../../etc",
        "/wide",
        "s3://bucket/w/t",
        "http://127.0.0.1/w/t",
        "/w/t/%2e%2e/x",
        "/w/t%2Fx",
        "w/t",
        "",
        "file://host/w/t",
        "/w/t?x",
    ],
)
def test_a_location_elsewhere_is_refused(location: str) -> None:
    with pytest.raises(Unsafe, match="for the table"):
        body(json.dumps(WHOLE | {"location": location}))


@pytest.mark.parametrize("location", ["/w/t", "file:///w/t/", "file:/w", "/w/other place"])
def test_a_location_below_the_root_is_served(location: str) -> None:
    assert json.loads(body(json.dumps(WHOLE | {"location": location})))["metadata"]["location"] == location


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{",
        '{"format-version":2}',
        json.dumps(WHOLE | {"location": None}),
        json.dumps(WHOLE | {"location": 7}),
        json.dumps({key: value for key, value in WHOLE.items() if key != "format-version"}),
        json.dumps(WHOLE | {"properties": None}),
        json.dumps(WHOLE | {"properties": {"a": 1}}),
        json.dumps(WHOLE | {"table-uuid": 1}),
        b'{"format-version":2,"location":"\xff"}',
        json.dumps(WHOLE)[:-1] + ',"deep":' + "[" * 200_000 + "]" * 200_000 + "}",
        json.dumps(WHOLE) + "{}",
    ],
)
def test_what_is_no_metadata_is_refused(content: str | bytes) -> None:
    with pytest.raises(MalformedMetadata):
        body(content)


def test_another_table_s_is_refused() -> None:
    with pytest.raises(WrongTable):
        body(json.dumps(WHOLE | {"table-uuid": OTHER_UUID}))
    with pytest.raises(WrongTable):
        body(json.dumps(WHOLE), guid=None)
    nameless = {key: value for key, value in WHOLE.items() if key != "table-uuid"}
    assert body(json.dumps(nameless), guid=None)
    assert body(json.dumps(WHOLE | {"table-uuid": UUID.upper()}))


def test_of_snapshots_those_that_are_referred_to_are_served_if_no_more_are_wanted() -> None:
    several = [{"snapshot-id": number, "timestamp-ms": number} for number in (1, 2, 2**63 - 1)]
    refs = {"main": {"snapshot-id": 2**63 - 1, "type": "branch"}}
    whole = json.dumps(WHOLE | {"snapshots": several, "refs": refs, "current-snapshot-id": 2})
    shown = json.loads(body(whole, SnapshotMode.REFS))["metadata"]["snapshots"]
    assert [one["snapshot-id"] for one in shown] == [2, 2**63 - 1]
    assert json.loads(body(whole))["metadata"]["snapshots"] == several
    empty = json.dumps(WHOLE | {"current-snapshot-id": None, "snapshots": []})
    assert json.loads(body(empty, SnapshotMode.REFS))["metadata"]["snapshots"] == []
    assert "snapshots" not in json.loads(body(json.dumps(WHOLE), SnapshotMode.REFS))["metadata"]
    with pytest.raises(MalformedMetadata):
        body(json.dumps(WHOLE | {"snapshots": [{}]}), SnapshotMode.REFS)
