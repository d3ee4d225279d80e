"""The page of one table: verdict, timeline, both pointers, files, snapshots, dead letters; and its orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from sfn.admin.dead_letters import DeadLetterRoutes
from sfn.admin.remedies import remedy_for
from sfn.admin.routes import AdminContext
from sfn.admin.schemas import DeadLetterSelection
from sfn.admin.table_schemas import TableModel
from sfn.admin.table_verdict import (
    describe_agreement,
    describe_attempts,
    describe_catalog_now,
    describe_next,
    describe_pending,
    table_verdict,
)
from sfn.admin.tables import TableRoutes, table_in_path
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Retry
from sfn.inbox.model import Job
from sfn.ui.charts import attempts_chart
from sfn.ui.rendering import PREFIX, Renderer, table_path
from sfn.worker.table_files import FileNow

_PATH: Final = f"{PREFIX}/tables/{{catalog}}/{{namespace}}/{{table}}"
MAX_SHOWN: Final = 16 * 2**10
"""Most bytes of a file that the page shows; an SFN file has about one thousand."""
DONE_TEXTS: Final = {
    "checked": "The check is queued. This page shows its result within seconds.",
    "replayed": "The dead letter is replayed: the table is queued again.",
    "not-open": "The dead letter is not open any more. Nothing was changed.",
}
"""What an order did, by the code in the address."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of the timeline of a table.

    Attributes:
        at: its time.
        what: what happened.
        detail: more about it; may be empty.
        seconds: how long it took; None if it has no length.
        is_failure: True if an attempt failed.
    """

    at: datetime
    what: str
    detail: str = ""
    seconds: float | None = None
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file as the page shows it.

    Attributes:
        key: its location.
        text: its content, or the beginning; None if there is no such file, or no answer.
        is_cut: True if the file is longer.
        error: why there is no answer; empty if there is one.
    """

    key: str
    text: str | None
    is_cut: bool
    error: str

    @classmethod
    def from_file(cls, file: FileNow) -> ShownFile:
        """Return a file with its content as text."""
        body = file.body
        text = None if body is None else body[:MAX_SHOWN].decode(errors="replace")
        return cls(file.key, text, body is not None and len(body) > MAX_SHOWN, file.error)


