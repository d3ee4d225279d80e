"""Which question a request asks a facade."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.errors import Rejected
from sfn.facade import routes
from sfn.facade.routes import (
    ENDPOINTS,
    GetConfiguration,
    GetNamespace,
    GetTable,
    GetView,
    ListNamespaces,
    ListTables,
    ListViews,
    PageRequest,
    paginate,
    parse_route,
)
from sfn.facade.tables import SnapshotMode

ALL, REFS = SnapshotMode.ALL, SnapshotMode.REFS


@pytest.mark.parametrize(
    ("path", "query", "asked"),
    [
        ("/v1/config", "", GetConfiguration(None)),
        ("/v1/config", "warehouse=prod&warehouse=dev", GetConfiguration("dev")),
        ("/v1/namespaces", "", ListNamespaces(None, (), PageRequest())),
        ("/v1/p/namespaces", "parent=a%1Fb", ListNamespaces("p", ("a", "b"), PageRequest())),
        ("/v1/p/namespaces", "pageToken=", ListNamespaces("p", (), PageRequest("", 1_000))),
        ("/v1/p/namespaces", "pageToken=YQ==&pageSize=7", ListNamespaces("p", (), PageRequest("a", 7))),
        ("/v1/p/namespaces", "pageSize=99999999", ListNamespaces("p", (), PageRequest("", 10_000))),
        ("/v1/p/namespaces/a%1Fb", "", GetNamespace("p", ("a", "b"))),
        ("/v1/p/namespaces/a/tables", "", ListTables("p", ("a",), PageRequest())),
        ("/v1/p/namespaces/a/tables/t", "", GetTable("p", ("a",), "t", ALL)),
        ("/v1/p/namespaces/a/tables/t", "snapshots=refs", GetTable("p", ("a",), "t", REFS)),
        ("/v1/p/namespaces/dir/tables/%2Fw%2Fa+b%2Bc%20d", "", GetTable("p", ("dir",), "/w/a b+c d", ALL)),
        ("/v1/p/namespaces/a/tables/%252Fx", "", GetTable("p", ("a",), "%2Fx", ALL)),
        ("/v1/p/namespaces/%C3%A4/tables/%F0%9F%90%9F", "", GetTable("p", ("ä",), "🐟", ALL)),
        ("/v1/p/namespaces/a/views", "", ListViews("p", ("a",))),
        ("/v1/p/namespaces/a/views/v", "", GetView(("a",), "v")),
    ],
)
def test_a_question_is_understood(path: str, query: str, asked: object) -> None:
    assert parse_route("GET", path, query) == asked
    assert parse_route("HEAD", path, query) == asked


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/", "", 404),
        ("/v1", "", 404),
        ("/v1/config/", "", 404),
        ("/v2/config", "", 404),
        ("/v1/p/namespaces/a/tables/t/metrics", "", 404),
        ("/v1/p/namespaces/a/functions", "", 404),
        ("/v1/p/namespaces/%FF", "", 400),
        ("/v1/config", "warehouse=%FF", 400),
        ("/v1/config", "&".join(f"a{number}=1" for number in range(65)), 400),
        ("/v1/p/namespaces", "pageToken=%FF", 400),
        ("/v1/p/namespaces", "pageToken=x", 400),
        ("/v1/p/namespaces", "pageToken=_w==", 400),
        ("/v1/p/namespaces", "pageSize=0", 400),
        ("/v1/p/namespaces", "pageSize=-1", 400),
        ("/v1/p/namespaces", "pageSize=", 400),
        ("/v1/p/namespaces", "pageSize=" + "9" * 5_000, 400),
        ("/v1/p/namespaces/a/tables/t", "snapshots=none", 400),
    ],
)
def test_what_makes_no_sense_is_refused(path: str, query: str, status: int) -> None:
    with pytest.raises(Rejected) as refused:
        parse_route("GET", path, query)
    assert refused.value.status == status


WRITES = [
    ("POST", "/v1/p/namespaces", 405),
    ("POST", "/v1/p/namespaces/a/properties", 405),
    ("DELETE", "/v1/p/namespaces/a", 405),
    ("POST", "/v1/p/namespaces/a/tables", 405),
    ("POST", "/v1/p/namespaces/a/register", 405),
    ("POST", "/v1/p/namespaces/a/tables/t", 403),
    ("POST", "/v1/namespaces/a/tables/t", 403),
    ("POST", "/v1/p/namespaces/a/tables/%FF", 403),
    ("DELETE", "/v1/p/namespaces/a/tables/t", 405),
    ("POST", "/v1/p/tables/rename", 405),
    ("POST", "/v1/p/namespaces/a/tables/t/metrics", 405),
    ("POST", "/v1/p/namespaces/a/tables/t/plan", 405),
    ("POST", "/v1/p/transactions/commit", 405),
    ("POST", "/v1/p/namespaces/a/views", 405),
    ("POST", "/v1/oauth/tokens", 405),
    ("PUT", "/", 405),
    ("PATCH", "/v1/config", 405),
    ("OPTIONS", "/v1/config", 405),
    ("get", "/v1/config", 405),
]


@pytest.mark.parametrize(("method", "path", "status"), WRITES)
def test_nothing_can_be_changed_and_commits_are_forbidden(method: str, path: str, status: int) -> None:
    with pytest.raises(Rejected) as refused:
        parse_route(method, path, "snapshots=none")
    assert refused.value.status == status


def test_what_clients_are_told_that_they_may_ask_is_answered() -> None:
    for endpoint in ENDPOINTS:
        method, _, path = endpoint.partition(" ")
        path = path.format(prefix="p", namespace="a", table="t")
        # Iceberg's Java library is to ask for a commit, and to be forbidden.
        if (method, path) != ("POST", "/v1/p/namespaces/a/tables/t"):
            assert method in routes.READ_METHODS
            parse_route(method, path, "")


@given(st.text(), st.text())
def test_whatever_is_asked_is_understood_or_refused(path: str, query: str) -> None:
    with suppress(Rejected):
        parse_route("GET", path.encode("ascii", "replace").decode(), query.encode("ascii", "replace").decode())


@given(st.sets(st.text(min_size=1)), st.integers(1, 5))
def test_pages_are_all_of_it_once_and_in_order(names: set[str], size: int) -> None:
    found: list[str] = []
    asked = f"pageSize={size}"
    for _ in range(len(names) + 1):
        listing = parse_route("GET", "/v1/namespaces", asked)
        assert isinstance(listing, ListNamespaces)
        some, token = paginate(names, listing.page)
        assert len(some) <= size
        found += some
        if token is None:
            break
        asked = f"pageSize={size}&pageToken={token}"
    assert found == sorted(names)


def test_names_that_come_and_go_between_pages_shift_no_other() -> None:
    first, token = paginate(["b", "c", "d", "e"], PageRequest(limit=2))
    assert (first, token) == (["b", "c"], "Yw==")
    assert paginate(["a", "d", "e"], PageRequest("c", 2)) == (["d", "e"], None)
    assert paginate([], PageRequest("c", 2)) == ([], None)
