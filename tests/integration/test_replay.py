"""An answer through a gateway is that of the catalog itself: status, header and body, for every route and error."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import httpx
import pyarrow as pa
import pytest

from sfn.demo.environment import RestCatalogServer
from tests.integration.gateway_catalog import beside
from tests.integration.replay import FILLED, REQUESTS, Answer, Catalog
from tests.support.programs import runtime

Answers = Mapping[str, Answer]
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(name="found", scope="module")
def fixture_found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answers, Answers]]:
    """The answers of two catalogs that are told the same: of one itself, of the other through a gateway."""
    alone, gated, service = (tmp_path_factory.mktemp(name).resolve() for name in ("alone", "gated", "service"))
    with RestCatalogServer(alone, runtime()) as server:
        fill(server)
        direct = Catalog(server.uri, alone).answers(REQUESTS)
    module = ("tests.integration.child_processes", "sweeping")
    with RestCatalogServer(gated, runtime()) as server, beside(server, service, module) as place:
        fill(server)
        through = Catalog(place.uri, gated).answers(REQUESTS)
        yield direct, through
        held = place.until_followed()
        assert len(held) > 5
        assert place.intents(left=False) == 0


def fill(server: RestCatalogServer) -> None:
    """Make a table with rows."""
    catalog = server.client()
    catalog.create_namespace(FILLED[0])
    table = catalog.create_table(FILLED, ROWS.schema)
    table.append(ROWS)
    # One data file in the end: of several the server plans one or the other first.
    table.overwrite(ROWS.slice(1))


def plain(name: str, answer: Answer) -> Answer:
    """An answer as it is to be compared."""
    if name.startswith("configuration"):
        # The gateway reads it, and asks for it as it can be read.
        return answer.without("content-encoding", "content-length")
    # Jetty tells the length 0 of a body that is not sent, which would be that of the table (RFC 9110, section 8.6). An
    # error's has the stack in it, and who called the server's own code depends on which of its threads was free.
    is_head = REQUESTS[name].line.startswith("HEAD ")
    unsent = answer.status == httpx.codes.NOT_MODIFIED or (is_head and httpx.codes.is_error(answer.status))
    return answer.without("content-length") if unsent else answer


def test_every_answer_is_the_same(found: tuple[Answers, Answers]) -> None:
    direct, through = found
    different = [
        f"{name}: {REQUESTS[name].line}\n  itself: {wanted}\n  through the gateway: {got}"
        for name in REQUESTS
        if (wanted := plain(name, direct[name])) != (got := plain(name, through[name]))
    ]
    assert not different, "\n".join(different)


def test_requests_and_answers_are_of_all_kinds(found: tuple[Answers, Answers]) -> None:
    direct, _ = found
    statuses = Counter(answer.status for answer in direct.values())
    print(f"{len(direct)} requests: {dict(sorted(statuses.items()))}")
    assert {200, 204, 304, 400, 404, 405, 406, 409, 422, 500} == statuses.keys()
    assert sum(("content-encoding", "gzip") in answer.header for answer in direct.values()) > 5
    assert sum(any(name == "etag" for name, _ in answer.header) for answer in direct.values()) > 5


def test_every_route_that_the_catalog_lists_is_asked_for(found: tuple[Answers, Answers]) -> None:
    direct, _ = found
    listed = [route.replace(" v1", " /v1") for route in json.loads(direct["configuration"].body)["endpoints"]]
    ours = [route.replace("/{prefix}", "") for route in listed if "://" not in route]
    asked = [request.line.partition("?")[0] for request in REQUESTS.values()]
    patterns = {route: re.compile(re.sub(r"\{[^}]*\}", "[^/]+", route)) for route in ours}
    assert len(ours) > 25
    assert [route for route, pattern in patterns.items() if not any(map(pattern.fullmatch, asked))] == []
