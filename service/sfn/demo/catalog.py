"""A small Iceberg REST catalog: PyIceberg's SQL catalog behind HTTP, in a process of its own.

`sfn demo` and `sfn demo-catalog` run this catalog, so that they need no Java and no other download. It checks no
token, and listens on the loopback interface only. It has no views, no credentials and no pages of lists.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pyiceberg import exceptions
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AssertCreate

from sfn.demo.lake import FILE_IO
from sfn.sfnfile.locations import canonical, scheme_of

CATALOG_NAME: Final = "demo"
"""The catalog's name in the database, which may hold several."""

_BETWEEN_LEVELS: Final = "\x1f"
_TABLES: Final = "/v1/{prefix}/namespaces/{namespace}/tables"
_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    f"GET {_TABLES}",
    f"POST {_TABLES}",
    f"GET {_TABLES}/{{table}}",
    f"HEAD {_TABLES}/{{table}}",
    f"POST {_TABLES}/{{table}}",
    f"DELETE {_TABLES}/{{table}}",
    "POST /v1/{prefix}/tables/rename",
)
_ERRORS: Final[Mapping[type[Exception], tuple[HTTPStatus, str]]] = {
    exceptions.NoSuchTableError: (HTTPStatus.NOT_FOUND, "NoSuchTableException"),
    exceptions.NoSuchNamespaceError: (HTTPStatus.NOT_FOUND, "NoSuchNamespaceException"),
    exceptions.TableAlreadyExistsError: (HTTPStatus.CONFLICT, "AlreadyExistsException"),
    exceptions.NamespaceAlreadyExistsError: (HTTPStatus.CONFLICT, "AlreadyExistsException"),
    exceptions.NamespaceNotEmptyError: (HTTPStatus.CONFLICT, "NamespaceNotEmptyException"),
    exceptions.CommitFailedException: (HTTPStatus.CONFLICT, "CommitFailedException"),
    ValueError: (HTTPStatus.BAD_REQUEST, "BadRequestException"),
}


