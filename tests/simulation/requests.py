"""What clients of a REST catalog send, as they write it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from sfn.domain.identifiers import Table, TableIdentifier
from tests.simulation.served import Request

ROOT = "/v1/main"
"""Where the catalog's REST API begins for a client, with the prefix that it was told to use."""


def created(name: TableIdentifier, place: str, *, staged: bool = False) -> Request:
    """A table is created, or but staged."""
    body = {"name": name.name, "location": place, "stage-create": staged}
    return _posted(f"{_namespace(name)}/tables", body)


def committed(name: TableIdentifier, table: Table, *, exactly: bool = False, place: str | None = None) -> Request:
    """A commit to a table.

    Args:
        exactly: only on top of what the client saw.
        place: where the table is to be from now on, where that changes.
    """
    return _posted(_path(name), _change(table, exactly=exactly, place=place))


def committed_first(name: TableIdentifier, place: str) -> Request:
    """The commit that ends a staged create."""
    return _posted(_path(name), {"requirements": [{"type": "assert-create"}], "location": place})


def committed_together(tables: Sequence[tuple[TableIdentifier, Table]]) -> Request:
    """A commit to several tables."""
    changes = [{"identifier": _identifier(name), **_change(table)} for name, table in tables]
    return _posted(f"{ROOT}/transactions/commit", {"table-changes": changes})


def registered(name: TableIdentifier, pointer: str) -> Request:
    """A metadata file gets a name."""
    return _posted(f"{_namespace(name)}/register", {"name": name.name, "metadata-location": pointer})


def renamed(old: TableIdentifier, new: TableIdentifier) -> Request:
    """A table gets another name."""
    return _posted(f"{ROOT}/tables/rename", {"source": _identifier(old), "destination": _identifier(new)})


def dropped(name: TableIdentifier, *, purge: bool = False) -> Request:
    """A table is dropped, with its files or without."""
    return Request("DELETE", f"{_path(name)}?purgeRequested={str(purge).lower()}")


def unregistered(name: TableIdentifier) -> Request:
    """A table is no table of the catalog any more, and its files stay."""
    return _posted(f"{_path(name)}/unregister", {})


def emptied(name: TableIdentifier) -> Request:
    """A table's namespace is dropped with all that is in it."""
    return Request("DELETE", _namespace(name))


def _posted(path: str, body: dict[str, Any]) -> Request:
    return Request("POST", path, json.dumps(body).encode())


def _namespace(name: TableIdentifier) -> str:
    return f"{ROOT}/namespaces/{quote(chr(0x1F).join(name.namespace), safe='')}"


def _path(name: TableIdentifier) -> str:
    return f"{_namespace(name)}/tables/{quote(name.name, safe='')}"


def _identifier(name: TableIdentifier) -> dict[str, Any]:
    return {"namespace": list(name.namespace), "name": name.name}


def _change(table: Table, *, exactly: bool = False, place: str | None = None) -> dict[str, Any]:
    requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "is": table.uuid}]
    if exactly:
        requirements.append({"type": "assert-ref-snapshot-id", "is": table.snapshot_id})
    change: dict[str, Any] = {"requirements": requirements}
    return change if place is None else change | {"location": place}
