"""The SDK's requests, sent over the pool that all stores share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from types import TracebackType

from azure.core.pipeline import AsyncPipeline
from azure.core.pipeline.transport import AsyncHttpResponse, AsyncHttpTransport, HttpRequest
from multidict import CIMultiDict
from typing_extensions import override

from sfn.store.pool import BODY_LIMIT, HttpPool, HttpReply


class PoolTransport(AsyncHttpTransport[HttpRequest, "AzureResponse"]):
    """Sends over a pool, which stays open when this is closed.

    A body is whole before the SDK sees any of it: so the SDK has nothing to fetch again, as it would on its own account
    where one breaks off. What goes wrong on the way is a `Refused`, which the SDK lets pass.
    """

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool

    @override
    async def send(self, request: HttpRequest, *, most: int = BODY_LIMIT, **_: object) -> AzureResponse:
        """One request and its answer.

        Args:
            most: as of `Pool.exchange`: what the SDK does not know of the options given to it comes here.
        """
        body = request.data if isinstance(request.data, bytes) else b""
        reply = await self._pool.exchange(request.method, request.url, request.headers, body, most)
        return AzureResponse(request, reply)

    @override
    async def open(self) -> None:
        """The pool opens itself."""

    @override
    async def close(self) -> None:
        """The pool is somebody else's."""

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()


class AzureResponse(AsyncHttpResponse):
    """An answer in the form that the SDK reads.

    It shows the SDK no more of a refusal than its status and its headers: those name the error
    (https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2), and what else answers at an address
    may say what it likes.
    """

    def __init__(self, request: HttpRequest, reply: HttpReply) -> None:
        super().__init__(request, reply)
        self._body = reply.body if reply.status < HTTPStatus.MULTIPLE_CHOICES else b""
        self.status_code = reply.status
        self.headers = CIMultiDict(reply.headers)
        self.content_type = reply.headers.get("Content-Type")
        self.reason = f"status {reply.status}"

    @override
    def body(self) -> bytes:
        return self._body

    async def read(self) -> bytes:
        """As of the answers that the SDK's own transports give."""
        return self._body

    @override
    def stream_download(
        self, pipeline: AsyncPipeline[HttpRequest, AsyncHttpResponse], *, decompress: bool = True, **_: object
    ) -> AzureBody:
        return AzureBody(self)


class AzureBody(AsyncIterator[bytes]):
    """A body that is there already.

    Attributes:
        response: whose it is.
        content_length: bytes.
    """

    def __init__(self, response: AzureResponse) -> None:
        self.response = response
        self.content_length = len(response.body())
        self._left = [response.body()]

    @override
    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()
