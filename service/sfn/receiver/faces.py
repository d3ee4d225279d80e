"""How senders are answered: one pipeline takes what they say, each path has its own manner of speaking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

from sfn import iceberg_errors
from sfn.errors import Rejected
from sfn.receiver import problem
from sfn.words import Accepted

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CLOSE: Final = (b"connection", b"close")


class Answer(NamedTuple):
    """A response.

    Attributes:
        status: HTTP status code.
        content: the body.
        headers: all of them.
    """

    status: int
    content: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class Face:
    """What the senders of one path are used to.

    Attributes:
        taken: the answer when all is on disk, from what became of it and the number of events that were of no concern.
        document: an error's body, from its status, what is wrong, and where in the request ("#…" a JSON pointer into
            the body, "" for nowhere).
        media_type: of that body.
    """

    taken: Callable[[Accepted, int], Answer]
    document: Callable[[int, str, str], bytes]
    media_type: bytes

    def error(self, status: int, detail: str, headers: Headers = (), *, where: str = "") -> Answer:
        """An error."""
        content = self.document(status, detail, where)
        return _with_body(status, content, [*headers, (b"content-type", self.media_type)])

    def refused(self, refusal: Rejected) -> Answer:
        """What a sender is told of a refusal."""
        # The client of a 408 is in the middle of its body: no next request could be told from it.
        closing = [CLOSE] if refusal.status == HTTPStatus.REQUEST_TIMEOUT else []
        return self.error(refusal.status, problem.detail(refusal), closing, where=refusal.where)


async def respond(send: Send, answer: Answer) -> None:
    """Send a response (ASGI 3)."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.content})


def _with_body(status: int, content: bytes, headers: Headers) -> Answer:
    return Answer(status, content, [*headers, (b"content-length", b"%d" % len(content))])


def _counted(taken: Accepted, ignored: int) -> Answer:
    return _counts(taken.accepted, taken.duplicates, ignored)


@lru_cache
def _counts(accepted: int, duplicates: int, ignored: int) -> Answer:
    content = b'{"accepted":%d,"duplicates":%d,"ignored":%d}' % (accepted, duplicates, ignored)
    return _with_body(202, content, [(b"content-type", b"application/json")])


def _problem(status: int, detail: str, where: str) -> bytes:
    return problem.document(status, detail, pointer=where if where.startswith("#") else None)


OWN: Final = Face(_counted, _problem, problem.MEDIA_TYPE.encode())
"""That of our own routes: counts, and problem documents."""


def _iceberg_error(status: int, detail: str, where: str) -> bytes:
    message = f"{where}: {detail}" if where.strip("#") else detail
    return iceberg_errors.document(status, message)


def _silent(_taken: Accepted, _ignored: int) -> Answer:
    return Answer(204, b"", [])


ICEBERG: Final = Face(_silent, _iceberg_error, iceberg_errors.MEDIA_TYPE)
"""That of an Iceberg catalog: nothing to say of what was taken, and errors as Iceberg's clients know them."""
