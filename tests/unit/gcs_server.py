"""Answers of Cloud Storage, and the adapter's requests to a server that gives them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from typing_extensions import override

from sfn.google_auth import GoogleIdentity
from sfn.storage.gcs import GcsClient, GcsOptions
from sfn.storage.remote_store import HttpPool
from tests.support.object_store import Asked, Responder, Server, reply

KEY = "gs://lake/sales/metadata/_sfn/orders.ver"
TAG = "1700000000000001"


def found(body: object, status: int = 200, **headers: str) -> Responder:
    """An object, or what was written."""
    return reply(body, status, x_goog_generation=TAG, **headers)


def complaint(status: int, reason: str, **headers: str) -> Responder:
    """An error of the JSON API."""
    error = {"domain": "global", "reason": reason, "message": f"{reason}, told so"}
    return reply({"error": {"errors": [error], "code": status, "message": "told so"}}, status, **headers)


def xml_complaint(status: int, code: str, **headers: str) -> Responder:
    """An error of the XML API."""
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return reply(text.encode(), status, **headers)


@dataclass(slots=True)
class GcsServer(Server):
    """A server that is asked of objects, and of their bucket.

    Attributes:
        bucket: answers what is asked of the bucket itself.
    """

    bucket: Responder = field(default_factory=lambda: reply({"name": "lake"}))

    @override
    async def respond(self, asked: Asked) -> web.StreamResponse:
        return await (self.bucket if asked.path == "/storage/v1/b/lake?fields=name" else self.answer)(asked)


@asynccontextmanager
async def asking(
    server: Server,
    identity: GoogleIdentity | None = None,
    *,
    billing_project: str | None = None,
    pauses: Sequence[float] = (),
) -> AsyncGenerator[GcsClient]:
    """The adapter's requests to a server."""
    pool = HttpPool(limit=5.0)
    terms = GcsOptions(identity=identity, endpoint=server.url, billing_project=billing_project)
    try:
        yield GcsClient(terms, pool, pauses=pauses)
    finally:
        await pool.close()
