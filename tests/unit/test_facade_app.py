"""The application of the facade: answers, slow clients and errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any
from urllib.parse import quote

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

import sfn
from sfn import errors
from sfn.clock import SystemClock
from sfn.errors import (
    Ambiguous,
    Dropped,
    ErrorScope,
    ExternalError,
    FatalError,
    LocationRefused,
    MalformedDocument,
    MalformedMetadata,
    NotFound,
    NotInstalled,
    NotPermitted,
    Rejected,
    SfnError,
    Stale,
    Transient,
    UnaddressableTable,
    Unreachable,
    Unsafe,
    WrongTable,
)
from sfn.facade import FileTree, Namespace, TablePlace, TableSource, app
from sfn.facade.app import Facade, FacadeOptions, StandaloneProbes, mount_facade
from sfn.facade.discovery import ScannedTables, folder_scans
from sfn.facade.metadata_files import open_tree
from sfn.facade.routes import NO_NAMESPACE, NO_TABLE, NotInCatalog, status_and_exception
from sfn.facade.tables import TableLoader
from sfn.sfnfile.document import DocumentState
from sfn.telemetry.metrics import FacadeMetrics, Metrics, new_registry
from tests.support.facade import HOME, Reply, Tables, ask, commit, placed, reply, shown
from tests.unit.test_facade_routes import WRITES

TOKEN = b"Bearer of-a-reader"


def scope(method: str) -> MutableMapping[str, Any]:
    path = f"/iceberg{HOME}/sales/tables/orders".encode()
    return {"type": "http", "method": method, "raw_path": path, "query_string": b"", "headers": []}


async def forever() -> MutableMapping[str, Any]:
    """A body that does not come."""
    await anyio.sleep_forever()
    return {}


@dataclass
class Ground:
    """Tables below a root, and a facade that shows them.

    Attributes:
        counted: the statuses of its answers.
        broken: what it was told of the inbox.
    """

    root: Path
    facade: Facade = field(init=False)
    counted: list[int] = field(default_factory=list)
    broken: list[FatalError] = field(default_factory=list)

    async def ask(self, path: str, query: str = "", **more: object) -> Reply:
        return await ask(self.facade, path, query, **more)

    async def table(self, name: str, query: str = "", namespace: str = "sales", **more: object) -> Reply:
        path = f"{HOME}/{quote(namespace, safe='')}/tables/{quote(name, safe='')}"
        return await self.ask(path, query, **more)


def ground(
    root: Path,
    shelves: Mapping[str, TableSource] | None = None,
    directories: bool = True,
    admits: Callable[[bytes | None], bool] | None = None,
) -> Ground:
    trees: dict[str, FileTree] = {f"file://{root}": open_tree(f"file://{root}", {})}
    made = Ground(root)
    terms = FacadeOptions(
        shelves if shelves is not None else {"sfn": ScannedTables(folder_scans(trees), 0, 0)},
        trees if directories else {},
        admits,
        made.counted.append,
        made.broken.append,
    )
    made.facade = Facade(terms, TableLoader(SystemClock(), 1 << 20))
    return made


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "w"
    shown(root / "sales" / "orders")
    shown(root / "deep" / "t", "a.b.c")
    return root


async def test_the_configuration_names_the_catalog_and_what_may_be_asked(root: Path) -> None:
    answer = await ground(root).ask("/v1/config")
    assert answer.json["overrides"] == {"prefix": "sfn"}
    assert "POST /v1/{prefix}/namespaces" not in answer.json["endpoints"]
    assert len(answer.json["endpoints"]) == 7
    assert answer.headers["content-type"] == "application/json"


async def test_of_several_catalogs_one_is_named(root: Path) -> None:
    place = ground(root, {"prod": ScannedTables([Tables()], 9, 9), "dev": ScannedTables([Tables()], 9, 9)})
    assert (await place.ask("/v1/config", "warehouse=dev")).json["overrides"] == {"prefix": "dev"}
    for path, query in (("/v1/config", ""), ("/v1/config", "warehouse="), ("/v1/namespaces", "")):
        assert (await place.ask(path, query)).status == 400
    for path, query in (("/v1/config", "warehouse=x"), ("/v1/x/namespaces", "")):
        assert (await place.ask(path, query)).status == 404
    assert (await ground(root, {}).ask("/v1/config")).status == 404


async def test_namespaces_and_tables_are_listed(root: Path) -> None:
    place = ground(root)
    assert (await place.ask(HOME)).json["namespaces"] == [["a"], ["dir"], ["sales"]]
    assert (await place.ask(HOME, "parent=a")).json["namespaces"] == [["a", "b"]]
    assert (await place.ask(HOME, "parent=a%1Fb")).json == {"namespaces": [], "next-page-token": None}
    assert (await place.ask(HOME, "parent=none")).kind == "NoSuchNamespaceException"
    assert (await place.ask(f"{HOME}/a%1Fb")).json == {"namespace": ["a", "b"], "properties": {}}
    assert (await place.ask(f"{HOME}/a%1Fb/tables")).json["identifiers"] == [{"namespace": ["a", "b"], "name": "c"}]
    assert (await place.ask(f"{HOME}/a/tables")).json["identifiers"] == []
    assert (await place.ask(f"{HOME}/dir/tables")).json["identifiers"] == []
    assert (await place.ask(f"{HOME}/none/tables")).kind == "NoSuchNamespaceException"
    first = (await place.ask(HOME, "pageSize=1")).json
    assert first["namespaces"] == [["a"]]
    rest = (await place.ask(HOME, f"pageToken={first['next-page-token']}")).json
    assert rest == {"namespaces": [["dir"], ["sales"]], "next-page-token": None}
    assert (await ground(root, directories=False).ask(HOME)).json["namespaces"] == [["a"], ["sales"]]


async def test_views_are_none(root: Path) -> None:
    place = ground(root)
    assert (await place.ask(f"{HOME}/sales/views")).json == {"identifiers": []}
    assert (await place.ask(f"{HOME}/none/views")).kind == "NoSuchNamespaceException"
    assert (await place.ask(f"{HOME}/sales/views/orders")).kind == "NoSuchViewException"


async def test_a_head_has_no_body(root: Path) -> None:
    place = ground(root)
    assert (await place.ask(f"{HOME}/sales", method="HEAD")).status == 204
    answer = await place.table("orders", method="HEAD")
    assert (answer.status, answer.content) == (204, b"")
    assert "content-length" not in answer.headers
    assert (await place.table("none", method="HEAD")).status == 404


async def test_a_table_is_loaded_with_its_tag_and_not_again(root: Path) -> None:
    place = ground(root)
    first = await place.table("orders")
    assert first.json["metadata"]["properties"]["gc.enabled"] == "false"
    etag = first.headers["etag"]
    for field_ in (etag, f"W/{etag}", f'"x", {etag}', f'"x",W/{etag}', "*"):
        answer = await place.table("orders", fields={"If-None-Match": field_})
        assert (answer.status, answer.content, answer.headers) == (304, b"", {"etag": etag})
    for field_ in ('"x"', "", "x", etag.strip('"')):
        assert (await place.table("orders", fields={"If-None-Match": field_})).status == 200
    some = await place.table("orders", "snapshots=refs", fields={"If-None-Match": etag})
    assert (some.status, some.headers["etag"] != etag) == (200, True)
    commit(shown(root / "sales" / "orders"), 2)
    assert (await place.table("orders", fields={"If-None-Match": etag})).status == 200


async def test_a_table_is_loaded_by_its_directory(root: Path) -> None:
    place = ground(root)
    found = await place.table(str(root / "sales" / "orders"), namespace="dir")
    assert found.content == (await place.table("orders")).content
    assert found.headers["etag"] == (await place.table(f"file:{root}/sales/orders/", namespace="dir")).headers["etag"]
    assert (await place.table(f"{root}/none", namespace="dir")).kind == "NoSuchTableException"
    assert (await place.table("/etc", namespace="dir")).kind == "ForbiddenException"
    assert (await place.table("n" * 300, namespace="dir")).kind == "NoSuchTableException"
    assert (await place.table(f"{root}/{'n' * 300}", namespace="dir")).kind == "NoSuchTableException"
    closed = ground(root, directories=False)
    assert (await closed.table(str(root / "sales" / "orders"), namespace="dir")).kind == "NoSuchTableException"


@pytest.mark.parametrize("namespace", ["sales\x1forders", "sales\x1fnone", "dir\x1f/w/sales/orders", "a"])
async def test_the_probe_for_a_metadata_table_finds_no_table(root: Path, namespace: str) -> None:
    assert (await ground(root).table("snapshots", namespace=namespace)).kind == "NoSuchTableException"


@pytest.mark.parametrize(("method", "path", "status"), WRITES)
async def test_every_write_is_refused(root: Path, method: str, path: str, status: int) -> None:
    place = ground(root)
    answer = await place.ask(path, method=method, body=[b"{", b"}"])
    assert answer.status == status
    assert answer.kind == ("ForbiddenException" if status == 403 else "NotAllowedException")
    assert answer.headers.get("allow") == (None if status == 403 else "GET, HEAD")
    assert "connection" not in answer.headers
    assert place.counted == [status]


async def test_who_shows_no_token_is_told_nothing(root: Path) -> None:
    place = ground(root, admits=lambda shown: shown == TOKEN)
    for path in ("/v1/config", HOME, f"{HOME}/sales/tables/orders", "/v1/none"):
        for method in ("GET", "HEAD", "POST"):
            for fields in ({}, {"Authorization": "Bearer other"}):
                answer = await place.ask(path, method=method, fields=fields)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert answer.kind == "NotAuthorizedException"
        assert (await place.ask(path, fields={"Authorization": TOKEN.decode()})).status in {200, 404}


async def test_a_table_that_went_elsewhere_is_found_where_it_is(root: Path) -> None:
    shelf = ScannedTables(folder_scans({f"file://{root}": open_tree(f"file://{root}", {})}), 60, 0)
    place = ground(root, {"sfn": shelf})
    assert (await place.table("orders")).status == 200
    shown(root / "sales" / "orders").write(state=DocumentState.DROPPED)
    assert (await place.table("orders")).kind == "NoSuchTableException"
    there = shown(root / "sales" / "orders-2")
    assert (await place.table("orders", method="HEAD")).status == 204
    assert (await place.table("orders")).status == 200
    shutil.rmtree(there.path)
    assert (await place.table("orders")).kind == "NoSuchTableException"


async def test_of_two_directories_of_one_name_none_is_shown(root: Path) -> None:
    evil = shown(root / "evil")
    place = ground(root)
    answer = await place.table("orders")
    assert (answer.status, answer.kind) == (400, "BadRequestException")
    assert f"{evil.path}" in answer.json["error"]["message"]
    assert (await place.table(f"{root}/sales/orders", namespace="dir")).status == 200


async def test_names_of_any_script_are_answered(root: Path) -> None:
    identifier = "käse.東京\N{FISH}"
    shown(root / "odd", identifier)
    place = ground(root)
    assert (await place.table("東京\N{FISH}", namespace="käse")).status == 200
    answer = await place.table("東京\N{FISH}", namespace="none")
    assert "none.東京\N{FISH}" in answer.json["error"]["message"]
    assert (await place.table("a\0b\r\nc\N{FISH}")).kind == "NoSuchTableException"


@pytest.mark.parametrize(
    ("kind", "path", "is_ours"),
    [
        ("http", b"/iceberg/v1/config", True),
        ("http", b"/iceberg/", True),
        ("http", b"/iceberg", False),
        ("http", b"/icebergs/v1", False),
        ("http", b"//iceberg/v1", False),
        ("http", b"/v1/events", False),
        ("lifespan", b"/iceberg/", False),
    ],
)
async def test_what_lies_below_its_path_is_the_facade_s(kind: str, path: bytes, is_ours: bool) -> None:
    asked: list[str] = []

    def application(name: str) -> app.FacadeApplication:
        async def answer(_scope: app.Scope, _receive: app.Receive, _send: app.Send) -> None:
            asked.append(name)

        return answer

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    whole = mount_facade(application("facade"), application("others"))
    await whole({"type": kind, "raw_path": path}, nothing, nothing)  # type: ignore[arg-type]
    assert asked == ["facade" if is_ours else "others"]


async def test_a_table_that_is_not_where_it_was_known_to_lie_is_looked_for_once(root: Path) -> None:
    tables = Tables([(("sales",), "orders", placed(root, root / "none"))])
    place = ground(root, {"sfn": ScannedTables([tables], 60, 0)})
    assert (await place.table("orders")).kind == "NoSuchTableException"
    assert tables.scans == 2


@pytest.fixture(name="orders_root")
def fixture_orders_root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "w"
    shown(root / "sales" / "orders")
    return root


async def test_body_that_does_not_end_closes_the_connection(orders_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ground(orders_root)
    part = b"x" * 65_536
    for body, closes in (([part] * 5, False), ([part] * 50, True), ([], True)):
        answer = await place.ask("/v1/config", method="POST", body=body)
        assert (answer.status, answer.headers.get("connection") == "close") == (405, closes)
    monkeypatch.setattr(app, "_CLIENT_TIMEOUT", 0.01)
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await place.facade(scope("POST"), forever, send)
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_long_answer_is_sent_in_parts(orders_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ground(orders_root)
    whole = (await place.table("orders")).content
    monkeypatch.setattr(app, "_PART", 100)
    answer = await place.table("orders")
    assert answer.content == whole
    assert answer.parts == -(-len(whole) // 100)


async def test_who_takes_nothing_is_not_waited_for(orders_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_CLIENT_TIMEOUT", 0.01)
    monkeypatch.setattr(app, "_PART", 1)
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 3:
            await anyio.sleep_forever()

    await ground(orders_root).facade(scope("GET"), forever, send)
    # Not whole, so that the server ends the connection.
    assert [message.get("more_body") for message in sent] == [None, True, True]


async def test_who_takes_little_at_a_time_is_waited_for_as_long_as_the_whole_may_take(
    orders_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len((await ground(orders_root).table("orders")).content)
    monkeypatch.setattr(app, "_CLIENT_TIMEOUT", 0.0)
    monkeypatch.setattr(app, "_PART", 1)
    monkeypatch.setattr(app, "_MIN_RATE", 2 * whole)

    async def taken(pause: float) -> int:
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)
            if len(sent) % 10 == 0:
                await anyio.sleep(pause)

        await ground(orders_root).facade(scope("GET"), forever, send)
        return len(sent) - 1

    assert await taken(0) == whole
    assert await taken(0.02) < whole


async def ask_probes(one: StandaloneProbes, path: str, method: str = "GET", **fields: str) -> Reply:
    return await reply(one, path, method=method, fields=fields)


async def test_it_is_ready_once_something_could_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "RESCAN_INTERVAL", 0.0)
    one = StandaloneProbes(new_registry("1"), "the catalog is elsewhere")
    refusals: list[Exception | None] = [Unreachable("disk", expected="an answer", found="none"), None]
    looked = anyio.Event()

    async def ready() -> Exception | None:
        await looked.wait()
        if len(refusals) == 1:
            assert "disk" in (await ask_probes(one, "/readyz")).json["error"]["message"]
        return refusals.pop(0)

    with capture_logs() as records:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.prepare, ready)
            await anyio.lowlevel.checkpoint()
            answer = await ask_probes(one, "/readyz")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "the first scan of the folders is running" in answer.json["error"]["message"]
            assert b"sfn_ready 0.0" in (await ask_probes(one, "/metrics")).content
            assert (await ask_probes(one, "/livez")).json == {"status": "alive"}
            looked.set()
    assert not refusals
    assert [(one["event"], one["log_level"]) for one in records] == [("not ready", "warning"), ("ready", "info")]
    assert (await ask_probes(one, "/readyz")).json == {"status": "ready"}
    assert b"sfn_ready 1.0" in (await ask_probes(one, "/metrics")).content


async def test_its_metrics_are_written_as_the_scraper_likes_them() -> None:
    shown = new_registry("7.1")
    FacadeMetrics(shown).count_answer(304)
    one = StandaloneProbes(shown, "the catalog is elsewhere")
    plain = await ask_probes(one, "/metrics")
    assert b'sfn_facade_requests_total{status="304"} 1.0' in plain.content
    assert b"sfn_build_info{python=" in plain.content
    assert plain.headers["content-type"].startswith("text/plain")
    for accept in ("application/openmetrics-text", "application/openmetrics-text;version=x", "x/y"):
        answer = await ask_probes(one, "/metrics", accept=accept)
        assert (answer.status, b"sfn_ready" in answer.content) == (200, True)
    openmetrics = await ask_probes(one, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.content.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/v1/config"), ("POST", "/livez"), ("DELETE", "/metrics"), ("GET", "/livez/")],
)
async def test_any_other_request_is_told_where_the_catalog_is(method: str, path: str) -> None:
    answer = await ask_probes(StandaloneProbes(new_registry("1"), "the catalog is elsewhere"), path, method)
    assert (answer.status, answer.json["error"]["message"]) == (404, "the catalog is elsewhere")


AWAY = Unreachable("store", expected="an answer", found="none")


@pytest.fixture(name="empty_root")
def fixture_empty_root(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "w"


class Raising:
    """A shelf that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        raise self.error

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        raise self.error


