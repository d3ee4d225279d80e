"""Raw requests for every route of Iceberg's REST API, and what of their answers is the same for each catalog."""

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


FILLED: Final = ("shop", "filled")
"""A table with rows, which is there before."""

_GZIP: Final = {"Accept-Encoding": "gzip"}
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}
_NONE: Final = "00000000-0000-0000-0000-000000000000"
_A: Final = "/v1/namespaces/a"
_T: Final = f"{_A}/tables/t"
_SHOP: Final = "/v1/namespaces/shop/tables/filled"


def _table(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "schema": _SCHEMA, **more}


def _change(uuid: str, **properties: str) -> dict[str, Any]:
    return {
        "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
        "updates": [{"action": "set-properties", "updates": properties}],
    }


def _of(name: str, uuid: str, namespace: str = "a") -> dict[str, Any]:
    return {"identifier": {"namespace": [namespace], "name": name}, **_change(uuid, both="1")}


def _rename(old: str, new: str) -> dict[str, object]:
    return {"source": {"namespace": ["a"], "name": old}, "destination": {"namespace": ["a"], "name": new}}


def _view(name: str, sql: str = "SELECT 1 AS id") -> dict[str, object]:
    query = {"type": "sql", "sql": sql, "dialect": "spark"}
    version = {"version-id": 1, "schema-id": 0, "timestamp-ms": 1_700_000_000_000, "summary": {}}
    view_version = {**version, "representations": [query], "default-namespace": ["a"]}
    return {"name": name, "schema": _SCHEMA, "view-version": view_version, "properties": {}}


