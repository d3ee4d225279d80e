"""Iceberg's own REST catalog loses its database: no file changes, and all goes on once the database is back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx

from sfn.demo.environment import RestCatalogServer
from sfn.sfnfile.document import DocumentState
from tests.faults import inboxes
from tests.faults.files import contents, pointed
from tests.faults.lake import NAMESPACE
from tests.faults.service import Service, Setting, eventually, running
from tests.support.programs import runtime

TABLES, DROPPED = 40, 3
SWEEPS = 3
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}
Record = Callable[[str, object], None]


async def test_a_real_catalog_that_lost_its_database(tmp_path: Path, record_property: Record) -> None:
    with RestCatalogServer(tmp_path / "catalog", runtime()) as server:
        truth = _made(server)
        warehouse = server.folder / "warehouse"
        async with running(Setting(tmp_path / "sfn", server.uri, warehouse, sweep="2s")) as service:
            await eventually(lambda: not _wrong(warehouse, truth))
            before = contents(warehouse)
            server.stop()
            database, kept = server.folder / "catalog.db", shutil.move(server.folder / "catalog.db", tmp_path)
            server.start()
            letters = await _endured(service)
            changed = [path for path, body in contents(warehouse).items() if before.get(path) != body]
            server.stop()
            shutil.copy(kept, database)
            server.start()
            held = await service.release()
            await eventually(lambda: not inboxes.letters(service.setting.database))
            assert _wrong(warehouse, truth) == []
            await _dropped(server, service, warehouse, truth)
    figures = {"tables": TABLES, "changed": len(changed), "letters": letters, "released": held, "dropped": DROPPED}
    record_property("emptied", figures)
    print("emptied:", figures)
    assert (changed, letters, held) == ([], {"held-drop": TABLES}, TABLES)


async def _endured(service: Service) -> dict[str, int]:
    """Three sweeps of the empty catalog, then an event for each table; the dead letters."""
    done = service.told("swept")
    await eventually(lambda: service.told("swept") >= done + SWEEPS)
    for number in range(TABLES):
        assert await service.post(f"t{number}", f"gone-{number}", operation="drop") == 202
    await eventually(lambda: inboxes.unsettled(service.setting.database) == 0)
    return inboxes.letters(service.setting.database)


async def _dropped(server: RestCatalogServer, service: Service, warehouse: Path, truth: dict[str, str]) -> None:
    """Three tables are really dropped, and their files say so; those of no other."""
    gone = list(truth)[:DROPPED]
    for name in gone:
        del truth[name]
        path = f"{server.uri}/v1/namespaces/{NAMESPACE}/tables/{name}?purgeRequested=false"
        async with service.session.delete(path) as answer:
            answer.raise_for_status()
        assert await service.post(name, f"drop-{name}", operation="drop") == 202
    await eventually(lambda: all(_state(warehouse, name) is DocumentState.DROPPED for name in gone))
    assert _wrong(warehouse, truth) == []


def _made(server: RestCatalogServer) -> dict[str, str]:
    """New tables by name, and their pointers."""
    with httpx.Client(base_url=server.uri, trust_env=False, timeout=30) as client:
        client.post("/v1/namespaces", json={"namespace": [NAMESPACE]}).raise_for_status()
        pointers = {}
        for number in range(TABLES):
            wanted = {"name": f"t{number}", "schema": SCHEMA}
            made = client.post(f"/v1/namespaces/{NAMESPACE}/tables", json=wanted).raise_for_status()
            pointers[f"t{number}"] = str(made.json()["metadata-location"])
        return pointers


def _wrong(warehouse: Path, truth: dict[str, str]) -> list[str]:
    return [
        name
        for name, pointer in truth.items()
        if not pointed(warehouse / NAMESPACE / name, NAMESPACE, name).says(pointer)
    ]


def _state(warehouse: Path, name: str) -> DocumentState | None:
    document = pointed(warehouse / NAMESPACE / name, NAMESPACE, name).document
    return None if document is None else document.state
