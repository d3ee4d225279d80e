"""A catalog's side that vends credentials, in one of the ways that catalogs do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime

import anyio
from aiohttp import web

from sfn.clock import SystemClock
from tests.unit.rest_server import Responder, complaint, reply, table

CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
LOAD = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"
PATH = "/v1/namespaces/sales/tables/orders"
GONE = complaint("NoSuchTableException", 404)


def in_storage_credentials(config: dict[str, str]) -> dict[str, object]:
    return {"storage-credentials": [{"prefix": "s3://lake/orders/", "config": config}]}


@dataclass
class Vending:
    """Gives the keys 1, 2, … of a table, at its endpoint and in its loads.

    Attributes:
        lasts: how long keys are good, None for not saying so.
        ahead: of our clock its own is by.
        late: seconds until it answers.
        endpoint, load: answer instead, where they are set.
        given: how many keys.
        shape: how they stand in an answer.
    """

    lasts: timedelta | None = timedelta(hours=1)
    ahead: timedelta = timedelta()
    late: float = 0.0
    endpoint: Responder | None = None
    load: Responder | None = None
    given: int = 0
    shape: Callable[[dict[str, str]], dict[str, object]] = field(default_factory=lambda: in_storage_credentials)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        await anyio.sleep(self.late)
        is_endpoint = request.path.endswith("/credentials")
        instead = self.endpoint if is_endpoint else self.load
        if instead is not None:
            return await instead(request)
        if not is_endpoint and "x-iceberg-access-delegation" not in request.headers:
            return await reply(table())(request)
        response = await reply({**({} if is_endpoint else table()), **self.shape(self.keys())})(request)
        response.headers["Date"] = format_datetime(SystemClock().now() + self.ahead, usegmt=True)
        return response

    def keys(self) -> dict[str, str]:
        self.given += 1
        config = {f"s3.{key}": f"{key}-number-{self.given}" for key in ("access-key-id", "secret-access-key")}
        if self.lasts is not None:
            ends = (SystemClock().now() + self.ahead + self.lasts).timestamp()
            config["s3.session-token-expires-at-ms"] = str(round(ends * 1000))
        return config


def listing(*endpoints: str) -> Responder:
    """A configuration that lists the catalog's endpoints."""
    return reply({"defaults": {}, "overrides": {}, "endpoints": list(endpoints)})
