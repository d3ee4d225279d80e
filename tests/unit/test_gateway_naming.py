"""The tables that a change names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.identifiers import TableIdentifier
from sfn.gateway.routes import (
    MAX_TABLES_PER_TRANSACTION,
    CatalogChange,
    ChangeKind,
    NamespaceSeparators,
    UnknownTables,
    readings_of_namespace,
    tables_of_change,
)

COMMIT = CatalogChange(ChangeKind.COMMIT, "", "a%1Fb", "t")
CREATE = CatalogChange(ChangeKind.CREATE, "", "n")
RENAME = CatalogChange(ChangeKind.RENAME, "")
TRANSACTION = CatalogChange(ChangeKind.TRANSACTION, "")


def named(change: CatalogChange, content: object = None, separator: str | None = "%1F") -> tuple[TableIdentifier, ...]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return tables_of_change(change, body, "prod", known(separator))


def known(separator: str | None) -> list[str]:
    return [] if separator is None else [separator]


def of(namespace: list[str], name: str) -> dict[str, object]:
    return {"namespace": namespace, "name": name}


def test_a_path_names_a_table() -> None:
    assert named(COMMIT) == (TableIdentifier("prod", ("a", "b"), "t"),)
    assert named(CatalogChange(ChangeKind.DROP, "", "n", "t%2Fu%20%C3%A9")) == (
        TableIdentifier("prod", ("n",), "t/u é"),
    )


def test_a_create_names_its_table_in_the_body() -> None:
    assert named(CREATE, {"name": "t", "schema": {"fields": []}}) == (TableIdentifier("prod", ("n",), "t"),)
    assert named(CatalogChange(ChangeKind.REGISTER, "", "n"), {"name": "t", "overwrite": True}) == (
        TableIdentifier("prod", ("n",), "t"),
    )


def test_a_staged_create_changes_nothing_yet() -> None:
    assert named(CREATE, {"name": "t", "stage-create": True}) == ()
    assert named(CREATE, {"name": "t", "stage-create": False}) == (TableIdentifier("prod", ("n",), "t"),)
    assert named(CREATE, {"name": "t", "stage-create": None}) == (TableIdentifier("prod", ("n",), "t"),)


def test_a_rename_names_the_old_one_and_the_new_one() -> None:
    content = {"source": of(["a", "b"], "t"), "destination": of(["c.d"], "u")}
    assert named(RENAME, content) == (TableIdentifier("prod", ("a", "b"), "t"), TableIdentifier("prod", ("c.d",), "u"))


def test_a_transaction_names_each_of_its_tables_once() -> None:
    changes = [{"identifier": of(["n"], name), "updates": [{"action": "x"}]} for name in ("t", "u", "t")]
    assert named(TRANSACTION, {"table-changes": changes}) == (
        TableIdentifier("prod", ("n",), "t"),
        TableIdentifier("prod", ("n",), "u"),
    )


@pytest.mark.parametrize(
    ("change", "content"),
    [
        (CREATE, b"{"),
        (CREATE, b'{"name": "\xff"}'),
        (CREATE, b"[" * 100_000),
        (CREATE, {"nom": "t"}),
        (CREATE, {"name": ""}),
        (CREATE, {"name": "a\u0000b"}),
        (CREATE, {"name": "x" * 1_000}),
        (RENAME, {"source": of(["a"], "t")}),
        (RENAME, {"source": of([], "t"), "destination": of(["a"], "u")}),
        (RENAME, {"source": of(["a"] * 65, "t"), "destination": of(["a"], "u")}),
        (
            TRANSACTION,
            {"table-changes": [{"identifier": of(["n"], str(i))} for i in range(MAX_TABLES_PER_TRANSACTION + 1)]},
        ),
        (CatalogChange(ChangeKind.NAMESPACE, "", "n"), None),
        (CatalogChange(ChangeKind.RESTORE, "w"), None),
        (CatalogChange(ChangeKind.COMMIT, "", "n", "%FF"), None),
        (CatalogChange(ChangeKind.COMMIT, "", "n", "%00"), None),
    ],
)
def test_what_can_not_be_told_may_be_any_table(change: CatalogChange, content: object) -> None:
    with pytest.raises(UnknownTables):
        named(change, content)


@pytest.mark.parametrize(
    ("segment", "separator", "read"),
    [
        ("a", "%1F", [["a"]]),
        ("a%1Fb", "%1F", [["a", "b"]]),
        ("a%1fb", None, [["a", "b"]]),
        ("a.b", "%1F", [["a.b"]]),
        # Iceberg's Java server takes the first for two levels and the others for one, as they were tried against it.
        ("a%2Eb", "%2E", [["a", "b"]]),
        ("a.b", "%2E", [["a.b"], ["a", "b"]]),
        ("a%2eb", "%2E", [["a.b"], ["a", "b"]]),
        ("a.b", None, [["a.b"], ["a", "b"]]),
        ("a%1Fb.c", "%2E", [["a", "b.c"]]),
        ("a/b", "/", [["a", "b"]]),
        ("a$b", "$", [["a", "b"]]),
        ("a%24b", "$", [["a$b"], ["a", "b"]]),
        ("a%7Cb", "%7C", [["a", "b"]]),
        ("a%20%C3%A4b", None, [["a äb"]]),
    ],
)
def test_a_namespace_is_read_as_any_catalog_may_read_it(
    segment: str, separator: str | None, read: list[list[str]]
) -> None:
    assert readings_of_namespace(segment, known(separator)) == read


@pytest.mark.parametrize("segment", ["a%7Cb", "a%24b", "a%3ab", "a%2Fb", "a$b", "a::b"])
def test_what_may_stand_between_levels_of_a_catalog_that_has_not_said_is_not_guessed(segment: str) -> None:
    with pytest.raises(UnknownTables):
        readings_of_namespace(segment, [])


@pytest.mark.parametrize(
    ("segment", "separators", "read"),
    [
        ("x%2Ey", ["%1F", "%2E"], [["x.y"], ["x", "y"]]),
        ("x%2Fy", ["%2E", "%2F"], [["x/y"], ["x", "y"]]),
        ("x%3A%3Ay", ["%2E", "%3A%3A"], [["x::y"], ["x", "y"]]),
        ("x%1Fy.z", ["%1F", "%2E"], [["x", "y.z"]]),
        ("x.y", ["%1F"], [["x.y"]]),
    ],
)
def test_a_namespace_is_read_in_each_way_that_some_configuration_allows(
    segment: str, separators: list[str], read: list[list[str]]
) -> None:
    assert readings_of_namespace(segment, separators) == read
    assert readings_of_namespace(segment, separators[::-1]) == read


def test_separators_of_every_configuration_of_a_prefix_are_remembered() -> None:
    separators = NamespaceSeparators()
    separators.add("main%7Ca", "%2E")
    separators.add("main|a", None)
    separators.add("catalogs/b", "%2F")
    assert separators.get("main|a") == {"%2E", "%1F"}
    assert separators.get("catalogs%2Fb") == {"%2F"}
    assert separators.get("of-nobody") == frozenset()


def test_separators_that_a_catalog_makes_up_take_no_more_than_some_memory() -> None:
    separators = NamespaceSeparators()
    for number in range(2_000):
        separators.add(f"{number}", None)
        separators.add("one", f"{number}")
    assert separators.get("0") == frozenset()
    assert separators.get("1999") == {"%1F"}
    assert separators.get("one") == {f"{number}" for number in range(1_992, 2_000)}


@given(st.sampled_from(ChangeKind), st.text(), st.text(), st.binary(), st.sampled_from([None, "%1F", "%2E", "."]))
def test_nothing_else_is_raised(
    kind: ChangeKind, namespace: str, table: str, body: bytes, separator: str | None
) -> None:
    try:
        found = tables_of_change(CatalogChange(kind, "", namespace, table), body, "prod", known(separator))
    except UnknownTables:
        return
    assert all(name.namespace and name.name for name in found)
