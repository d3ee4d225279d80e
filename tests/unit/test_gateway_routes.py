"""Recognition of requests that change tables."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sfn.domain.identifiers import TableIdentifier
from sfn.errors import FatalError
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.proxy import GatewayOptions, Proxy, UpstreamResponse
from sfn.gateway.routes import (
    MAX_REPORTED_PREFIXES,
    MAX_TABLES_PER_TRANSACTION,
    CatalogChange,
    CatalogMapping,
    ChangeKind,
    NamespaceSeparators,
    UnknownTables,
    UnmappedPrefixes,
    readings_of_namespace,
    recognise_change,
    tables_of_change,
)
from sfn.gateway.upstream import UpstreamRequest
from sfn.inbox.model import InboxConfig as InboxTerms
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox

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


def test_path_names_a_table() -> None:
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
def test_unreadable_names_raise_unknown_tables(change: CatalogChange, content: object) -> None:
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
def test_unknown_separator_is_not_guessed(segment: str) -> None:
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


def test_remembered_separators_are_limited() -> None:
    separators = NamespaceSeparators()
    for number in range(2_000):
        separators.add(f"{number}", None)
        separators.add("one", f"{number}")
    assert separators.get("0") == frozenset()
    assert separators.get("1999") == {"%1F"}
    assert separators.get("one") == {f"{number}" for number in range(1_992, 2_000)}


@given(st.sampled_from(ChangeKind), st.text(), st.text(), st.binary(), st.sampled_from([None, "%1F", "%2E", "."]))
def test_arbitrary_bodies_raise_unknown_tables_only(
    kind: ChangeKind, namespace: str, table: str, body: bytes, separator: str | None
) -> None:
    try:
        found = tables_of_change(CatalogChange(kind, "", namespace, table), body, "prod", known(separator))
    except UnknownTables:
        return
    assert all(name.namespace and name.name for name in found)


class Catalog:
    """Implements `sfn.gateway.proxy.CatalogUpstream`: answers every request with one status.

    Attributes:
        status: HTTP status.
        asked: targets of all requests.
    """

    def __init__(self) -> None:
        self.status, self.asked = 200, list[bytes]()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        self.asked.append(request.target)
        return Answer(self.status)

    async def close(self) -> None:
        """Nothing is open."""


class Answer:
    """Implements `sfn.gateway.proxy.UpstreamResponse`."""

    def __init__(self, status: int) -> None:
        self.status: int = status
        self.fields: Sequence[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]

    async def parts(self, limit: int | None = None) -> AsyncIterator[bytes]:
        yield b"{}"

    def release(self) -> None:
        """Nothing is open."""


class Stage:
    """A gateway before a catalog.

    Attributes:
        unmapped: how many commits were counted.
    """

    def __init__(self, catalogs: Mapping[str, str]) -> None:
        self.catalog, self.inbox, self.unmapped = Catalog(), MemoryInbox(InboxTerms(), HandClock()), 0
        noting = IntentOptions("gateway.g", OnInboxFailure.PASS, lambda: "token")
        commits = CommitRecorder(noting, self.inbox, OwedSweeps(self.inbox), self._broken, self)
        reach = CatalogMapping(None, catalogs, lambda _: True, requires_credentials=False)
        self._proxy = Proxy(self.catalog, commits, reach, GatewayOptions("http://catalog", None, 1 << 20), self)

    async def ask(self, target: str, method: str = "POST") -> None:
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": method,
            "raw_target": target.encode(),
            "headers": [(b"host", b"gateway"), (b"content-length", b"2")],
            "client": ("10.0.0.1", 1),
            "scheme": "http",
        }

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: MutableMapping[str, Any]) -> None:
            """Ignore the answer."""

        await self._proxy.answer("", scope, receive, send)

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """See `sfn.gateway.proxy.GatewayRequestMetrics`."""

    def count_unmapped(self) -> None:
        """See `sfn.gateway.proxy.GatewayRequestMetrics`."""
        self.unmapped += 1

    def count_unrecorded(self) -> None:
        """See `sfn.gateway.commits.GatewayCommitMetrics`."""

    def _broken(self, broken: FatalError) -> None:
        raise broken


ORDERS = "namespaces/sales/tables/orders"


@pytest.fixture(name="stage")
def fixture_stage() -> Stage:
    return Stage({"main|lake": "main"})


async def test_commits_under_an_unmapped_prefix_are_counted_and_logged_once(stage: Stage) -> None:
    with capture_logs() as records:
        for _ in range(3):
            await stage.ask(f"/v1/main/{ORDERS}")
        await stage.ask(f"/v1/{ORDERS}")
    assert stage.unmapped == 4
    warnings = [record for record in records if record["event"] == "commit under an unmapped prefix"]
    assert [record["prefix"] for record in warnings] == ["main", ""]
    assert (warnings[0]["gateway"], warnings[0]["known"]) == ("gateway.g", ["main|lake"])
    assert len(stage.catalog.asked) == 4, "they pass all the same"


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        (f"/v1/main%7Clake/{ORDERS}", "POST", 200),
        (f"/v1/main/{ORDERS}", "GET", 200),
        (f"/v1/main/{ORDERS}", "POST", 404),
        (f"/v1/main/{ORDERS}", "POST", 409),
        ("/v1/main/namespaces/sales/views/v", "POST", 200),
    ],
)
async def test_other_requests_are_no_unmapped_commits(stage: Stage, target: str, method: str, status: int) -> None:
    stage.catalog.status = status
    with capture_logs() as records:
        await stage.ask(target, method)
    assert (stage.unmapped, records) == (0, [])


def test_remembered_prefixes_are_limited() -> None:
    unmapped = UnmappedPrefixes()
    assert sum(unmapped.is_new(f"p{number}") for number in range(2 * MAX_REPORTED_PREFIXES)) == MAX_REPORTED_PREFIXES


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
def test_change_is_recognised_behind_any_prefix(
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
def test_equivalent_paths_are_the_same_commit(path: str) -> None:
    """RFC 3986, section 6.2.2: servers may decode what needs no encoding before they look at a path."""
    assert recognise_change("POST", path) == CatalogChange(ChangeKind.COMMIT, "p", "n", "t")


def test_restored_tables_are_recognised_by_lakekeepers_path() -> None:
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
def test_other_requests_are_no_change(method: str, path: str) -> None:
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
def test_arbitrary_paths_raise_no_error(method: str, path: str, query: str) -> None:
    recognise_change(method, f"/v1/{path}", query)


@pytest.mark.parametrize(
    "path", ["/v1/" + "namespaces/" * 20_000, "/v1/" + "namespaces/a/tables/" * 10_000 + "x/y", "/v1/" * 30_000]
)
def test_long_path_takes_linear_time(path: str) -> None:
    # A pattern that tries every way to split it would take minutes.
    recognise_change("POST", path)
