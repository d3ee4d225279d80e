"""What a file's content may be, and its tag where the store has none of its own."""

from __future__ import annotations

from hashlib import sha256

from sfn.errors import ErrorScope, Permanent
from sfn.sfnfile.document import MAX_DOCUMENT_BYTES

MAX_READ_BYTES = MAX_DOCUMENT_BYTES + 1
"""Bytes of a file that are ever read: one more than a document may have, so that its decoder sees one too long."""


def content_etag(body: bytes) -> str:
    """The tag of a content: the same content always has the same tag, as with an entity tag of S3."""
    return sha256(body).hexdigest()


def check_length(key: str, body: bytes) -> None:
    """Refuse to write what nobody would read.

    Raises:
        Permanent: scope table, where the body is longer than a document may be.
    """
    if len(body) > MAX_DOCUMENT_BYTES:
        raise Permanent(
            key,
            scope=ErrorScope.TABLE,
            expected=f"a body of at most {MAX_DOCUMENT_BYTES} bytes",
            found=f"{len(body)} bytes",
        )


def media_type(key: str) -> str:
    """What a file of ours is, for whoever looks at it in a store's console."""
    return "application/json" if key.endswith((".ver", ".json")) else "text/plain; charset=utf-8"
