"""An HTTP proxy in front of a real server. It does to requests and answers what networks and services do to them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy
from yarl import URL

from tests.support.rest_catalog import Runner

_HOP_BY_HOP: Final = {"connection", "content-length", "keep-alive", "transfer-encoding"}
_STARTED_WITHIN: Final = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came.

    Attributes:
        number: of this one, from 1.
        headers: names without regard to case.
    """

    number: int
    method: str
    path: str
    headers: CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing is done to it, but that headers of these names do not arrive."""

    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """It is answered here, and not carried out."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lose:
    """It is carried out; the answer comes so many seconds late, if the one who asked still waits, or never.

    Attributes:
        after: seconds; None: the connection breaks at once.
    """

    after: float | None = None


@dataclass(frozen=True, slots=True)
class Break:
    """The connection breaks before anything is carried out."""


@dataclass(frozen=True, slots=True)
class Cut:
    """It is carried out; the connection breaks in the middle of the answer's body."""


@dataclass(frozen=True, slots=True)
class Instead:
    """It is carried out; where it is answered with that status, this is what arrives.

    Attributes:
        status: of the answer that is replaced.
        answer: what arrives.
    """

    status: int
    answer: Answer


Fault: TypeAlias = Pass | Answer | Lose | Break | Cut | Instead
Rule: TypeAlias = Callable[[Asked], Fault]


class Proxy:
    """The proxy, on a port and in a thread of its own.

    Args:
        upstream: URL of the server behind it.

    Attributes:
        rule: what is done to each request; may be replaced at any time.
        injected: how often each kind of fault was.
        asked: the requests so far, as `METHOD`.
    """

    def __init__(self, upstream: str, rule: Rule = lambda _: Pass()) -> None:
        self.rule = rule
        self.injected: Counter[str] = Counter()
        self.asked: list[str] = []
        self._upstream = upstream.rstrip("/")
        self._ready, self._ended = threading.Event(), threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_STARTED_WITHIN), "the proxy did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STARTED_WITHIN)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def _serve(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        ) as session:
            runner = Runner(lambda request: self._handle(session, request))
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", self._port)
            await site.start()
            self._port = runner.addresses[0][1]
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, session: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.method)
        fault = self.rule(Asked(len(self.asked), request.method, request.raw_path, request.headers))
        body = await request.read()
        if not isinstance(fault, Pass) or fault.without:
            self.injected[type(fault).__name__] += 1
        match fault:
            case Answer():
                return _answered(fault)
            case Break():
                return _broken(request)
            case Pass(without):
                return await self._forwarded(session, request, body, without)
            case Lose(after):
                answer = await self._forwarded(session, request, body, frozenset())
                if after is None:
                    return _broken(request)
                await asyncio.sleep(after)
                return answer
            case Instead(status, other):
                answer = await self._forwarded(session, request, body, frozenset())
                return answer if answer.status != status else _answered(other)
            case Cut():
                return await self._cut(request, await self._forwarded(session, request, body, frozenset()))

    async def _forwarded(
        self, session: aiohttp.ClientSession, request: web.BaseRequest, body: bytes, without: frozenset[str]
    ) -> web.Response:
        left_out = _HOP_BY_HOP | without
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in left_out]
        url = URL(f"{self._upstream}{request.raw_path}", encoded=True)
        async with session.request(
            request.method,
            url,
            headers=headers,
            data=body or None,
            allow_redirects=False,
            skip_auto_headers=["Content-Type"],
        ) as reply:
            kept = [(name, value) for name, value in reply.headers.items() if name.lower() not in _HOP_BY_HOP]
            return web.Response(status=reply.status, body=await reply.read(), headers=kept)

    async def _cut(self, request: web.BaseRequest, whole: web.Response) -> web.StreamResponse:
        content = whole.body if isinstance(whole.body, bytes) else b""
        headers = {**whole.headers, "Content-Length": str(max(len(content), 2))}
        answer = web.StreamResponse(status=whole.status, headers=headers)
        await answer.prepare(request)
        await answer.write(content[: len(content) // 2])
        return _broken(request)


def _answered(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=dict(answer.headers))


def _broken(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
