"""An event of every type that a catalog may send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sfn.formats.event import Headers, Sender
from tests.dialects.requests import ONE, SENDER, UUID, document

NOTIFICATION: Final = "/v1/theirs/namespaces/ns1/tables/orders/notifications"
_POLARIS_OPERATIONS: Final = (
    "CREATE",
    "REGISTER",
    "UPDATE",
    "COMMIT",
    "DROP",
    "RENAME",
    "REFRESH",
    "LOAD",
    "LIST",
    "CHECK_EXISTS",
)
"""On tables: each is told of before and after."""
_POLARIS_OTHERS: Final = (
    "CREATE_VIEW",
    "COMMIT_VIEW",
    "DROP_VIEW",
    "CREATE_NAMESPACE",
    "DROP_NAMESPACE",
    "CREATE_GENERIC_TABLE",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One event.

    Attributes:
        dialect: what it is recognised as.
        title: its type, as the page shows it.
        content: the JSON document.
        sender: whose it is.
        headers: of its request.
        path: where it is sent to.
    """

    dialect: str
    title: str
    content: object
    sender: Sender = SENDER
    headers: Headers = ()
    path: str = "/v1/events"


def lakekeeper(told: str, data: object = None, **more: object) -> dict[str, object]:
    """One of Lakekeeper's; an underscore in a name is a hyphen there."""
    extensions = {key.replace("_", "-"): value for key, value in more.items()}
    return document("lakekeeper-dropTable") | {"type": told, "data": data} | extensions


def nessie(told: str, **more: object) -> dict[str, object]:
    """One of Nessie's, of the branch main."""
    common = {
        key: value for key, value in document("nessie-content-stored").items() if key not in {"content", "contentKey"}
    }
    return common | {"type": told, "reference": {"type": "BRANCH", "name": "main", "hash": "cafebabe"}} | more


def glue(detail_type: str, change: str, **more: object) -> dict[str, object]:
    """One of AWS Glue's."""
    detail = {"databaseName": "sales", "typeOfChange": change}
    return document("glue-update-table") | {"detail-type": detail_type, "detail": detail | more}


def iceberg(told: str, **more: object) -> dict[str, object]:
    """One of a REST catalog's; an underscore in a name is a hyphen there."""
    fields = {key.replace("_", "-"): value for key, value in more.items()}
    operation = {"operation-type": told, "identifier": ORDERS, "table-uuid": UUID}
    return {"event-id": "e1", "request-id": "r1", "timestamp-ms": 1788000000123, "operation": operation | fields}


def cloudevent(data: object = None, source: str = "/ci/spark", **more: object) -> dict[str, object]:
    """Anybody's."""
    return {"specversion": "1.0", "id": "e1", "source": source, "type": "org.example.commit", "data": data, **more}


ORDERS: Final = {"namespace": ["a", "b"], "name": "orders"}

RENAMED: Final = {"source": ORDERS, "destination": {"namespace": ["a"], "name": "archive"}}

ICEBERG_TABLE: Final = {
    "type": "ICEBERG_TABLE",
    "id": "c1",
    "metadataLocation": "s3://wh/t/metadata/00001-x.metadata.json",
}

KEY: Final = {"elements": ["a", "b", "orders"]}

OF_TABLE: Final = "Glue Data Catalog Table State Change"

OF_DATABASE: Final = "Glue Data Catalog Database State Change"

REPORT: Final = document("iceberg-commit-report")


def polaris(told: str, **more: object) -> dict[str, object]:
    """One of Polaris' events, as it is sent to Kafka."""
    return document("polaris-kafka-after-update-table") | {"event_type": told, "catalog_name": "theirs"} | more


def polaris_webhook(told: str, **more: object) -> dict[str, object]:
    """One of Polaris' events, as it is sent to a webhook."""
    return document("polaris-webhook-pr5084") | {"type": told} | more


def _polaris_notifications() -> Iterator[tuple[str, object, str]]:
    """A notification of each type, and its path."""
    for told in ("CREATE", "UPDATE", "DROP", "VALIDATE", "UNKNOWN"):
        yield f"`{told}`", document("polaris-notification-update") | {"notification-type": told}, NOTIFICATION


