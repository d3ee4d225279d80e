"""Routes of the admin API to dead letters: find, show, replay and discard, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException

from sfn.admin.causes import CauseCounter
from sfn.admin.routes import SECURITY_EXTRA, AdminContext
from sfn.admin.schemas import (
    MAX_BATCH,
    MAX_ID,
    DeadLetterCauses,
    DeadLetterCauseSearch,
    DeadLetterCriteria,
    DeadLetterDetails,
    DeadLetterModel,
    DeadLetterPage,
    DeadLetterSearch,
    DeadLetterSelection,
    DiscardResult,
    FailedReplay,
    ReplayResult,
)
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import Rejected
from sfn.inbox.model import DeadLetter, DeadLetterFilter, DeadLetterStatus

MAX_NOTIFICATIONS: Final = 1_000
"""Notifications after which a replay transaction takes no further letter, because puts wait meanwhile."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _ReplayBatch:
    """Letters that one transaction replays, the notifications of their requests, and the failed letters."""

    letter_ids: list[int] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)
    failed: list[FailedReplay] = field(default_factory=list)


class DeadLetterRoutes:
    """Routes to dead letters."""

    def __init__(self, context: AdminContext) -> None:
        self._context, self._inbox = context, context.inbox
        self._causes = CauseCounter(context.inbox, lambda search: self._to_filter(search, _status(search)))

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "no such dead letter, or catalog"}}
        shared: dict[str, Any] = {"openapi_extra": SECURITY_EXTRA, "responses": unknown}
        router.add_api_route("/dead-letters", self.find, operation_id="findDeadLetters", **shared)
        router.add_api_route("/dead-letter-causes", self.causes, operation_id="countDeadLettersByCause", **shared)
        router.add_api_route("/dead-letters/{number}", self.show, operation_id="showDeadLetter", **shared)
        for verb, route in (("replay", self.replay), ("discard", self.discard)):
            router.add_api_route(
                f"/dead-letters:{verb}", route, methods=["POST"], operation_id=f"{verb}DeadLetters", **shared
            )

    async def find(self, search: Annotated[DeadLetterSearch, Query()]) -> DeadLetterPage:
        """List dead letters by id, in pages.

        With `cause` or `cause_contains`, a page may have fewer letters than its limit, even none, because it ends after
        1,000 letters of any cause: the list ends where `next` is null.
        """
        found, following = await self._matching(search, _status(search), search.after, search.limit)
        return DeadLetterPage(dead_letters=[DeadLetterModel.from_letter(letter) for letter in found], next=following)

    async def causes(self, search: Annotated[DeadLetterCauseSearch, Query()]) -> DeadLetterCauses:
        """Count dead letters by reason and cause; letters of one outage share a cause.

        The counts may be a few seconds old.
        """
        return await self._causes.count(search)

    async def show(self, number: Annotated[int, Path(ge=0, le=MAX_ID)]) -> DeadLetterDetails:
        """Return one dead letter, with its undecodable request, or the owner of the file in its table's place."""
        found = await self._inbox.get_many([number])
        if not found:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no dead letter has the id {number}")
        letter = found[0]
        table_status = await self._inbox.table_status(letter.subject) if letter.subject is not None else None
        foreign_catalog_id = table_status.job.table_state.foreign_catalog_id if table_status is not None else None
        return DeadLetterDetails.with_request(letter, await self._inbox.request_of(number), foreign_catalog_id)

    async def replay(self, selection: DeadLetterSelection, request: Request) -> ReplayResult:
        """Queue the tables of open letters again; the catalog's present answer is published.

        Undecodable requests are decoded again. Replayed tables wait behind new events. A batch by filter may end early
        if the requests contain many notifications. Letters that are given by id are replayed in parts, each with its
        own audit entry.
        """
        batch, following = await self._select(selection)
        command = self._context.command(request, _describe_selection(selection))
        failed: list[FailedReplay] = []
        count, remaining = 0, batch
        while True:
            part = await self._next_part(remaining)
            if not _is_empty_by_cause(selection, batch):
                count += await self._inbox.replay(part.letter_ids, part.notifications, command)
            failed += part.failed
            remaining = remaining[len(part.letter_ids) + len(part.failed) :]
            if not remaining or selection.ids is None:
                break
        if remaining:
            following = batch[-len(remaining) - 1].id
        self._causes.clear()
        _log.info("dead letters replayed", number=count, failed=len(failed), actor=command.actor)
        return ReplayResult(replayed=count, failed=failed, skipped=_skipped_ids(selection, batch), next=following)

    async def discard(self, selection: DeadLetterSelection, request: Request) -> DiscardResult:
        """Close open letters and leave their tables unchanged until the next event."""
        batch, following = await self._select(selection)
        command = self._context.command(request, _describe_selection(selection))
        is_empty = _is_empty_by_cause(selection, batch)
        count = 0 if is_empty else await self._inbox.discard([letter.id for letter in batch], command)
        self._causes.clear()
        _log.info("dead letters discarded", number=count, actor=command.actor)
        return DiscardResult(discarded=count, skipped=_skipped_ids(selection, batch), next=following)

    async def _next_part(self, letters: Sequence[DeadLetter]) -> _ReplayBatch:
        """Return the first letters that fit one transaction, at least one."""
        part = _ReplayBatch()
        for letter in letters:
            if len(part.notifications) >= MAX_NOTIFICATIONS:
                break
            try:
                if letter.reason is DeadLetterReason.UNDECODABLE:
                    # Read each request in its own call, so that the event loop is free between two decodings.
                    part.notifications += self._decode(await self._inbox.request_of(letter.id))
                part.letter_ids.append(letter.id)
            except Rejected as refusal:
                part.failed.append(FailedReplay(id=letter.id, why=str(refusal)))
        return part

    async def _select(self, selection: DeadLetterSelection) -> tuple[list[DeadLetter], int | None]:
        """Return the selected open letters, and the start of the next batch."""
        if (selection.ids is None) == (selection.filter is None):
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "expected either ids or a filter, found both or none")
        if selection.ids is not None:
            found = await self._inbox.get_many(selection.ids)
            return [letter for letter in found if letter.status is DeadLetterStatus.OPEN], None
        criteria = selection.filter or DeadLetterCriteria()
        return await self._matching(criteria, DeadLetterStatus.OPEN, selection.after, selection.limit)

    async def _matching(
        self, criteria: DeadLetterCriteria, status: DeadLetterStatus | None, after: int, limit: int
    ) -> tuple[list[DeadLetter], int | None]:
        """Return the next letters that match, by id, and the id after which the letters behind them begin."""
        # The cause is no column: letters of any cause are read, and the others are left out.
        most = MAX_BATCH if criteria.names_cause else limit
        read = await self._inbox.list_after(await self._to_filter(criteria, status), after, most)
        matching = [letter for letter in read if criteria.matches_cause(letter.cause)]
        if len(matching) > limit:
            return matching[:limit], matching[limit - 1].id
        return matching, _next(read, most)

    async def _to_filter(self, chosen: DeadLetterCriteria, status: DeadLetterStatus | None) -> DeadLetterFilter:
        catalog = chosen.catalog
        known = catalog is None or catalog in self._context.catalogs
        # A catalog that was removed from the configuration may still have letters.
        if catalog is not None and not (known or await self._inbox.list_newest(DeadLetterFilter(None, catalog), 1)):
            self._context.configured_catalog(catalog)
        table = self._context.parse_table(chosen.table, chosen.catalog) if chosen.table is not None else None
        before, since = chosen.before, chosen.since
        return DeadLetterFilter(status, chosen.catalog, table, chosen.reason, chosen.sender, before, since)

    def _decode(self, request: UndecodableRequest | None) -> Sequence[Notification]:
        if request is None or request.size > len(request.body):
            stored = len(request.body) if request is not None else 0
            raise Rejected(
                "body",
                status=422,
                expected="the complete body",
                found=f"its first {stored} bytes; the rest was not stored",
                remedy="sweep the catalog (`sfn reconcile`), then discard the letter",
            )
        return self._context.decode(request)


def _next(found: Sequence[DeadLetter], limit: int) -> int | None:
    return found[-1].id if len(found) == limit else None


def _skipped_ids(selection: DeadLetterSelection, batch: Sequence[DeadLetter]) -> list[int]:
    """Return the requested ids that are not open letters."""
    found = {letter.id for letter in batch}
    return [number for number in dict.fromkeys(selection.ids or ()) if number not in found]


def _is_empty_by_cause(selection: DeadLetterSelection, batch: Sequence[DeadLetter]) -> bool:
    """Return True for a batch of letters with other causes only: the audit log gets no entry for it."""
    return not batch and selection.filter is not None and selection.filter.names_cause


def _describe_selection(selection: DeadLetterSelection) -> str:
    """Return a description of the selection, for the audit log."""
    if selection.filter is None:
        return f"ids {', '.join(str(number) for number in (selection.ids or ())[:50])}"
    terms = selection.filter.model_dump(mode="json", exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in terms.items()) or "all"


def _status(search: DeadLetterCauseSearch) -> DeadLetterStatus | None:
    return None if search.status == "all" else search.status
