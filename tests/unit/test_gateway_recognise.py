"""Which requests of an Iceberg REST catalog change tables, by method and path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.gateway.routes import CatalogChange, ChangeKind, recognise_change

PREFIXES = ["", "prod", "main%7Cwarehouse", "catalogs/main", "projects/p/catalogs/namespaces", "a/tables/b"]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("method", "path", "kind", "names"),
    [
        ("POST", "namespaces/n/tables", ChangeKind.CREATE, ("n", None)),
        ("POST", "namespaces/n/register", ChangeKind.REGISTER, ("n", None)),
        ("POST", "namespaces/n/tables/t", ChangeKind.COMMIT, ("n", "t")),
        ("DELETE", "namespaces/n/tables/t", ChangeKind.DROP, ("n", "t")),
        ("POST", "namespaces/n/tables/t/unregister", ChangeKind.UNREGISTER, ("n", "t")),
        ("POST", "namespaces/n/tables/t/notifications", ChangeKind.NOTIFICATION, ("n", "t")),
        ("POST", "tables/rename", ChangeKind.RENAME, (None, None)),
        ("POST", "transactions/commit", ChangeKind.TRANSACTION, (None, None)),
        ("DELETE", "namespaces/n", ChangeKind.NAMESPACE, ("n", None)),
        ("POST", "namespaces/tables/tables/rename", ChangeKind.COMMIT, ("tables", "rename")),
        ("POST", "namespaces/namespaces/tables/tables", ChangeKind.COMMIT, ("namespaces", "tables")),
        ("POST", "namespaces/a%1Fb/tables/t%2Fu", ChangeKind.COMMIT, ("a%1Fb", "t%2Fu")),
        ("POST", "namespaces/a%2Eb/tables/%2E", ChangeKind.COMMIT, ("a%2Eb", "%2E")),
    ],
)
def test_a_change_is_known_behind_any_prefix(
    prefix: str, method: str, path: str, kind: ChangeKind, names: tuple[str | None, str | None]
) -> None:
    before = f"/v1/{prefix}/" if prefix else "/v1/"
    assert recognise_change(method, f"/api/catalog{before}{path}") == CatalogChange(kind, prefix, *names)
    assert recognise_change(method, before + path) == CatalogChange(kind, prefix, *names)
    assert recognise_change(method, f"{before}{path}/") == CatalogChange(kind, prefix, *names)
    assert recognise_change(method, f"{before}{path}".replace("/", "//")) == CatalogChange(kind, prefix, *names)


@pytest.mark.parametrize(
    "path",
    [
        "/%761/p/namespaces/n/tables/t",
        "/v1/p/%6eamesp%61ces/n/tables/t",
        "/v1/p/namespaces/%6E/tables/t",
        "/v1/p/namespaces/n/t%61ble%73/%74",
        "/v1/./p/namespaces/n/./tables//./t",
        "/v1/p/namespaces/n/tables/t/.",
        "/v1/p/namespaces/n/tables/t/.//./.",
    ],
)
def test_a_path_that_means_the_same_is_the_same_commit(path: str) -> None:
    """RFC 3986, section 6.2.2: servers may decode what needs no encoding before they look at a path."""
    assert recognise_change("POST", path) == CatalogChange(ChangeKind.COMMIT, "p", "n", "t")


def test_tables_of_a_warehouse_that_come_back_are_known_by_lakekeepers_path() -> None:
    path = "/management/v1/warehouse/0199-a/deleted-tabulars/undrop"
    assert recognise_change("POST", path) == CatalogChange(ChangeKind.RESTORE, "0199-a")
    assert recognise_change("GET", path) is None
    assert recognise_change("POST", "/management/v1/warehouse/0199-a/deleted-tabulars") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/p/namespaces/n/tables/t"),
        ("HEAD", "/v1/p/namespaces/n/tables/t"),
        ("PUT", "/v1/p/namespaces/n/tables/t"),
        ("POST", "/v1/p/namespaces"),
        ("POST", "/v1/p/namespaces/n/properties"),
        ("POST", "/v1/p/namespaces/n/tables/t/metrics"),
        ("POST", "/v1/p/namespaces/n/tables/t/plan"),
        ("DELETE", "/v1/p/namespaces/n/tables/t/plan/1"),
        ("POST", "/v1/p/namespaces/n/tables/t/tasks"),
        ("POST", "/v1/p/namespaces/n/tables/t/sign"),
        ("POST", "/v1/p/namespaces/n/views"),
        ("POST", "/v1/p/namespaces/n/views/v"),
        ("DELETE", "/v1/p/namespaces/n/views/v"),
        ("POST", "/v1/p/views/rename"),
        ("POST", "/v1/p/namespaces/n/register-view"),
        ("POST", "/v1/p/namespaces/n/generic-tables"),
        ("POST", "/v1/oauth/tokens"),
        ("POST", "/v2/p/namespaces/n/tables/t"),
        ("POST", "/v1/p/namespaces//tables/t"),
    ],
)
def test_all_else_passes(method: str, path: str) -> None:
    assert recognise_change(method, path) is None


@pytest.mark.parametrize(
    ("query", "purges"),
    [("", False), ("purgeRequested=true", True), ("a=1&purgeRequested=TRUE&b", True), ("purgeRequested=false", False)],
)
def test_a_drop_says_whether_files_are_deleted(query: str, *, purges: bool) -> None:
    assert recognise_change("DELETE", "/v1/namespaces/n/tables/t", query) == CatalogChange(
        ChangeKind.DROP, "", "n", "t", purges
    )


@given(st.sampled_from(["POST", "DELETE"]), st.text(), st.text())
def test_no_path_is_too_odd(method: str, path: str, query: str) -> None:
    recognise_change(method, f"/v1/{path}", query)


@pytest.mark.parametrize(
    "path", ["/v1/" + "namespaces/" * 20_000, "/v1/" + "namespaces/a/tables/" * 10_000 + "x/y", "/v1/" * 30_000]
)
def test_a_long_path_is_looked_at_once(path: str) -> None:
    # A pattern that tries every way to split it would take minutes.
    recognise_change("POST", path)