async def test_whatever_goes_wrong_is_answered_as_clients_know_it(empty_root: Path) -> None:
    away = ground(empty_root, {"sfn": Raising(AWAY)})
    for path in (HOME, f"{HOME}/sales/tables/orders"):
        answer = await away.ask(path)
        assert (answer.status, answer.kind, answer.headers["retry-after"]) == (503, "ServiceUnavailableException", "1")
    wrong = ground(empty_root, {"sfn": Raising(ZeroDivisionError("an error of ours"))})
    for path in (HOME, f"{HOME}/sales/tables/orders"):
        answer = await wrong.ask(path)
        assert (answer.status, answer.kind) == (500, "InternalServerError")
        assert "error of ours" not in answer.json["error"]["message"]
    assert wrong.counted == [500, 500]


async def test_what_can_be_caused_at_will_fills_no_log(empty_root: Path) -> None:
    shown(empty_root / "sales" / "orders")
    place = ground(empty_root, {"sfn": Raising(AWAY)}, admits=lambda shown: shown == b"Bearer x")
    token = {"Authorization": "Bearer x"}
    with capture_logs() as records:
        for _ in range(3):
            assert (await place.ask("/v1/config")).status == 401
            assert (await place.ask(HOME, fields=token)).status == 503
            assert (await place.table("/etc", namespace="dir", fields=token)).status == 403
            assert (await place.table(f"{empty_root}/none", namespace="dir", fields=token)).status == 404
    assert [(one["event"], one["status"], one["suppressed"]) for one in records] == [
        ("request refused", 401, 0),
        ("request failed", 503, 0),
        ("request failed", 403, 0),
    ]


