"""One request, its answer, and what of an answer is the same for each catalog that is told the same."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx

Kept: TypeAlias = dict[str, str]
"""What earlier answers said, by name: `<name>` in a request stands for it."""

_PLACE: Final = re.compile(r"<([a-z]+)>")
_UNLIKE: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "<ms>"),
    (re.compile(r"\b\d{14,19}\b"), "<snapshot>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+\.\d+Z"), "<time>"),
    # What the server calls itself: of the catalog behind the gateway it is not the address that was asked.
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<uri>"),
    # Who called the server's own code: that depends on which of its threads was free.
    (re.compile(r'(?<="stack":\[)("(?:[^"\\]|\\.)*").*(?=\])', re.DOTALL), r"\1, <frames>"),
)
_ETAG: Final = re.compile(r"[0-9a-f]{8}")
_OF_ONE_CONNECTION: Final = frozenset({"connection", "date", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        line: method and path, with its query.
        body: JSON, or text or bytes as they are; None for none.
        header: besides what HTTP needs.
        keep: what of the answer later requests may name: a header field, or keys of the JSON with dots between.
        parts: the body is sent in several, without a length.
    """

    line: str
    body: Any = None
    header: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, str] = field(default_factory=dict)
    parts: bool = False

    def content(self, kept: Kept) -> bytes | Iterator[bytes] | None:
        """The body as it is sent."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        whole = _filled(text, kept).encode()
        return iter([whole[:5], whole[5:]]) if self.parts else whole


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, without what no two catalogs have in common.

    Attributes:
        status: HTTP's.
        header: name and value of each field, sorted.
        body: as text.
    """

    status: int
    header: Sequence[tuple[str, str]]
    body: str

    def without(self, *fields: str) -> Answer:
        """It but for these fields of its header."""
        return replace(self, header=[(name, value) for name, value in self.header if name not in fields])


@dataclass(frozen=True, slots=True)
class Catalog:
    """Where requests are sent.

    Attributes:
        uri: before every path.
        folder: the catalog's own: its name is no part of an answer.
    """

    uri: str
    folder: Path

    def answers(self, requests: Mapping[str, Request]) -> dict[str, Answer]:
        """What comes of requests, one after the other, by what they are called."""
        kept: Kept = {}
        # A connection for each: nobody's idle one is cut off as it is used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(trust_env=False, timeout=60.0, limits=limits) as client:
            for name in ("accept", "accept-encoding", "user-agent"):
                del client.headers[name]
            return {name: self._answer(client, request, kept) for name, request in requests.items()}

    def _answer(self, client: httpx.Client, request: Request, kept: Kept) -> Answer:
        method, _, path = request.line.partition(" ")
        header = {name: _filled(value, kept) for name, value in request.header.items()}
        if request.body is not None:
            header.setdefault("Content-Type", "application/json")
        url = f"{self.uri}{_filled(path, kept)}"
        with client.stream(method, url, content=request.content(kept), headers=header) as response:
            raw = b"".join(response.iter_raw())
        is_zipped = raw and response.headers.get("content-encoding") == "gzip"
        body = (gzip.decompress(raw) if is_zipped else raw).decode("utf-8", "replace")
        for name, where in request.keep.items():
            kept[name] = _found(where, response, body)
        return Answer(response.status_code, sorted(_fields(response, len(raw))), self._alike(body))

    def _alike(self, body: str) -> str:
        text = body.replace(str(self.folder), "<folder>")
        for pattern, name in _UNLIKE:
            text = pattern.sub(name, text)
        return text


def _fields(response: httpx.Response, length: int) -> Iterator[tuple[str, str]]:
    for name, value in response.headers.multi_items():
        if name == "etag":
            yield name, _ETAG.sub("<etag>", value)
        elif name == "content-length" and value == str(length):
            yield name, "<as long as the body>"
        elif name not in _OF_ONE_CONNECTION:
            yield name, value


def _found(where: str, response: httpx.Response, body: str) -> str:
    if where in response.headers:
        return str(response.headers[where])
    found = json.loads(body)
    for key in where.split("."):
        found = found[key]
    return str(found)


def _filled(text: str, kept: Kept) -> str:
    return _PLACE.sub(lambda place: kept[place[1]], text)
