"""A small S3 in memory, with the quirks that real services and the proxies before them have.

It has one bucket, `lake`, named in the path, and checks no signatures. Without a quirk it answers as AWS does.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import md5
from typing import Final
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiohttp import web

from tests.support.rest_catalog import served

BUCKET: Final = "lake"
MARK: Final = "x-amz-meta-sfn-write"
_COMPRESSING: Final = {"gzip", "gzip, weak tags", "gzip, named in tags", "gzip, no tags", "deflate", "brotli"}


@dataclass(frozen=True, slots=True)
class Stored:
    """An object.

    Attributes:
        body: its content.
        tag: without quotes.
        mark: of the write that made it.
    """

    body: bytes
    tag: str
    mark: str | None


@dataclass(slots=True)
class QuirkyS3:
    """The server.

    Attributes:
        quirks: their names; each is a word of this class's methods.
        objects: by key.
        before: what lay at each key before its last change.
        deleted: what was deleted last, by key.
        asked: methods and keys so far.
        url: where it listens.
    """

    quirks: frozenset[str] = frozenset()
    objects: dict[str, Stored] = field(default_factory=dict)
    before: dict[str, Stored | None] = field(default_factory=dict)
    deleted: dict[str, Stored] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def plant(self, key: str, body: bytes) -> None:
        """Put an object there, as another program does."""
        self._put(key, Stored(body, self._tag(body), None))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, _ = request.raw_path.partition("?")
        key, body = unquote(path).removeprefix(f"/{BUCKET}/"), await request.read()
        self.asked.append((request.method, key))
        if "redirects to another host" in self.quirks:
            return web.Response(status=307, headers={"Location": f"http://other.example{request.raw_path}"})
        if request.method == "GET" and "list-type" in request.query:
            return self._listing(request.query)
        match request.method:
            case "GET":
                return self._read(request, key)
            case "PUT":
                return self._written(request, key, body)
            case "DELETE":
                return self._deleted(request, key)
            case _:
                return error(405, "MethodNotAllowed")

    # -- reads ------------------------------------------------------------------------------------------------------

    def _read(self, request: web.BaseRequest, key: str) -> web.StreamResponse:
        found = self.objects.get(key)
        if self.quirks & {"old content is shown once", "new files are hidden once"} and key in self.before:
            found = self.before.pop(key)
        if found is None:
            return self._missing()
        headers = {} if "reads have no tag" in self.quirks else {"ETag": self._shown(found.tag, read=True)}
        if found.mark is not None and "user metadata is lost" not in self.quirks:
            headers[MARK] = found.mark
        if "Range" in request.headers:
            begin, end = (int(part) for part in request.headers["Range"].removeprefix("bytes=").split("-"))
            if begin >= len(found.body):
                return error(416, "InvalidRange")
            return web.Response(status=206, body=found.body[begin : end + 1], headers=headers)
        return self._encoded(found.body, headers)

    def _missing(self) -> web.StreamResponse:
        if "403 for what is missing" in self.quirks:
            return error(403, "AccessDenied")
        if "errors are pages of a proxy" in self.quirks:
            return web.Response(status=404, text="<html>Not Found</html>", content_type="text/html")
        return error(404, "NoSuchKey")

    def _encoded(self, body: bytes, headers: dict[str, str]) -> web.StreamResponse:
        """An answer, compressed whatever was asked for."""
        (how,) = self.quirks & _COMPRESSING or ("",)
        tag = headers.get("ETag", '""')
        if how == "gzip, weak tags":
            headers["ETag"] = f"W/{tag}"
        if how == "gzip, named in tags":
            headers["ETag"] = f'{tag[:-1]}-gzip"'
        if how == "gzip, no tags":
            del headers["ETag"]
        if how.startswith("gzip"):
            return web.Response(body=gzip.compress(body), headers={**headers, "Content-Encoding": "gzip"})
        if how == "deflate":
            return web.Response(body=zlib.compress(body), headers={**headers, "Content-Encoding": "deflate"})
        if how == "brotli":
            return web.Response(body=b"\x8b" + body, headers={**headers, "Content-Encoding": "br"})
        return web.Response(body=body, headers=headers)

    def _listing(self, query: Mapping[str, str]) -> web.StreamResponse:
        prefix, most = query["prefix"], int(query["max-keys"])
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        if "listings have no delimiter" not in self.quirks:
            keys = [key for key in keys if "/" not in key[len(prefix) :]]
        if "listings are in no order" in self.quirks:
            keys.reverse()
        begin = int(query.get("continuation-token", "0"))
        size = 2 if "short pages" in self.quirks or "listings do not say where" in self.quirks else most
        if "listings start over" in self.quirks:
            begin, size = 0, 2
        page, more = keys[begin : begin + size], len(keys) > begin + size
        coded = "listings are not encoded" not in self.quirks
        names = (quote(key, safe="/") if coded else key for key in page)
        parts = ["<ListBucketResult>", "<EncodingType>url</EncodingType>" if coded else ""]
        parts += [f"<IsTruncated>{str(more).lower()}</IsTruncated>"]
        if more and "listings do not say where" not in self.quirks:
            parts.append(f"<NextContinuationToken>{begin + size}</NextContinuationToken>")
        parts += [f"<Contents><Key>{escape(name)}</Key></Contents>" for name in names]
        return web.Response(text="".join([*parts, "</ListBucketResult>"]), content_type="application/xml")

    # -- changes ----------------------------------------------------------------------------------------------------

    def _written(self, request: web.BaseRequest, key: str, body: bytes) -> web.StreamResponse:
        refusal = self._refusal(request, key)
        if refusal is not None:
            return refusal
        stored = Stored(body, self._tag(body), request.headers.get(MARK))
        if "nothing is stored" not in self.quirks:
            self._put(key, stored)
        status = 201 if "201 for writes" in self.quirks else 200
        if "writes have no tag" in self.quirks:
            return web.Response(status=status)
        return web.Response(status=status, headers={"ETag": self._shown(stored.tag, read=False)})

    def _refusal(self, request: web.BaseRequest, key: str) -> web.StreamResponse | None:
        """Why a write is refused, if it is."""
        found = self.objects.get(key)
        creates, tag = request.headers.get("If-None-Match") == "*", request.headers.get("If-Match")
        if (creates or tag is not None) and "501 for conditions" in self.quirks:
            return error(501, "NotImplemented")
        if (creates or tag is not None) and "400 for conditions" in self.quirks:
            return error(400, "InvalidArgument")
        if creates and "nothing can be created" in self.quirks:
            return error(412, "PreconditionFailed")
        if creates and found is not None and "If-None-Match is ignored" not in self.quirks:
            return self._failed()
        if tag is None or "If-Match is ignored" in self.quirks:
            return None
        if found is None:
            deleted = self.deleted.get(key)
            if (
                "If-Match sees what was deleted" in self.quirks
                and deleted is not None
                and self._matches(tag, deleted.tag)
            ):
                return None
            if "If-Match creates" in self.quirks:
                return None
            return self._failed() if "412 for what is missing" in self.quirks else error(404, "NoSuchKey")
        return None if self._matches(tag, found.tag) else self._failed()

    def _failed(self) -> web.StreamResponse:
        """The answer where a condition does not hold."""
        if "304 for conditions" in self.quirks:
            return web.Response(status=304)
        if "409 for conditions" in self.quirks:
            return error(409, "ConditionalRequestConflict")
        if "400 for failed conditions" in self.quirks:
            return error(400, "InvalidRequest")
        if "500 for failed conditions" in self.quirks:
            return error(500, "InternalError")
        if "errors with status 200" in self.quirks:
            return error(200, "PreconditionFailed")
        return error(412, "PreconditionFailed")

    def _deleted(self, request: web.BaseRequest, key: str) -> web.StreamResponse:
        found, tag = self.objects.get(key), request.headers.get("If-Match")
        if tag is not None and "deletes ignore If-Match" not in self.quirks:
            if "501 for conditions of deletes" in self.quirks:
                return error(501, "NotImplemented")
            if "deletes on conditions fail" in self.quirks:
                return error(412, "PreconditionFailed")
            if found is None and "404 for deletes of what is missing" in self.quirks:
                return error(404, "NoSuchKey")
            if found is not None and not self._matches(tag, found.tag):
                return self._failed()
        self.before.pop(key, None)
        if found is not None:
            self.deleted[key] = self.objects.pop(key)
        return web.Response(status=204)

    def _put(self, key: str, stored: Stored) -> None:
        if key in self.objects or "new files are hidden once" in self.quirks:
            self.before[key] = self.objects.get(key)
        self.objects[key] = stored

    # -- entity tags ------------------------------------------------------------------------------------------------

    def _tag(self, body: bytes) -> str:
        if "tags are made of the length" in self.quirks:
            return md5(b"%d" % len(body), usedforsecurity=False).hexdigest()
        return md5(body, usedforsecurity=False).hexdigest()

    def _shown(self, tag: str, *, read: bool) -> str:
        if "tags in capitals" in self.quirks:
            tag = tag.upper()
        if read and "reads have tags in capitals" in self.quirks:
            tag = tag.upper()
        if not read and "writes have the digest as tag" in self.quirks:
            tag = md5(tag.encode(), usedforsecurity=False).hexdigest()
        if "tags without quotes" in self.quirks:
            return tag
        return f'W/"{tag}"' if "weak tags" in self.quirks or "weak tags never match" in self.quirks else f'"{tag}"'

    def _matches(self, named: str, tag: str) -> bool:
        tag = tag.upper() if "tags in capitals" in self.quirks else tag
        if "weak tags never match" in self.quirks:
            return False
        if "unquoted tags alone" in self.quirks:
            return named == tag
        if "strong tags alone" in self.quirks:
            return named == f'"{tag}"'
        if "exact tags alone" in self.quirks:
            return named == self._shown(tag, read=True)
        return named.removeprefix("W/").strip('"') == tag


def error(status: int, code: str) -> web.Response:
    """An error of S3."""
    return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")


@asynccontextmanager
async def quirky_s3(*quirks: str) -> AsyncGenerator[QuirkyS3]:
    """A server with quirks that listens on the loopback interface."""
    server = QuirkyS3(frozenset(quirks))
    async with served(server.answer) as server.url:
        yield server
