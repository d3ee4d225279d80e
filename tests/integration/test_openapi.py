"""The description of the HTTP interface is true: whatever is sent gets an answer that it names, and never an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio.to_thread
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sfn.http.openapi import SCHEMAS
from tests.integration.lake import Lake, lake
from tests.integration.process import TOKEN, Daemon, configure, serving

OPERATORS = "operators"
EXAMPLES = 25
"""Requests of each operation, beside those of its own examples."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NOTE = {
    "notification-type": "UPDATE",
    "payload": {"table-name": "t", "timestamp": 1, "table-uuid": "u", "metadata-location": "file:///t/metadata/1.json"},
}
RIGHT: dict[str, tuple[str, object]] = {
    "GET /livez": ("/livez", None),
    "GET /readyz": ("/readyz", None),
    "GET /metrics": ("/metrics", None),
    "OPTIONS /v1/events": ("/v1/events", None),
    "POST /v1/events": ("/v1/events", {"namespace": ["sales"], "name": "orders"}),
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications": (
        "/v1/prod/namespaces/sales/tables/orders/notifications",
        NOTE,
    ),
    "GET /admin/v1/status": ("/admin/v1/status", None),
    "GET /admin/v1/tables/{catalog}/{namespace}/{table}": ("/admin/v1/tables/prod/sales/orders", None),
    "GET /admin/v1/audit": ("/admin/v1/audit", None),
    "GET /admin/v1/dead-letters": ("/admin/v1/dead-letters", None),
    "GET /admin/v1/dead-letters/{number}": ("/admin/v1/dead-letters/1", None),
    "POST /admin/v1/dead-letters:replay": ("/admin/v1/dead-letters:replay", {"ids": [1]}),
    "POST /admin/v1/dead-letters:discard": ("/admin/v1/dead-letters:discard", {"filter": {"reason": "poison"}}),
    "POST /admin/v1/reconcile": ("/admin/v1/reconcile", {"catalogs": ["prod"]}),
    "POST /admin/v1/brakes/{catalog}:release": ("/admin/v1/brakes/prod:release", None),
    "POST /admin/v1/catalogs/{catalog}:adopt": ("/admin/v1/catalogs/prod:adopt", {"from": "another"}),
    "POST /admin/v1/catalogs/{catalog}:retire": ("/admin/v1/catalogs/prod:retire", {"undo": True}),
}
"""A request of each operation that is right as things stand here."""


@pytest.fixture(name="world", scope="module")
async def fixture_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Lake]:
    async with lake(tmp_path_factory.mktemp("described")) as made:
        yield made


@pytest.fixture(name="daemon", scope="module")
async def fixture_daemon(world: Lake) -> AsyncGenerator[Daemon]:
    """A service that knows a table, and has a dead letter."""
    async with serving(configure(world, f'[admin]\ntoken = "{OPERATORS}"\n[sweep]\nevery = "off"')) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
        assert (await daemon.client.post("/v1/events", content=b"{")).status_code == 400
        yield daemon


def shown(path: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {OPERATORS if path.startswith('/admin/') else TOKEN}"}


def fuzz(url: str) -> list[str]:
    """Send whatever the description allows, and much that it does not; what was asked of each operation."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    for operation in operations:
        _fuzz(operation, url, GenerationMode.POSITIVE)
        if operation.body or any(operation.iter_parameters()):
            _fuzz(operation, url, GenerationMode.NEGATIVE)
    return [operation.label for operation in operations]


def _fuzz(operation: APIOperation[Any, Any, Any, Any], url: str, mode: GenerationMode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:  # noqa: ANN401 - schemathesis makes it
        case.call_and_validate(base_url=url, headers=shown(operation.path), checks=CHECKS, timeout=20)

    send()


async def test_whatever_is_sent_gets_an_answer_that_is_described(daemon: Daemon) -> None:
    asked = await anyio.to_thread.run_sync(fuzz, str(daemon.client.base_url).rstrip("/"))
    assert set(asked) == set(RIGHT)
    assert daemon.process.poll() is None
    assert not daemon.records("request failed")


def told(url: str) -> list[httpx.Response]:
    """What came of events that the description allows, each of a catalog that the sender has."""
    operation = schemathesis.openapi.from_url(f"{url}/openapi.json")["/v1/events"]["POST"]
    answers = []

    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    @settings(
        max_examples=EXAMPLES,
        database=None,
        # What comes of them must not be chance.
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:  # noqa: ANN401 - schemathesis makes it
        for event in case.body if isinstance(case.body, list) else [case.body]:
            if "catalog" in event:
                event["catalog"] = "prod"
        answers.append(case.call(base_url=url, headers=shown("/v1/events"), timeout=20))

    send()
    return [httpx.Response(answer.status_code, content=answer.content) for answer in answers]


def pointers(refusal: httpx.Response) -> list[str]:
    """What a refused event is blamed for."""
    assert refusal.status_code == 422
    return [error["pointer"] for error in refusal.json()["errors"]]


async def test_events_that_the_description_allows_are_accepted(daemon: Daemon) -> None:
    answers = await anyio.to_thread.run_sync(told, str(daemon.client.base_url).rstrip("/"))
    refused = [answer for answer in answers if answer.status_code != 202]
    # No schema says which keys go together.
    assert {where.rpartition("/")[2] for answer in refused for where in pointers(answer)} <= {"destination", "purge"}
    assert any(answer.status_code == 202 and answer.json()["accepted"] for answer in answers)


async def test_no_part_of_the_description_takes_the_name_of_another(daemon: Daemon) -> None:
    schemas = (await daemon.client.get("/openapi.json")).json()["components"]["schemas"]
    assert {name: schemas[name] for name in SCHEMAS} == SCHEMAS


async def test_each_success_that_is_described_is_reached(daemon: Daemon) -> None:
    description = (await daemon.client.get("/openapi.json")).json()
    described = {
        (f"{method.upper()} {path}", int(status))
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if method != "parameters"
        for status in operation["responses"]
        if status.startswith("2")
    }
    reached = set()
    for label, (path, content) in RIGHT.items():
        answer = await daemon.client.request(label.partition(" ")[0], path, json=content, headers=dict(shown(path)))
        reached.add((label, answer.status_code))
    permitted = await daemon.client.options("/v1/events", headers={"WebHook-Request-Origin": "example.com"})
    reached.add(("OPTIONS /v1/events", permitted.status_code))
    assert reached == described


async def test_examples_of_the_description_are_right(daemon: Daemon) -> None:
    description = (await daemon.client.get("/openapi.json")).json()
    body = description["paths"]["/v1/events"]["post"]["requestBody"]["content"]["application/json"]
    assert (await daemon.client.post("/v1/events", json=body["example"])).status_code == 202
