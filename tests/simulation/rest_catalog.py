"""A simulated REST catalog behind gateways, and the requests that clients send it.

A request changes the catalog at once or much later.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from sfn.catalogs import NoSuchTable
from sfn.domain.identifiers import Table, TableIdentifier
from tests.simulation.catalog import first_version, next_version
from tests.simulation.faults import SILENT, Fate, drawn

if TYPE_CHECKING:
    from tests.simulation.world import World

OK, NO_CONTENT, INVALID, NOT_FOUND, CONFLICT = 200, 204, 400, 404, 409

ROOT = "/v1/main"
"""Where the catalog's REST API begins for a client, with the prefix that it was told to use."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for.

    Attributes:
        method: HTTP's.
        target: path and query behind the catalog's address.
        body: JSON, or nothing.
    """

    method: str
    target: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered.

    Attributes:
        status: HTTP's, or `CUT`.
        body: JSON, or nothing.
        whole: it does not break off.
    """

    status: int
    body: bytes = b""
    whole: bool = True


class CatalogServer:
    """Does what it is asked for when the fate of a request says so, whatever becomes of who asked.

    Attributes:
        fate: of a request that came.
        asked: all requests that came.
    """

    def __init__(self, world: World, catalog: int) -> None:
        self._world, self._catalog = world, catalog
        self.fate: Callable[[Request], Fate] = lambda _: drawn(world.rng)
        self.asked: list[Request] = []
        self._files: dict[str, Table] = {}

    def take(self, request: Request) -> asyncio.Future[Reply]:
        """A request came: the answer, which may never come."""
        self.asked.append(request)
        answer: asyncio.Future[Reply] = self._world.loop.create_future()
        fate = self.fate(request)
        if fate.done is not None:
            self._call(fate.done, self._do, request, fate, answer)
        if fate.status is not None and fate.ended != SILENT:
            self._call(fate.ended, self._say, answer, Reply(fate.status))
        self._world.say(f"-> {request.method} {request.target}: {fate}")
        return answer

    def _does(self, request: Request) -> Reply:
        """Do it now, if it can be done."""
        path, _, query = request.target.partition("?")
        body: dict[str, Any] = json.loads(request.body or b"{}")
        match request.method, [unquote(segment) for segment in path.split("/")[3:]]:
            case "POST", ["namespaces", namespace, "tables"]:
                return self._create(self._named(namespace, body["name"]), body)
            case "POST", ["namespaces", namespace, "register"]:
                return self._register(self._named(namespace, body["name"]), body["metadata-location"])
            case "POST", ["namespaces", namespace, "tables", name]:
                return self._commit_all([self._named(namespace, name)], [body], OK)
            case "DELETE", ["namespaces", namespace, "tables", name]:
                return self._drop(self._named(namespace, name), purge="purgeRequested=true" in query)
            case "POST", ["namespaces", namespace, "tables", name, "unregister"]:
                return self._drop(self._named(namespace, name), purge=False)
            case "POST", ["tables", "rename"]:
                return self._rename(self._identified(body["source"]), self._identified(body["destination"]))
            case "POST", ["transactions", "commit"]:
                changes = body["table-changes"]
                names = [self._identified(change["identifier"]) for change in changes]
                return self._commit_all(names, changes, NO_CONTENT)
            case "DELETE", ["namespaces", namespace]:
                names = [name for name in self._live() if "\x1f".join(name.namespace) == namespace]
                return [Reply(NOT_FOUND), *(self._drop(name, purge=False) for name in names)][-1]
            case _:
                raise ValueError(request)

    def _do(self, request: Request, fate: Fate, answer: asyncio.Future[Reply]) -> None:
        reply = self._does(request)
        if fate.twice:
            reply = self._does(request)
        self._world.say(f"   {request.method} {request.target}: {reply.status}")
        if fate.status is None and fate.ended != SILENT:
            self._call(fate.ended, self._say, answer, Reply(reply.status, reply.body, fate.whole))

    @staticmethod
    def _say(answer: asyncio.Future[Reply], reply: Reply) -> None:
        if not answer.done():
            answer.set_result(reply)

    def _call(self, delay: float, what: Callable[..., None], *args: Any) -> None:
        """As none of the processes' own timers: it does not die with one."""
        self._world.loop.call_later(delay, what, *args, context=Context())

    def _create(self, name: TableIdentifier, body: dict[str, Any]) -> Reply:
        if isinstance(self._true(name), Table) or not self._is_free(body["location"]):
            return Reply(CONFLICT)
        if body.get("stage-create"):
            return Reply(OK, b'{"metadata": {}}')
        return self._set(name, first_version(self._world.rng, body["location"], self._world.time))

    def _register(self, name: TableIdentifier, pointer: str) -> Reply:
        table = self._files.get(pointer)
        if table is None or pointer not in self._world.files.bodies:
            return Reply(INVALID)
        uuids = {other.uuid for other in self._live().values()}
        if isinstance(self._true(name), Table) or table.uuid in uuids or not self._is_free(table.location):
            return Reply(CONFLICT)
        return self._set(name, table)

    def _commit_all(self, names: list[TableIdentifier], changes: list[dict[str, Any]], status: int) -> Reply:
        """All of them or none."""
        refusals = [self._refusal(name, change) for name, change in zip(names, changes, strict=True)]
        refused = next((reply for reply in refusals if reply is not None), None)
        if refused is not None:
            return refused
        replies = [self._commit(name, change) for name, change in zip(names, changes, strict=True)]
        return replies[0] if status == OK else Reply(status)

    def _refusal(self, name: TableIdentifier, change: dict[str, Any]) -> Reply | None:
        table = self._true(name)
        place = change.get("location")
        for requirement in change["requirements"]:
            if requirement["type"] == "assert-create":
                return None if not isinstance(table, Table) and self._is_free(place) else Reply(CONFLICT)
            if not isinstance(table, Table):
                return Reply(NOT_FOUND)
            key = {"assert-table-uuid": table.uuid, "assert-ref-snapshot-id": table.snapshot_id}[requirement["type"]]
            if requirement["is"] != key:
                return Reply(CONFLICT)
        return None if place is None or self._is_free(place) else Reply(CONFLICT)

    def _commit(self, name: TableIdentifier, change: dict[str, Any]) -> Reply:
        table, place, now = self._true(name), change.get("location"), self._world.time
        if not isinstance(table, Table):
            return self._set(name, first_version(self._world.rng, place or "", now))
        return self._set(name, next_version(self._world.rng, table, now, location=place))

    def _drop(self, name: TableIdentifier, *, purge: bool) -> Reply:
        table = self._true(name)
        if not isinstance(table, Table):
            return Reply(NOT_FOUND)
        self._world.set(self._catalog, name, NoSuchTable())
        if purge:
            self._world.purge(table)
        return Reply(NO_CONTENT)

    def _rename(self, old: TableIdentifier, new: TableIdentifier) -> Reply:
        table = self._true(old)
        if not isinstance(table, Table):
            return Reply(NOT_FOUND)
        if isinstance(self._true(new), Table):
            return Reply(CONFLICT)
        self._world.set(self._catalog, new, table)
        self._world.set(self._catalog, old, NoSuchTable())
        return Reply(NO_CONTENT)

    def _set(self, name: TableIdentifier, table: Table) -> Reply:
        self._world.set(self._catalog, name, table)
        self._files[table.metadata_location] = table
        return Reply(OK, json.dumps({"metadata-location": table.metadata_location, "metadata": {}}).encode())

    def _true(self, name: TableIdentifier) -> object:
        return self._world.truths[self._catalog].true(name)

    def _live(self) -> dict[TableIdentifier, Table]:
        return self._world.truths[self._catalog].live()

    def _is_free(self, place: str | None) -> bool:
        """Whether no table lives at a place, or several may."""
        return self._world.setting.shared or place not in {table.location for table in self._live().values()}

    def _named(self, namespace: str, name: str) -> TableIdentifier:
        return TableIdentifier(self._world.truths[self._catalog].name, tuple(namespace.split("\x1f")), name)

    def _identified(self, identifier: dict[str, Any]) -> TableIdentifier:
        return TableIdentifier(
            self._world.truths[self._catalog].name, tuple(identifier["namespace"]), identifier["name"]
        )