_CONFIGURATION: Final = {
    "configuration": Request("GET /v1/config"),
    "configuration of a warehouse": Request("GET /v1/config?warehouse=none"),
    "configuration of a client that takes gzip": Request("GET /v1/config", header=_GZIP),
    "configuration, its head": Request("HEAD /v1/config"),
    "token": Request(
        "POST /v1/oauth/tokens", "grant_type=client_credentials&client_id=me&client_secret=x&scope=catalog", _FORM
    ),
    "token of a kind that there is not": Request("POST /v1/oauth/tokens", "grant_type=none", _FORM),
    "token in exchange": Request(
        "POST /v1/oauth/tokens",
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=t"
        "&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token",
        {**_FORM, "Authorization": "Bearer t"},
    ),
}
_NAMESPACES: Final = {
    "namespace made": Request("POST /v1/namespaces", {"namespace": ["a"], "properties": {"owner": "me"}}),
    "namespace made again": Request("POST /v1/namespaces", {"namespace": ["a"]}),
    "nested namespace made": Request("POST /v1/namespaces", {"namespace": ["a", "b"]}),
    "namespace with a space made": Request("POST /v1/namespaces", {"namespace": ["ä b"]}),
    "namespace without a name": Request("POST /v1/namespaces", {"namespace": []}),
    "namespace made of half a JSON": Request("POST /v1/namespaces", "{"),
    "namespace made of nothing": Request("POST /v1/namespaces"),
    "namespace made in parts": Request("POST /v1/namespaces", {"namespace": ["parts"]}, parts=True),
    "namespace made as PUT": Request("PUT /v1/namespaces", {"namespace": ["put"]}),
    "namespaces": Request("GET /v1/namespaces"),
    "namespaces zipped": Request("GET /v1/namespaces", header=_GZIP),
    "namespaces below": Request("GET /v1/namespaces?parent=a"),
    "namespaces below one that there is not": Request("GET /v1/namespaces?parent=none"),
    "namespaces, a page": Request("GET /v1/namespaces?pageSize=1&pageToken=", keep={"page": "next-page-token"}),
    "namespaces, the next page": Request("GET /v1/namespaces?pageSize=1&pageToken=<page>"),
    "namespaces, pages of no size": Request("GET /v1/namespaces?pageSize=x"),
    "namespace": Request(f"GET {_A}"),
    "nested namespace": Request("GET /v1/namespaces/a%2Eb"),
    "nested namespace by a dot": Request("GET /v1/namespaces/a.b"),
    "nested namespace by the specification's separator": Request("GET /v1/namespaces/a%1Fb"),
    "namespace with a space": Request("GET /v1/namespaces/%C3%A4%20b"),
    "namespace with a space as a plus": Request("GET /v1/namespaces/%C3%A4+b"),
    "namespace that there is not": Request("GET /v1/namespaces/none"),
    "namespace, its head": Request(f"HEAD {_A}"),
    "namespace that there is not, its head": Request("HEAD /v1/namespaces/none"),
    "properties": Request(f"POST {_A}/properties", {"updates": {"k": "v"}, "removals": ["owner", "none"]}),
    "properties both set and removed": Request(f"POST {_A}/properties", {"updates": {"k": "v"}, "removals": ["k"]}),
    "properties of none": Request("POST /v1/namespaces/none/properties", {"updates": {"k": "v"}}),
    "namespace with one in it dropped": Request(f"DELETE {_A}"),
    "nested namespace dropped": Request("DELETE /v1/namespaces/a%2Eb"),
    "namespace that there is not dropped": Request("DELETE /v1/namespaces/none"),
}
_TABLES: Final = {
    "table made": Request(f"POST {_A}/tables", _table("t"), keep={"uuid": "metadata.table-uuid"}),
    "table made again": Request(f"POST {_A}/tables", _table("t")),
    "table made with properties": Request(
        f"POST {_A}/tables", _table("u", properties={"k": "v"}), _GZIP, keep={"other": "metadata.table-uuid"}
    ),
    "table made by a client that wants credentials": Request(
        f"POST {_A}/tables", _table("w"), {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
    ),
    "table made without a schema": Request(f"POST {_A}/tables", {"name": "x"}),
    "table made without a namespace": Request("POST /v1/namespaces/none/tables", _table("t")),
    "table with a space made": Request(f"POST {_A}/tables", _table("x y")),
    "table made of a zipped body": Request(
        f"POST {_A}/tables", gzip.compress(json.dumps(_table("z")).encode(), mtime=0), {"Content-Encoding": "gzip"}
    ),
    "table made of a long body": Request(f"POST {_A}/tables", _table("long", properties={"k": "v" * 1_500_000})),
    "table staged": Request(
        f"POST {_A}/tables",
        _table("s", **{"stage-create": True}),
        keep={"staged": "metadata.table-uuid", "location": "metadata.location"},
    ),
    "staged table before it is committed": Request(f"HEAD {_A}/tables/s"),
    "staged table committed": Request(
        f"POST {_A}/tables/s",
        {
            "requirements": [{"type": "assert-create"}],
            "updates": [
                {"action": "assign-uuid", "uuid": "<staged>"},
                {"action": "upgrade-format-version", "format-version": 2},
                {"action": "add-schema", "schema": _SCHEMA, "last-column-id": 1},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
                {"action": "set-default-sort-order", "sort-order-id": -1},
                {"action": "set-location", "location": "<location>"},
            ],
        },
    ),
    "staged table committed again": Request(
        f"POST {_A}/tables/s", {"requirements": [{"type": "assert-create"}], "updates": []}
    ),
    "tables": Request(f"GET {_A}/tables"),
    "tables, a page": Request(f"GET {_A}/tables?pageSize=2&pageToken=", keep={"page": "next-page-token"}),
    "tables, the next page": Request(f"GET {_A}/tables?pageSize=2&pageToken=<page>"),
    "tables of none": Request("GET /v1/namespaces/none/tables"),
    "table": Request(f"GET {_T}", keep={"etag": "etag", "first": "metadata-location"}),
    "table zipped": Request(f"GET {_T}", header=_GZIP),
    "table that is known": Request(f"GET {_T}", header={"If-None-Match": "<etag>"}),
    "table that is known, zipped": Request(f"GET {_T}", header={"If-None-Match": "<etag>", **_GZIP}),
    "table that is known in quotes": Request(f"GET {_T}", header={"If-None-Match": '"<etag>"'}),
    "table that is known as another": Request(f"GET {_T}", header={"If-None-Match": "00000000"}),
    "table with a space": Request(f"GET {_A}/tables/x%20y"),
    "table with a slash": Request(f"GET {_A}/tables/x%2Fy"),
    "table that there is not": Request(f"GET {_A}/tables/none"),
    "table that there is not, zipped": Request(f"GET {_A}/tables/none", header=_GZIP),
    "table, its head": Request(f"HEAD {_T}"),
    "table that there is not, its head": Request(f"HEAD {_A}/tables/none"),
    "table with rows": Request(f"GET {_SHOP}", keep={"shop": "metadata.table-uuid"}),
    "table with rows, its refs": Request(f"GET {_SHOP}?snapshots=refs"),
    "table with rows, all snapshots": Request(f"GET {_SHOP}?snapshots=all", header=_GZIP),
    "table with rows, snapshots of no kind": Request(f"GET {_SHOP}?snapshots=none"),
    "credentials": Request(f"GET {_SHOP}/credentials"),
    "signature": Request(
        "POST /v1/aws/s3/sign", {"method": "GET", "uri": "s3://none", "region": "none", "headers": {}}
    ),
}
_COMMITS: Final = {
    "commit": Request(f"POST {_T}", _change("<uuid>", k="v")),
    "commit, zipped answer": Request(f"POST {_T}", _change("<uuid>", k="w"), _GZIP),
    "commit in parts": Request(f"POST {_T}", _change("<uuid>", k="x"), parts=True),
    "commit with a key": Request(f"POST {_T}", _change("<uuid>", k="y"), {"Idempotency-Key": _NONE}),
    "commit that asks to go on": Request(f"POST {_T}", _change("<uuid>", k="z"), {"Expect": "100-continue"}),
    "commit of what is no more so": Request(f"POST {_T}", _change(_NONE, k="v")),
    "commit of an unknown kind": Request(f"POST {_T}", {"requirements": [], "updates": [{"action": "none"}]}),
    "commit of no JSON": Request(f"POST {_T}", "commit"),
    "commit of nothing": Request(f"POST {_T}"),
    "commit to a table that there is not": Request(f"POST {_A}/tables/none", _change(_NONE, k="v")),
    "table after its commits": Request(f"GET {_T}", header={"If-None-Match": "<etag>"}),
    "transaction": Request(
        "POST /v1/transactions/commit", {"table-changes": [_of("t", "<uuid>"), _of("u", "<other>")]}
    ),
    "transaction of what is no more so": Request(
        "POST /v1/transactions/commit", {"table-changes": [_of("t", "<uuid>"), _of("u", _NONE)]}
    ),
    "transaction with a table that there is not": Request(
        "POST /v1/transactions/commit", {"table-changes": [_of("none", "<uuid>")]}
    ),
    "transaction of nothing": Request("POST /v1/transactions/commit", {"table-changes": []}),
    "metrics": Request(
        f"POST {_T}/metrics",
        {
            "report-type": "commit-report",
            "table-name": "a.t",
            "snapshot-id": 1,
            "sequence-number": 1,
            "operation": "append",
            "metrics": {},
        },
    ),
    "metrics of no kind": Request(f"POST {_T}/metrics", {"report-type": "none"}),
    "plan": Request(f"POST {_SHOP}/plan", {"filter": True, "select": ["id"]}),
    "plan of a filter": Request(f"POST {_SHOP}/plan", {"filter": {"type": "eq", "term": "id", "value": 1}}, _GZIP),
    "plan of a table that there is not": Request(f"POST {_A}/tables/none/plan", {"filter": True}),
    "plan that there is not": Request(f"GET {_SHOP}/plan/none"),
    "plan that there is not given up": Request(f"DELETE {_SHOP}/plan/none"),
    "tasks that there are not": Request(f"POST {_SHOP}/tasks", {"plan-task": "none"}),
}
_ENDS: Final = {
    "rename": Request("POST /v1/tables/rename", _rename("u", "v")),
    "rename of a table that there is not": Request("POST /v1/tables/rename", _rename("none", "x")),
    "rename to a name that is taken": Request("POST /v1/tables/rename", _rename("v", "t")),
    "rename of no JSON": Request("POST /v1/tables/rename", "rename"),
    "drop": Request(f"DELETE {_T}"),
    "drop again": Request(f"DELETE {_T}"),
    "register": Request(f"POST {_A}/register", {"name": "r", "metadata-location": "<first>"}),
    "register again": Request(f"POST {_A}/register", {"name": "r", "metadata-location": "<first>"}),
    "register over it": Request(
        f"POST {_A}/register", {"name": "r", "metadata-location": "<first>", "overwrite": True}
    ),
    "register of nothing": Request(f"POST {_A}/register", {"name": "q"}),
    "unregister": Request(f"POST {_A}/tables/r/unregister"),
    "purge": Request(f"DELETE {_A}/tables/v?purgeRequested=true"),
    "purge of a table that there is not": Request(f"DELETE {_A}/tables/v?purgeRequested=true"),
}
_VIEWS: Final = {
    "view made": Request(
        f"POST {_A}/views", _view("vw"), keep={"view": "metadata.view-uuid", "seen": "metadata-location"}
    ),
    "view made again": Request(f"POST {_A}/views", _view("vw")),
    "view made with the name of a table": Request(f"POST {_A}/views", _view("s")),
    "table made with the name of a view": Request(f"POST {_A}/tables", _table("vw")),
    "views": Request(f"GET {_A}/views"),
    "view": Request(f"GET {_A}/views/vw"),
    "view zipped": Request(f"GET {_A}/views/vw", header=_GZIP),
    "view that there is not": Request(f"GET {_A}/views/none"),
    "view, its head": Request(f"HEAD {_A}/views/vw"),
    "view replaced": Request(
        f"POST {_A}/views/vw",
        {
            "requirements": [{"type": "assert-view-uuid", "uuid": "<view>"}],
            "updates": [{"action": "set-properties", "updates": {"k": "v"}}],
        },
    ),
    "view replaced that is another": Request(
        f"POST {_A}/views/vw", {"requirements": [{"type": "assert-view-uuid", "uuid": _NONE}], "updates": []}
    ),
    "view renamed": Request("POST /v1/views/rename", _rename("vw", "vx")),
    "view renamed that there is not": Request("POST /v1/views/rename", _rename("none", "vx")),
    "view dropped": Request(f"DELETE {_A}/views/vx"),
    "view dropped again": Request(f"DELETE {_A}/views/vx"),
    "view registered": Request(f"POST {_A}/register-view", {"name": "vr", "metadata-location": "<seen>"}),
}
_OTHERS: Final = {
    "no route": Request("GET /nothing"),
    "no version": Request("GET /v2/namespaces"),
    "a prefix that there is not": Request("GET /v1/some/prefix/namespaces"),
    "a prefix that there is not, of a drop": Request("DELETE /v1/some/prefix/namespaces/a/tables/s"),
    "the root": Request("GET /"),
    "options": Request("OPTIONS /v1/config"),
    "a slash too many": Request("GET /v1//namespaces"),
    "a slash in the end": Request(f"GET {_A}/"),
    "a query that nobody knows": Request(f"GET {_A}?x=1&x=2&y=%20+&z"),
}

REQUESTS: Final[Mapping[str, Request]] = {
    **_CONFIGURATION,
    **_NAMESPACES,
    **_TABLES,
    **_COMMITS,
    **_ENDS,
    **_VIEWS,
    **_OTHERS,
}
