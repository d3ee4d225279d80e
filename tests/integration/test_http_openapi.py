"""The FastAPI routes and their OpenAPI description."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import anyio.to_thread
import httpx
import pytest
import schemathesis
from fastapi import APIRouter
from fastapi.openapi.models import OpenAPI
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
from structlog.testing import capture_logs

from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.openapi import SCHEMAS
from sfn.http.responses import PROBLEM_MEDIA_TYPE
from sfn.http.senders import anonymous_senders
from tests.promises.inboxes import table
from tests.support.listener import OPERATOR, Office, Service, client
from tests.support.service import TOKEN, Daemon, Lake, configure, lake, serving

# OpenAPI description.


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
    "GET /admin/v1/tables": ("/admin/v1/tables?catalog=prod&sort=lag", None),
    "GET /admin/v1/drop-limits/{catalog}": ("/admin/v1/drop-limits/prod", None),
    "GET /admin/v1/dead-letter-causes": ("/admin/v1/dead-letter-causes", None),
    "GET /admin/v1/tables/{catalog}/{namespace}/{table}": ("/admin/v1/tables/prod/sales/orders?ask_catalog=true", None),
    "POST /admin/v1/tables/{catalog}/{namespace}/{table}:check": ("/admin/v1/tables/prod/sales/orders:check", None),
    "GET /admin/v1/audit": ("/admin/v1/audit", None),
    "GET /admin/v1/dead-letters": ("/admin/v1/dead-letters", None),
    "GET /admin/v1/dead-letters/{number}": ("/admin/v1/dead-letters/1", None),
    "POST /admin/v1/dead-letters:replay": ("/admin/v1/dead-letters:replay", {"ids": [1]}),
    "POST /admin/v1/dead-letters:discard": ("/admin/v1/dead-letters:discard", {"filter": {"reason": "poison"}}),
    "POST /admin/v1/reconcile": ("/admin/v1/reconcile", {"catalogs": ["prod"]}),
    "POST /admin/v1/drop-limits/{catalog}:release": ("/admin/v1/drop-limits/prod:release", None),
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
        max_examples=2 * EXAMPLES,
        database=None,
        # The result must not depend on chance. Half as many examples contain no event of a published table.
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
    for example in body["examples"].values():
        assert (await daemon.client.post("/v1/events", json=example["value"])).status_code == 202


# FastAPI routes.


RELEASE = "/admin/v1/drop-limits/prod:release"
NOTIFICATIONS = "/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications"


@pytest.fixture
async def operator(service: Service, office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, office.router()) as operator:
        yield operator


async def released(office: Office) -> list[str]:
    """The catalogs whose brake was released, the last one first."""
    return [entry.target for entry in await office.inbox.audit_log(None, 9) if entry.action == "release"]


def assert_problem(reply: httpx.Response, status: int) -> None:
    assert (reply.status_code, reply.headers["content-type"]) == (status, PROBLEM_MEDIA_TYPE)
    assert reply.json()["status"] == status
    assert reply.json()["title"] == HTTPStatus(status).phrase


async def test_an_operator_releases_a_brake(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.settled(table("orders"), DeadLettered(DeadLetterReason.HELD_DROP, "gone"))
    reply = await operator.post(RELEASE, headers=OPERATOR)
    assert (reply.status_code, reply.json()) == (200, {"released": 1})
    assert (await operator.post("/admin/v1/drop-limits/dev.eu:release", headers=OPERATOR)).status_code == 200
    assert await released(office) == ["dev.eu", "prod"]


async def test_a_release_is_logged_and_one_that_fails_is_not(operator: httpx.AsyncClient, office: Office) -> None:
    with capture_logs() as logs:
        await operator.post(RELEASE, headers=OPERATOR)
        office.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
        await operator.post(RELEASE, headers=OPERATOR)
    assert logs == [
        {"event": "drop limit released", "log_level": "info", "catalog": "prod", "tables": 0, "actor": "main"}
    ]


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer x", "Basic an-operators-token", "Bearer \xe9"])
@pytest.mark.parametrize("path", [RELEASE, "/admin/v1/drop-limits/unknown:release"])
async def test_nobody_else_does(
    operator: httpx.AsyncClient, office: Office, authorization: str | None, path: str
) -> None:
    headers = [] if authorization is None else [(b"Authorization", authorization.encode("latin-1"))]
    reply = await operator.post(path, headers=headers)
    assert_problem(reply, 401)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert await released(office) == []


async def test_who_is_turned_away_is_logged_with_an_address_but_not_each_time(operator: httpx.AsyncClient) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            await operator.post(RELEASE, headers={"Authorization": "Bearer gu3ss"})
    (entry,) = logs
    told = (entry["event"], entry["where"], entry["status"], entry["client"], entry["suppressed"])
    assert told == ("request refused", "admin", 401, "127.0.0.1", 0)
    assert "gu3ss" not in str(entry)


@pytest.mark.parametrize("other", ["Bearer x", "Bearer an-operators-token"])
async def test_two_headers_do_not_say_who_it_is(operator: httpx.AsyncClient, office: Office, other: str) -> None:
    shown = ("Authorization", OPERATOR["Authorization"])
    for headers in ([shown, ("Authorization", other)], [("Authorization", other), shown]):
        assert_problem(await operator.post(RELEASE, headers=headers), 401)
    assert await released(office) == []


async def test_an_unknown_catalog_is_404(operator: httpx.AsyncClient, office: Office) -> None:
    assert_problem(await operator.post("/admin/v1/drop-limits/unknown:release", headers=OPERATOR), 404)
    assert await released(office) == []


async def test_a_brake_is_released_with_post_alone(operator: httpx.AsyncClient) -> None:
    reply = await operator.get(RELEASE, headers=OPERATOR)
    assert_problem(reply, 405)
    assert reply.headers["allow"] == "POST"


async def test_trouble_of_the_inbox_is_503(operator: httpx.AsyncClient, office: Office, service: Service) -> None:
    office.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=1.5)
    reply = await operator.post(RELEASE, headers=OPERATOR)
    assert_problem(reply, 503)
    assert reply.headers["retry-after"] == "2"
    assert service.broken == []


async def test_a_broken_inbox_is_503_and_told(operator: httpx.AsyncClient, office: Office, service: Service) -> None:
    office.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
    assert_problem(await operator.post(RELEASE, headers=OPERATOR), 503)
    assert service.broken == [office.inbox.failure]


async def test_an_error_of_ours_is_500(operator: httpx.AsyncClient, office: Office) -> None:
    office.inbox.failure = ZeroDivisionError("a bug")
    reply = await operator.post(RELEASE, headers=OPERATOR)
    assert_problem(reply, 500)
    assert "a bug" not in reply.text


async def described(*routers: APIRouter) -> dict[str, Any]:
    async with client(Service(), *routers) as reader:
        reply = await reader.get("/openapi.json")
        assert (await reader.get("/openapi.json")).content == reply.content
    described: dict[str, Any] = reply.json()
    return described


async def test_the_description_is_openapi_with_every_answer() -> None:
    description = await described()
    OpenAPI.model_validate(description)
    assert description["info"]["version"] == "1.2.3"
    assert set(description["paths"]) == {"/v1/events", NOTIFICATIONS, "/livez", "/readyz"}
    answers = description["paths"]["/v1/events"]["post"]["responses"]
    assert set(answers) == {"202", "400", "401", "403", "405", "408", "413", "415", "422", "429", "500", "503"}
    assert all("Retry-After" in answers[status]["headers"] for status in ("429", "503"))
    assert set(description["paths"]["/v1/events"]["options"]["responses"]) == {"200", "204", "400", "405", "500"}
    assert "503" in description["paths"]["/readyz"]["get"]["responses"]
    answers = description["paths"][NOTIFICATIONS]["post"]["responses"]
    assert set(answers) == {"204", "400", "401", "403", "404", "405", "408", "413", "415", "429", "500", "503"}
    assert all("Retry-After" in answers[status]["headers"] for status in ("429", "503"))
    schemes = description["components"]["securitySchemes"]
    for path in ("/v1/events", NOTIFICATIONS):
        assert {name for one in description["paths"][path]["post"]["security"] for name in one} <= set(schemes)


async def test_every_example_of_the_description_is_taken() -> None:
    description = await described()
    sent: list[tuple[str, object]] = []
    for path in ("/v1/events", NOTIFICATIONS):
        item = description["paths"][path]
        named = {one["name"]: one["example"] for one in item.get("parameters", [])}
        body = item["post"]["requestBody"]["content"]["application/json"]
        examples = [one["value"] for one in body["examples"].values()]
        sent.extend((path.format(**named), example) for example in examples)
    assert len(sent) == 5
    async with client(Service(senders=anonymous_senders(["prod"]))) as sender:
        statuses = [(await sender.post(path, json=example)).status_code for path, example in sent]
    assert statuses == [202, 202, 204, 204, 204]


async def test_every_reference_of_the_description_leads_somewhere() -> None:
    description = await described()
    schemas = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    assert set(references(description)) <= schemas
    assert "#/components/schemas/NativeEvent" in references(description)


def references(part: object) -> list[str]:
    match part:
        case {"$ref": str(reference)}:
            return [reference]
        case dict():
            return [found for inner in part.values() for found in references(inner)]
        case list():
            return [found for inner in part for found in references(inner)]
        case _:
            return []


async def test_operators_routes_are_described_where_there_are_any() -> None:
    description = await described(Office().router())
    OpenAPI.model_validate(description)
    post = description["paths"]["/admin/v1/drop-limits/{catalog}:release"]["post"]
    assert post["security"] == [{"operator": []}]
    schemes = description["components"]["securitySchemes"]
    assert (schemes["operator"]["type"], schemes["operator"]["scheme"]) == ("http", "bearer")
    assert "not needed" in schemes["bearer"]["description"]
    assert "not needed" not in schemes["operator"]["description"]
    assert "authorization" not in str(post.get("parameters")).lower()


async def test_a_malformed_parameter_is_a_problem_that_repeats_nothing(service: Service) -> None:
    router = APIRouter()

    async def strict(number: int) -> int:
        return number

    router.add_api_route("/strict", strict)
    async with client(service, router) as reader:
        reply = await reader.get("/strict", params={"number": "s3cret"})
    assert_problem(reply, 422)
    assert "s3cret" not in reply.text