def created(name: TableIdentifier, place: str, *, staged: bool = False) -> Request:
    """A table is created, or but staged."""
    body = {"name": name.name, "location": place, "stage-create": staged}
    return _posted(f"{_namespace(name)}/tables", body)


def committed(name: TableIdentifier, table: Table, *, exactly: bool = False, place: str | None = None) -> Request:
    """A commit to a table.

    Args:
        exactly: only on top of what the client saw.
        place: where the table is to be from now on, where that changes.
    """
    return _posted(_path(name), _change(table, exactly=exactly, place=place))


def committed_first(name: TableIdentifier, place: str) -> Request:
    """The commit that ends a staged create."""
    return _posted(_path(name), {"requirements": [{"type": "assert-create"}], "location": place})


def committed_together(tables: Sequence[tuple[TableIdentifier, Table]]) -> Request:
    """A commit to several tables."""
    changes = [{"identifier": _identifier(name), **_change(table)} for name, table in tables]
    return _posted(f"{ROOT}/transactions/commit", {"table-changes": changes})


def registered(name: TableIdentifier, pointer: str) -> Request:
    """A metadata file gets a name."""
    return _posted(f"{_namespace(name)}/register", {"name": name.name, "metadata-location": pointer})


def renamed(old: TableIdentifier, new: TableIdentifier) -> Request:
    """A table gets another name."""
    return _posted(f"{ROOT}/tables/rename", {"source": _identifier(old), "destination": _identifier(new)})


def dropped(name: TableIdentifier, *, purge: bool = False) -> Request:
    """A table is dropped, with its files or without."""
    return Request("DELETE", f"{_path(name)}?purgeRequested={str(purge).lower()}")


def unregistered(name: TableIdentifier) -> Request:
    """A table is no table of the catalog any more, and its files stay."""
    return _posted(f"{_path(name)}/unregister", {})


def emptied(name: TableIdentifier) -> Request:
    """A table's namespace is dropped with all that is in it."""
    return Request("DELETE", _namespace(name))


def _posted(path: str, body: dict[str, Any]) -> Request:
    return Request("POST", path, json.dumps(body).encode())


def _namespace(name: TableIdentifier) -> str:
    return f"{ROOT}/namespaces/{quote(chr(0x1F).join(name.namespace), safe='')}"


def _path(name: TableIdentifier) -> str:
    return f"{_namespace(name)}/tables/{quote(name.name, safe='')}"


def _identifier(name: TableIdentifier) -> dict[str, Any]:
    return {"namespace": list(name.namespace), "name": name.name}


def _change(table: Table, *, exactly: bool = False, place: str | None = None) -> dict[str, Any]:
    requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "is": table.uuid}]
    if exactly:
        requirements.append({"type": "assert-ref-snapshot-id", "is": table.snapshot_id})
    change: dict[str, Any] = {"requirements": requirements}
    return change if place is None else change | {"location": place}