def open_catalog(folder: Path) -> SqlCatalog:
    """Open the SQL catalog of a folder; a new folder gets a database and a warehouse."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    properties = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": warehouse.as_uri(), "py-io-impl": FILE_IO}
    return SqlCatalog(CATALOG_NAME, **properties)


def application(catalog: SqlCatalog) -> FastAPI:
    """Return the HTTP application of a catalog."""
    app = FastAPI(openapi_url=None)
    for error in _ERRORS:
        app.add_exception_handler(error, _answer_error)
    _add_namespaces(app, catalog)
    _add_tables(app, catalog)
    return app


def _add_namespaces(app: FastAPI, catalog: SqlCatalog) -> None:
    @app.get("/v1/config")
    def config() -> JSONResponse:
        return JSONResponse({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    @app.get("/v1/namespaces")
    def list_namespaces(parent: str = "") -> JSONResponse:
        found = catalog.list_namespaces(_levels(parent) if parent else ())
        return JSONResponse({"namespaces": found, "next-page-token": None})

    @app.post("/v1/namespaces")
    def create_namespace(body: dict[str, Any]) -> JSONResponse:
        catalog.create_namespace(tuple(body["namespace"]), body.get("properties", {}))
        return JSONResponse({"namespace": body["namespace"], "properties": body.get("properties", {})})

    @app.get("/v1/namespaces/{namespace}")
    def load_namespace(namespace: str) -> JSONResponse:
        levels = _levels(namespace)
        return JSONResponse({"namespace": levels, "properties": catalog.load_namespace_properties(levels)})

    @app.head("/v1/namespaces/{namespace}", status_code=HTTPStatus.NO_CONTENT, response_class=Response)
    def namespace_exists(namespace: str) -> None:
        catalog.load_namespace_properties(_levels(namespace))

    @app.delete("/v1/namespaces/{namespace}", status_code=HTTPStatus.NO_CONTENT, response_class=Response)
    def drop_namespace(namespace: str) -> None:
        catalog.drop_namespace(_levels(namespace))


def _add_tables(app: FastAPI, catalog: SqlCatalog) -> None:
    commits = Lock()  # PyIceberg checks a commit's requirements before it writes, so two commits must not mix

    @app.get("/v1/namespaces/{namespace}/tables")
    def list_tables(namespace: str) -> JSONResponse:
        found = [{"namespace": levels, "name": name} for *levels, name in catalog.list_tables(_levels(namespace))]
        return JSONResponse({"identifiers": found, "next-page-token": None})

    @app.post("/v1/namespaces/{namespace}/tables")
    def create_table(namespace: str, body: dict[str, Any]) -> Response:
        wanted = CreateTableRequest.model_validate(
            {"location": None, "partition-spec": None, "write-order": None, **body}
        )
        _check_location(wanted.location)
        identifier = (*_levels(namespace), wanted.name)
        how: dict[str, Any] = {
            "location": wanted.location,
            "partition_spec": wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            "sort_order": wanted.write_order or UNSORTED_SORT_ORDER,
            "properties": wanted.properties,
        }
        if not wanted.stage_create:
            return _table(catalog.create_table(identifier, wanted.table_schema, **how))
        draft = catalog.create_table_transaction(identifier, wanted.table_schema, **how)
        return _answer(draft.table_metadata, None)

    @app.get("/v1/namespaces/{namespace}/tables/{name}")
    def load_table(namespace: str, name: str) -> Response:
        return _table(catalog.load_table((*_levels(namespace), name)))

    @app.head("/v1/namespaces/{namespace}/tables/{name}", status_code=HTTPStatus.NO_CONTENT, response_class=Response)
    def table_exists(namespace: str, name: str) -> None:
        catalog.load_table((*_levels(namespace), name))

    @app.post("/v1/namespaces/{namespace}/tables/{name}")
    def commit(namespace: str, name: str, body: dict[str, Any]) -> Response:
        levels = _levels(namespace)
        change = CommitTableRequest.model_validate({**body, "identifier": {"namespace": levels, "name": name}})
        for update in change.updates:
            _check_location(getattr(update, "location", None))
        with commits:
            table = _table_to_commit(catalog, (*levels, name), change)
            done = catalog.commit_table(table, change.requirements, change.updates)
        return _answer(done.metadata, done.metadata_location)

    @app.delete("/v1/namespaces/{namespace}/tables/{name}", status_code=HTTPStatus.NO_CONTENT, response_class=Response)
    def drop_table(namespace: str, name: str) -> None:
        catalog.drop_table((*_levels(namespace), name))

    @app.post("/v1/tables/rename", status_code=HTTPStatus.NO_CONTENT, response_class=Response)
    def rename_table(body: dict[str, Any]) -> None:
        source, destination = ((*body[key]["namespace"], body[key]["name"]) for key in ("source", "destination"))
        catalog.rename_table(source, destination)


def _check_location(location: str | None) -> None:
    """Refuse a location that is no folder of this machine: the demo has no keys of a store.

    Raises:
        ValueError: it is a URL of a store.
    """
    if location is not None and scheme_of(canonical(location)) != "file":
        raise ValueError(f"expected a location on this machine, such as file:///lake/orders, found {location}")


def _table_to_commit(catalog: SqlCatalog, identifier: tuple[str, ...], change: CommitTableRequest) -> Table:
    try:
        return catalog.load_table(identifier)
    except exceptions.NoSuchTableError:
        if AssertCreate() not in change.requirements:
            raise
        # The commit creates a staged table. PyIceberg reads only the name of the table that it is given.
        draft = catalog.create_table_transaction(identifier, Schema()).table_metadata
        return Table(identifier, draft, "", load_file_io({"py-io-impl": FILE_IO}), catalog)


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split(_BETWEEN_LEVELS))


def _table(table: Table) -> Response:
    return _answer(table.metadata, table.metadata_location)


def _answer(metadata: TableMetadata, location: str | None) -> Response:
    place = "" if location is None else f'"metadata-location":{json.dumps(location)},'
    return Response(f'{{{place}"metadata":{metadata.model_dump_json()},"config":{{}}}}', media_type="application/json")


def _answer_error(_: Request, error: Exception) -> JSONResponse:
    status, kind = next(found for type_, found in _ERRORS.items() if isinstance(error, type_))
    return JSONResponse({"error": {"message": str(error), "type": kind, "code": status}}, status)


def main(folder: Path, port: int) -> None:
    """Serve the catalog of a folder until the process is killed."""
    uvicorn.run(application(open_catalog(folder)), host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
