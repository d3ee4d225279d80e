"""Answers of Blob Storage, and the adapter's requests to a server that gives them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sfn.storage.azure import AccountKey, AzureClient, AzureIdentity, AzureOptions
from sfn.storage.remote_store import HttpPool
from tests.support.object_store import PRIVATE, Responder, Server, reply

HOME = "abfss://lake@acct.dfs.core.windows.net/"
KEY = f"{HOME}sales/metadata/_sfn/orders.ver"
TAG = '"0x8DE2A1B2C3D4E5F"'
ACCOUNT_KEY = b64encode(PRIVATE.encode()).decode()
SOMEBODY = AccountKey(ACCOUNT_KEY)


def found(body: bytes, **headers: str) -> Responder:
    """A part of a blob that has no more, as whoever asks for a range gets it."""
    return reply(body, 206, etag=TAG, content_range=f"bytes 0-{len(body) - 1}/{len(body)}", **headers)


def complaint(status: int, code: str, **headers: str) -> Responder:
    """An error of the service: the code is in a header, and in a body with more words."""
    text = f"<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return reply(text.encode(), status, x_ms_error_code=code, content_type="application/xml", **headers)


def listing(*blobs: str, prefixes: tuple[str, ...] = (), following: str = "") -> Responder:
    """A page: names, or elements `Blob` as they are."""
    items = "".join(one if one.startswith("<") else blob(one) for one in blobs)
    folders = "".join(f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in prefixes)
    text = (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="lake"><Delimiter>/</Delimiter>'
        f"<Blobs>{items}{folders}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>"
    )
    return reply(text.encode(), content_type="application/xml")


def blob(name: str, **metadata: str) -> str:
    """One blob of a listing."""
    marks = "".join(f"<{key}>{value}</{key}>" for key, value in metadata.items())
    told = "<Content-Length>1</Content-Length><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{name}</Name><Properties>{told}</Properties><Metadata>{marks}</Metadata></Blob>"


@asynccontextmanager
async def asking(
    server: Server, identity: AzureIdentity | None = SOMEBODY, *, ca_file: Path | None = None, limit: float = 5.0
) -> AsyncGenerator[AzureClient]:
    """The adapter's requests to a server."""
    pool = HttpPool(ca_file, limit=limit)
    objects = AzureClient(AzureOptions(identity=identity, endpoint=server.url), pool)
    try:
        yield objects
    finally:
        await objects.close()
        await pool.close()