async def test_a_process_whose_inbox_is_broken_is_told_and_its_clients_try_again(empty_root: Path) -> None:
    broken = FatalError("inbox", expected="a database", found="none")
    place = ground(empty_root, {"sfn": Raising(broken)})
    assert (await place.table("orders")).status == 503
    assert place.broken == [broken]


def made(kind: type[SfnError]) -> SfnError:
    if issubclass(kind, NotInCatalog):
        return kind("x", NO_NAMESPACE, expected="a", found="b")
    if issubclass(kind, Rejected):
        return kind("x", status=400, expected="a", found="b")
    if issubclass(kind, ExternalError) and not issubclass(kind, LocationRefused | UnaddressableTable):
        return kind("x", scope=ErrorScope.STORE, expected="a", found="b")
    return kind("x", expected="a", found="b")


def test_each_refusal_says_what_its_client_is_to_do() -> None:
    answers = {kind: status_and_exception(made(kind)) for kind in (
        *(NotFound, Dropped, NotInCatalog, Rejected, Unsafe, NotPermitted, Ambiguous, NotInstalled, Unreachable),
        Transient,
        *(Stale, WrongTable, MalformedDocument, MalformedMetadata, FatalError, LocationRefused),
    )}  # fmt: skip
    assert {kind: (int(status), name) for kind, (status, name) in answers.items()} == {
        NotFound: (404, NO_TABLE),
        Dropped: (404, NO_TABLE),
        NotInCatalog: (404, NO_NAMESPACE),
        Rejected: (400, None),
        Unsafe: (403, None),
        NotPermitted: (500, None),
        Ambiguous: (400, None),
        NotInstalled: (500, None),
        Unreachable: (503, None),
        Transient: (503, None),
        Stale: (500, None),
        WrongTable: (500, None),
        MalformedDocument: (500, None),
        MalformedMetadata: (500, None),
        FatalError: (503, None),
        LocationRefused: (500, None),
    }


def test_each_answer_has_a_body_and_a_count() -> None:
    for kind in (NotFound, Unsafe, Ambiguous, Stale, Unreachable):
        status, name = status_and_exception(made(kind))
        assert errors.iceberg_error_body(status, "why", name)
    readers = Metrics(version="1", catalogs=["prod"]).readers
    for code in (200, 304, 401, 405, 418, 599):
        readers.count_answer(code)


def test_every_refusal_of_a_reader_is_told() -> None:
    for module in walk_packages(sfn.reader.__path__, "sfn.reader."):
        import_module(module.name)
    kinds, left = set(), [SfnError]
    while left:
        kinds.update(left[-1].__subclasses__())
        left += left.pop().__subclasses__()
    for kind in kinds:
        if kind.__module__ == "sfn.errors":
            status, _ = status_and_exception(made(kind))
            assert status in errors.ICEBERG_ERROR_TYPES