def _polaris_events() -> Iterator[tuple[str, object]]:
    """An event of each type."""
    rename = document("polaris-kafka-after-rename-table") | {"catalog_name": "theirs"}
    nameless = {"table_name": None, "namespace": None}
    for moment in ("AFTER", "BEFORE"):
        for operation in _POLARIS_OPERATIONS:
            told = f"{moment}_{operation}_TABLE"
            match operation:
                case "RENAME":
                    yield f"`{told}`", rename | {"event_type": told}
                case "REFRESH":
                    yield f"`{told}`", polaris(told, **nameless, table_identifier=["ns1", "orders"])
                case "LIST":
                    yield f"`{told}S`", polaris(f"{told}S", **nameless)
                case _:
                    yield f"`{told}`", polaris(told)
        yield f"`{moment}_COMMIT_TRANSACTION`", polaris(f"{moment}_COMMIT_TRANSACTION", **nameless)
        yield f"`{moment}_SEND_NOTIFICATION`", polaris(f"{moment}_SEND_NOTIFICATION")
    for told in _POLARIS_OTHERS:
        yield f"`AFTER_{told}`", polaris(f"AFTER_{told}", **nameless)
    yield "any other type", polaris("AFTER_ROTATE_CREDENTIALS")


def _polaris_webhooks() -> Iterator[tuple[str, object]]:
    """A webhook's event of each type."""
    for moment in ("AFTER", "BEFORE"):
        for operation in _POLARIS_OPERATIONS:
            told = f"{moment}_{operation}_TABLE{'S' if operation == 'LIST' else ''}"
            more = {"tableidentifier": "ns1.orders"} if operation == "REFRESH" else {}
            yield f"`{told}`", polaris_webhook(told, **more)
        for told in ("COMMIT_TRANSACTION", "SEND_NOTIFICATION"):
            yield f"`{moment}_{told}`", polaris_webhook(f"{moment}_{told}")
    for told in _POLARIS_OTHERS:
        yield f"`AFTER_{told}`", polaris_webhook(f"AFTER_{told}")
    yield "any other type", polaris_webhook("AFTER_ROTATE_CREDENTIALS")


def _lakekeeper() -> Iterator[tuple[str, object]]:
    create = {"name": "orders", "location": None, "schema": {"type": "struct", "fields": []}, "stage-create": None}
    yield "`createTable`", lakekeeper("createTable", create)
    yield "`createTable` with `stage-create`", lakekeeper("createTable", create | {"stage-create": True})
    yield "`registerTable`", lakekeeper("registerTable")
    yield "`updateTable`", document("lakekeeper-updateTable")
    yield "`renameTable`", lakekeeper("renameTable", RENAMED, namespace="a\x1fb")
    yield "`renameTable` without `data`", lakekeeper("renameTable", namespace="a\x1fb")
    yield "`dropTable`", document("lakekeeper-dropTable")
    yield "`undropTabulars`", lakekeeper("undropTabulars", namespace="a\x1fb")
    yield "`undropTabulars` of a view", lakekeeper("undropTabulars", namespace="a\x1fb", tabular_type="View")
    for told in ("createView", "updateView", "renameView", "dropView"):
        yield f"`{told}`", lakekeeper(told, tabular_type="View")
    yield "any type with `tabular-type` `GenericTable`", lakekeeper("dropTable", tabular_type="GenericTable")
    yield "any other type", lakekeeper("protectTable")


