"""Nessie's events, through `decode` as a request meets them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.decode import DecodedRequest
from sfn.formats.event import MAX_LEVELS, MAX_LOCATION, Sender
from tests.dialects.requests import decoded, golden, hints, levels, names, outcome, refused
from tests.dialects.samples import ICEBERG_TABLE, KEY, nessie

ID = "58bdb0a2-20c0-4a6f-b6fe-abd4ebce2e96"
TABLE = TableIdentifier("git", ("a", "b"), "orders")
STORED = nessie("CONTENT_STORED", contentKey=KEY, content=ICEBERG_TABLE)
REMOVED = nessie("CONTENT_REMOVED", contentKey=KEY)


def on(name: object, kind: object = "BRANCH") -> dict[str, object]:
    return {"reference": {"type": kind, "name": name, "hash": "cafebabe"}}


def test_what_was_stored_is_a_hint_with_its_location() -> None:
    body = golden("nessie-content-stored")
    hint = Notification(TableIdentifier("git", ("ns",), "table1"), "nessie", ID, "metadataLocation", body=body)
    assert decoded(body, Sender("nessie", {"branch1": "git"})) == DecodedRequest((hint,), 0, "nessie")


def test_what_was_removed_is_a_drop() -> None:
    body = json.dumps(REMOVED).encode()
    assert hints(body) == (Notification(TABLE, "catalogs", ID, drop=True, body=body),)


def test_what_was_removed_outside_every_namespace_was_one_itself() -> None:
    assert outcome(nessie("CONTENT_REMOVED", contentKey={"elements": ["a"]})) == ("nessie", 0, 1, 0)
    wrong = {"elements": [7, 8]}
    assert refused(nessie("CONTENT_REMOVED", contentKey=wrong)) == (422, "#/contentKey/elements/1")


def test_a_rename_is_a_removal_and_a_new_content_in_either_order() -> None:
    elsewhere = nessie("CONTENT_STORED", contentKey={"elements": ["a", "archive"]}, content=ICEBERG_TABLE)
    for events in ([REMOVED, elsewhere], [elsewhere, REMOVED]):
        said = {hint.subject: (hint.drop, hint.min_metadata_location) for hint in hints(events)}
        moved = TableIdentifier("git", ("a",), "archive")
        assert said == {TABLE: (True, None), moved: (False, ICEBERG_TABLE["metadataLocation"])}


def test_the_branch_says_which_catalog_is_meant() -> None:
    sender = Sender("nessie", {"main": "prod", "staging": "dev"})
    said = decoded([STORED | on(name) for name in ("main", "staging", "feature")], sender)
    assert [hint.subject.catalog for hint in said.notifications] == ["prod", "dev"]
    assert (said.ignored, said.unmapped_events, said.unmapped_catalogs) == (0, 1, ("feature",))


@pytest.mark.parametrize("kind", ["TAG", "DETACHED", None, 7])
@pytest.mark.parametrize("event", [STORED, REMOVED], ids=["stored", "removed"])
def test_what_is_no_branch_is_of_no_concern(event: dict[str, object], kind: object) -> None:
    assert outcome(event | on("main", kind)) == ("nessie", 0, 1, 0)


def test_a_branch_that_was_moved_is_a_sweep() -> None:
    body = json.dumps(nessie("REFERENCE_UPDATED")).encode()
    assert hints(body) == (Notification(CatalogName("git"), "catalogs", ID, body=body),)
    assert outcome(nessie("REFERENCE_UPDATED") | on("feature")) == ("nessie", 0, 0, 1)


def test_properties_that_operators_add_are_passed_over() -> None:
    assert hints(STORED | {"namespace": ["x"], "name": "y", "key1": {"deep": [[1]]}})[0].subject == TABLE


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (STORED | {"content": None}, "content"),
        (STORED | {"content": {"metadataLocation": "x"}}, "content/type"),
        (STORED | {"content": {"type": "ICEBERG_TABLE", "metadataLocation": 7}}, "content/metadataLocation"),
        (
            STORED | {"content": ICEBERG_TABLE | {"metadataLocation": "x" * (MAX_LOCATION + 1)}},
            "content/metadataLocation",
        ),
        (STORED | {"reference": "main"}, "reference"),
        (STORED | on(None), "reference/name"),
        (STORED | on("a\x00"), "reference/name"),
        (STORED | {"contentKey": ["a"]}, "contentKey"),
        (STORED | {"contentKey": {"elements": []}}, "contentKey/elements"),
        (STORED | {"contentKey": {"elements": "a.b"}}, "contentKey/elements"),
        (STORED | {"contentKey": {"elements": ["a", "b\x1fc"]}}, "contentKey/elements/1"),
        (STORED | {"contentKey": {"elements": ["a"] * (MAX_LEVELS + 2)}}, "contentKey/elements"),
        (STORED | {"id": 1}, "id"),
    ],
)
def test_a_wrong_field_is_422_and_named(event: object, where: str) -> None:
    assert refused(event) == (422, f"#/{where}")


@given(levels, names, names, names)
def test_whatever_is_of_the_shape_becomes_its_hint(namespace: list[str], name: str, place: str, event_id: str) -> None:
    content = ICEBERG_TABLE | {"metadataLocation": place}
    event = STORED | {"id": event_id, "content": content, "contentKey": {"elements": [*namespace, name]}}
    (hint,) = hints(event)
    assert (hint.subject, hint.min_metadata_location, hint.event_id) == (
        TableIdentifier("git", tuple(namespace), name),
        place,
        event_id,
    )
