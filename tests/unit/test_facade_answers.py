"""What a facade answers to requests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sfn.facade import app
from sfn.facade.app import mount_facade
from sfn.facade.discovery import ScannedTables, folder_scans
from sfn.facade.metadata_files import open_tree
from sfn.sfnfile.document import DocumentState
from tests.unit.answering import ground
from tests.unit.faced import HOME, Tables, commit, placed, shown
from tests.unit.test_facade_routes import WRITES

TOKEN = b"Bearer of-a-reader"


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
