"""What fake-gcs-server lacks: it deletes an object whatever the request's condition says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from typing_extensions import override

from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply


class ConditionalDeletes(HttpPool):
    """Connections to fake-gcs-server on which `ifGenerationMatch` of a delete holds, as it does at Google's.

    The server does delete a single generation where it is told one. That is no condition and can't take its place:
    Google's deletes an older version that way, for good, and says that all is well.
    """

    @override
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        if method != "DELETE":
            return await super().exchange(method, url, headers, body, most)
        told = url.replace("ifGenerationMatch=", "generation=")
        reply = await super().exchange(method, told, headers, body, most)
        if reply.status != HTTPStatus.NOT_FOUND:
            return reply
        object_itself = await super().exchange("GET", url.partition("?")[0], headers)
        if object_itself.status == HTTPStatus.NOT_FOUND:
            return reply
        refused = {"error": {"errors": [{"domain": "global", "reason": "conditionNotMet"}], "code": 412}}
        return HttpReply(HTTPStatus.PRECONDITION_FAILED, reply.headers, json.dumps(refused).encode())