class TablePageRoutes:
    """The page of a table, and the orders on it."""

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._context, self._renderer = context, renderer
        self._tables, self._letters = TableRoutes(context), DeadLetterRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(_PATH, self.show)
        router.add_api_route(f"{_PATH}:check", self.check, methods=["POST"])
        router.add_api_route(f"{_PATH}:replay", self.replay, methods=["POST"])

    async def show(self, request: Request, catalog: str, namespace: str, table: str) -> Response:
        """The page; for htmx, the part that the query asks for: the catalog's answer, or the files."""
        query = request.query_params
        asks_catalog, reads_files = query.get("catalog") == "now", query.get("files") == "now"
        found = await self._tables.table(catalog, namespace, table, ask_catalog=asks_catalog)
        values = self._catalog_values(found) | {"can_read": self._context.process.table_files is not None}
        values |= {"table": found, "address": table_path(found.catalog, found.namespace, found.name)}
        values |= await self._file_values(catalog, namespace, table) if reads_files else {"files": None}
        if request.headers.get("hx-request") and (asks_catalog or reads_files):
            part = "table_catalog.html" if asks_catalog else "table_files.html"
            return self._renderer.page(request, part, values)
        values |= await self._page_values(found, query.get("done", ""))
        return self._renderer.page(request, "table.html", values | {"paused": "paused" in query})

    async def check(self, request: Request, catalog: str, namespace: str, table: str) -> Response:
        """Queue a check of the table."""
        await self._tables.check(catalog, namespace, table, request)
        return _done(catalog, namespace, table, "checked")

    async def replay(self, request: Request, catalog: str, namespace: str, table: str) -> Response:
        """Replay the open dead letter of the table; for a held drop, after a confirmation."""
        form: dict[str, str] = request.state.form
        found = await self._tables.table(catalog, namespace, table)
        letter = next((one for one in found.dead_letters if one.status == "open"), None)
        if letter is None or form.get("letter") != str(letter.id):
            return _done(catalog, namespace, table, "not-open")
        if letter.reason == DeadLetterReason.HELD_DROP and form.get("confirmed") != "yes":
            values = {"table": found, "letter": letter, "address": table_path(catalog, found.namespace, found.name)}
            return self._renderer.page(request, "table_confirm.html", values)
        result = await self._letters.replay(DeadLetterSelection(ids=[letter.id]), request)
        if result.failed:
            raise HTTPException(HTTPStatus.CONFLICT, result.failed[0].why)
        return _done(catalog, namespace, table, "replayed" if result.replayed else "not-open")

    def _catalog_values(self, table: TableModel) -> dict[str, object]:
        """Return the values of the part with both pointers."""
        answer = table.catalog_now
        return {
            "answer": answer,
            "answer_text": describe_catalog_now(answer) if answer is not None else "",
            "agreement": describe_agreement(answer) if answer is not None else "",
            "can_ask": self._context.process.catalog_now is not None,
        }

    async def _file_values(self, catalog: str, namespace: str, table: str) -> dict[str, object]:
        """Return the values of the part with the files; `files` is None if this process cannot read them."""
        name = table_in_path(catalog, namespace, table)
        status, read = await self._context.inbox.table_status(name), self._context.process.table_files
        if status is None or read is None:
            return {"files": None}
        files = await read(name, status.job)
        return {
            "files": files,
            "sfn_files": [ShownFile.from_file(one) for one in files.sfn_files],
            "hint": ShownFile.from_file(files.version_hint) if files.version_hint is not None else None,
        }

    async def _page_values(self, table: TableModel, done: str) -> dict[str, object]:
        """Return the values of the rest of the page.

        Args:
            table: the table.
            done: code of the order that led to the page.
        """
        now = self._context.clock.now()
        name = TableIdentifier(table.catalog, tuple(table.namespace), table.name)
        status = await self._context.inbox.table_status(name)
        job = status.job if status is not None else None
        letters = [(one, remedy_for(one, table.foreign_catalog_id)) for one in table.dead_letters]
        return {
            "verdict": table_verdict(table, now),
            "pending": describe_pending(table.pending),
            "next_check": describe_next(table, now),
            "moments": sorted(_moments(table, job), key=lambda one: one.at, reverse=True),
            "chart": attempts_chart(table.outcomes, now) if table.outcomes else "",
            "letters": letters,
            "open_letter": next((one for one in table.dead_letters if one.status == "open"), None),
            "done": DONE_TEXTS.get(done, ""),
        }


def _moments(table: TableModel, job: Job | None) -> Iterator[Moment]:
    """Yield what is known to have happened to a table."""
    for one in table.outcomes:
        seconds = (one.ended_at - one.claimed_at).total_seconds() if one.claimed_at is not None else None
        attempt = f"attempt {one.attempt}: " if one.attempt > 1 else ""
        is_failure = one.outcome in {Retry.label, DeadLettered.label}
        yield Moment(one.ended_at, describe_attempts(one), f"{attempt}{one.why or ''}", seconds, is_failure)
    if (event := table.last_event) is not None:
        number = "" if event.event_id is None else f", event {event.event_id}"
        yield Moment(event.received_at, "event received", f"from {event.sender or 'no named sender'}{number}")
    if (live := table.published) is None:
        return
    yield Moment(live.written_at, "catalog answered", f"the answer in the SFN file: {live.metadata_location}")
    loaded = job.cache.table if job is not None else None
    if loaded is not None and loaded.last_updated_ms and loaded.metadata_location == live.metadata_location:
        at = datetime.fromtimestamp(loaded.last_updated_ms / 1_000, UTC)
        yield Moment(at, "committed", "the commit in the SFN file, by its writer's clock")


def _done(catalog: str, namespace: str, table: str, code: str) -> Response:
    """Return the way back to the page of a table, with the code of what was done."""
    name = table_in_path(catalog, namespace, table)
    address = f"{table_path(name.catalog, name.namespace, name.name)}?done={code}"
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
