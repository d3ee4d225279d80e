"""A catalog that holds commits back for as long as the test wishes, and makes them whether or not anybody waits."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import anyio
from aiohttp import web
from typing_extensions import override

from tests.faults.lake import NAMESPACE, Lake

_COMMIT = re.compile(rf"/v1/namespaces/{NAMESPACE}/tables/([a-z0-9_]+)")
_KEY = "Idempotency-Key"


@dataclass
class Holding(Lake):
    """A lake that takes commits too.

    Attributes:
        held: commits to hold back still, by table.
        entered: is set by the first one that is.
        release: lets all go on.
        commits: that arrived, by table.
    """

    held: Counter[str] = field(default_factory=Counter)
    entered: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)
    commits: Counter[str] = field(default_factory=Counter)
    _running: set[str] = field(default_factory=set)

    @override
    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        found = _COMMIT.fullmatch(request.path)
        if request.method != "POST" or found is None:
            return await super().answer(request)
        self.commits[found[1]] += 1
        return await self._commit(found[1], request.headers.get(_KEY, ""))

    async def _commit(self, name: str, key: str) -> web.StreamResponse:
        if key and key in self._running:
            error = {"message": "a request of that key runs", "type": "RequestInProgress", "code": 409}
            return web.json_response({"error": error}, status=409)
        self._running.add(key)
        if self.held[name]:
            self.held[name] -= 1
            self.entered.set()
            await self.release.wait()
        self._running.discard(key)
        table = self.tables[name]
        table.commit()
        return web.Response(body=table.body(), content_type="application/json")
