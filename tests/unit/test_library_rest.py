"""A REST catalog through PyIceberg, which takes more for an answer than the port allows."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from sfn.catalogs import UnlistedNamespace
from sfn.catalogs.pyiceberg import PyIcebergCatalog
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.unit.library_ground import ORDERS, PRIVATE, opening, trouble_of
from tests.unit.rest_server import Responder, Server, complaint, reply, table

EMPTY = {"schema": {"type": "struct", "fields": []}, "partition-spec": [], "last-column-id": 0}
WHOLE = {
    "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "last-partition-id": 999,
    "last-column-id": 0,
    "last-sequence-number": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
}


def whole(pointer: str | None = "s3://b/t/metadata/1.json", **more: object) -> Responder:
    """A table that PyIceberg reads."""
    return reply(table(pointer, **WHOLE, **more))


@pytest.fixture(name="catalog")
async def fixture_catalog(server: Server) -> AsyncGenerator[PyIcebergCatalog]:
    async with opening({"uri": server.uri, "token": PRIVATE}) as catalog:
        yield catalog


async def test_a_table_is_described_as_by_our_own_adapter(server: Server, catalog: PyIcebergCatalog) -> None:
    log = [{"timestamp-ms": 1, "metadata-file": f"s3://b/t/metadata/{number}.json"} for number in (0, 1)]
    server.other = whole(metadata_log=log, properties={"encryption.key-id": "k"}, location="s3://b/t/")
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    found = answer.table
    assert (found.uuid, found.location) == ("9c12d441-03fe-4693-9a96-a0705ddf69c1", "s3://b/t")
    assert (found.metadata_location, found.last_updated_ms) == ("s3://b/t/metadata/1.json", 1_700_000_000_000)
    assert found.metadata_log == ("s3://b/t/metadata/0.json", "s3://b/t/metadata/1.json")
    assert (found.snapshot_id, found.skip_reason) == (None, "encrypted: the table property encryption.key-id is set")
    assert await catalog.load(ORDERS, answer.etag) == NotModified()


async def test_a_uuid_that_pyiceberg_made_up_is_none(server: Server, catalog: PyIcebergCatalog) -> None:
    body = table("s3://b/t/metadata/1.json", **EMPTY, format_version=1)
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    del metadata["table-uuid"]
    server.other = reply(body)
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.table.uuid is None


async def test_a_staged_table_is_unwritten(server: Server, catalog: PyIcebergCatalog) -> None:
    server.other = whole(None)
    assert await catalog.load(ORDERS, None) == StagedCreate()


@pytest.mark.parametrize("kind", ["NoSuchTableException", "NoSuchIcebergTableException", "NoSuchNamespaceException"])
async def test_a_404_in_icebergs_shape_is_an_answer(server: Server, catalog: PyIcebergCatalog, kind: str) -> None:
    server.other = complaint(kind, 404)
    assert await catalog.load(ORDERS, None) == NoSuchTable()


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<h1>Not Found</h1>", 404, content_type="text/html"),
        reply(b"", 404),
        reply({"error": {"message": "no", "type": "NoSuchTableException", "code": 410}}, 404),
        complaint("NoSuchWarehouseException", 404),
    ],
    ids=["a page", "nothing", "another code", "another type"],
)
async def test_any_other_404_is_trouble(server: Server, catalog: PyIcebergCatalog, answer: Responder) -> None:
    server.other = answer
    trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
    with pytest.raises(ExternalError):
        await catalog.is_listed(ORDERS)


@pytest.mark.parametrize(
    ("answer", "kind", "scope"),
    [
        (complaint("NotAuthorizedException", 401), Permanent, ErrorScope.CATALOG),
        (complaint("TooManyRequests", 429), Transient, ErrorScope.CATALOG),
        (reply(b"", 502), Transient, ErrorScope.CATALOG),
        (reply(b"no JSON"), Transient, ErrorScope.CATALOG),
    ],
    ids=["401", "429", "502", "no JSON"],
)
async def test_what_is_no_answer_is_trouble(
    server: Server, catalog: PyIcebergCatalog, answer: Responder, kind: type[ExternalError], scope: ErrorScope
) -> None:
    server.other = answer
    trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (kind, scope)


async def test_levels_that_the_catalogs_own_separator_would_join_are_refused(
    server: Server, catalog: PyIcebergCatalog
) -> None:
    server.config = reply({"defaults": {"namespace-separator": "%2E"}, "overrides": {}})
    with pytest.raises(Permanent, match="which holds the catalog's own"):
        await catalog.load(TableIdentifier("lake", ("a.b",), "t"), None)


async def test_a_catalog_without_nested_namespaces_has_none(server: Server, catalog: PyIcebergCatalog) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/tables"):
            return await reply({"identifiers": [{"namespace": ["sales"], "name": "orders"}]})(request)
        if "parent" in request.query:
            return await complaint("BadRequestException", 400)(request)
        return await reply({"namespaces": [["sales"]]})(request)

    server.other = answer
    assert [one async for one in catalog.tables()] == [ORDERS]


def listing(*namespaces: str, tables: Responder | None = None, names: tuple[str, ...] = ("other",)) -> Responder:
    """Lists these namespaces, and in each the tables of these names; `tables` answers of `sales` instead."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.split("/")[3:]
        if not parts:
            found = [] if "parent" in request.query_string else [[name] for name in namespaces]
            return await reply({"namespaces": found})(request)
        if len(parts) == 3:
            return await complaint("BaseException", 404)(request)
        here = reply({"identifiers": [{"namespace": [parts[0]], "name": name} for name in names]})
        return await (tables if tables is not None and parts[0] == "sales" else here)(request)

    return respond


async def test_a_404_of_another_type_counts_once_no_listing_names_the_table(
    server: Server, catalog: PyIcebergCatalog
) -> None:
    server.other = listing("sales")
    assert await catalog.load(ORDERS, None) == NoSuchTable()
    server.other = listing("sales", names=("orders",))
    assert (await trouble_of(catalog)).scope is ErrorScope.TABLE


async def test_a_namespace_that_is_missing_by_another_type_must_not_be_listed(
    server: Server, catalog: PyIcebergCatalog
) -> None:
    server.other = listing("other", tables=complaint("BaseException", 404))
    assert await catalog.load(ORDERS, None) == NoSuchTable()
    assert not await catalog.is_listed(ORDERS)
    server.other = listing("sales", tables=complaint("BaseException", 404))
    assert (await trouble_of(catalog)).scope is ErrorScope.TABLE


@pytest.mark.parametrize(
    "answer",
    [
        complaint("InternalServerError", 500),
        reply(b"<html>", content_type="text/html"),
        reply({}),
        reply({"identifiers": None}),
    ],
    ids=["500", "a page", "no list", "null"],
)
async def test_a_namespace_that_fails_is_withheld_and_all_others_are_walked(
    server: Server, catalog: PyIcebergCatalog, answer: Responder
) -> None:
    server.other = listing("aa", "sales", "zz", tables=answer)
    found = [one async for one in catalog.tables()]
    assert [one.dotted for one in found if isinstance(one, TableIdentifier)] == ["aa.other", "zz.other"]
    assert [one.namespace for one in found if isinstance(one, UnlistedNamespace)] == [("sales",)]