def _nessie() -> Iterator[tuple[str, object]]:
    stored = nessie("CONTENT_STORED", contentKey=KEY, content=ICEBERG_TABLE)
    yield "`CONTENT_STORED`", stored
    yield "`CONTENT_REMOVED`", nessie("CONTENT_REMOVED", contentKey=KEY)
    yield "`CONTENT_REMOVED` outside every namespace", nessie("CONTENT_REMOVED", contentKey={"elements": ["a"]})
    yield "either, on a branch that is not mapped", stored | {"reference": {"type": "BRANCH", "name": "feature"}}
    yield "either, of a tag", stored | {"reference": {"type": "TAG", "name": "main"}}
    for kind in ("ICEBERG_VIEW", "NAMESPACE", "DELTA_LAKE_TABLE", "UDF"):
        yield (
            f"`CONTENT_STORED` of `{kind}`",
            nessie("CONTENT_STORED", contentKey=KEY, content={"type": kind, "id": "c2"}),
        )
    yield "`REFERENCE_UPDATED`", nessie("REFERENCE_UPDATED", hashBefore="a", hashAfter="b")
    for told in ("COMMIT", "MERGE", "TRANSPLANT", "REFERENCE_CREATED", "REFERENCE_DELETED"):
        yield f"`{told}`", nessie(told)
    yield "any other type", nessie("TABLE_ALTERED")


def _glue() -> Iterator[tuple[str, object]]:
    yield "`UpdateTable`", document("glue-update-table")
    for told in ("CreateTable", "DeleteTable", "BatchDeleteTable"):
        yield f"`{told}`", glue(OF_DATABASE, told, changedTables=["orders"])
    for told in ("CreateDatabase", "DeleteDatabase"):
        yield f"`{told}`", glue(OF_DATABASE, told, changedTables=[])
    for told in ("Create", "BatchCreate", "Update", "BatchUpdate", "Delete", "BatchDelete"):
        yield f"`{told}Partition`", glue(OF_TABLE, f"{told}Partition", tableName="orders", changedPartitions=["p=1"])
    yield "any other `detail-type`", glue("Glue Job State Change", "Succeeded")


def _iceberg() -> Iterator[tuple[str, object]]:
    for told in ("create-table", "register-table", "update-table", "drop-table"):
        yield f"`{told}`", iceberg(told)
    yield "`drop-table` with `purge`", iceberg("drop-table", purge=True)
    yield "`rename-table`", iceberg("rename-table", **RENAMED)
    for told in ("create-view", "update-view", "drop-view", "rename-view", "create-namespace", "drop-namespace"):
        yield f"`{told}`", iceberg(told)
    yield "any other type", iceberg("x-compact")


def _cloudevents() -> Iterator[tuple[str, object]]:
    yield "with our own format as `data`", cloudevent(ORDERS)
    yield "any other", cloudevent({"orders": 1})


def _own() -> Iterator[tuple[str, object]]:
    yield "no `operation`, or `commit`", ORDERS
    for told in ("create", "register", "drop"):
        yield f"`{told}`", ORDERS | {"operation": told}
    yield "`drop` with `purge`", ORDERS | {"operation": "drop", "purge": True}
    yield "`rename`", ORDERS | {"operation": "rename", "destination": {"namespace": ["a"], "name": "archive"}}


def _samples() -> Iterator[Sample]:
    for title, content, path in _polaris_notifications():
        yield Sample("polaris", title, content, path=path)
    for title, content in _polaris_events():
        yield Sample("polaris-events", title, content)
    for title, content in _polaris_webhooks():
        yield Sample("polaris-webhook", title, content, ONE)
    of_catalogs = {"lakekeeper": _lakekeeper(), "nessie": _nessie(), "glue": _glue()}
    for dialect, made in of_catalogs.items():
        yield from (Sample(dialect, title, content) for title, content in made)
    without_catalog = {"iceberg": _iceberg(), "cloudevents": _cloudevents(), "own": _own()}
    for dialect, made in without_catalog.items():
        yield from (Sample(dialect, title, content, ONE) for title, content in made)
    for told in ("commit-report", "scan-report"):
        yield Sample("reports", f"`{told}`", REPORT | {"report-type": told})


SAMPLES: Final = tuple(_samples())


def by_dialect() -> Mapping[str, tuple[Sample, ...]]:
    """The samples of each dialect."""
    names = dict.fromkeys(sample.dialect for sample in SAMPLES)
    return {name: tuple(sample for sample in SAMPLES if sample.dialect == name) for name in names}
