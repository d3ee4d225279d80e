"""The operators' routes to dead letters: found and shown, replayed and discarded, a batch a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException

from sfn.admin.operators import SECURED, Operations
from sfn.admin.schemas import (
    LARGEST,
    Discarded,
    Filter,
    Letter,
    LetterInFull,
    Letters,
    Replayed,
    Search,
    Selection,
    Unreplayed,
)
from sfn.errors import Rejected
from sfn.inbox.letters import DeadLetter, Status, Wanted
from sfn.words import Hint, Reason, Undecodable

HINTS: Final = 1_000
"""After so many hints a transaction takes no further letter: puts wait for it."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Part:
    """Letters that are replayed in one transaction, what the requests among them say, and those that stay."""

    numbers: list[int] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    failed: list[Unreplayed] = field(default_factory=list)


class DeadLetterRoutes:
    """Routes to dead letters."""

    def __init__(self, operations: Operations) -> None:
        self._operations, self._letters = operations, operations.inbox.letters

    def join(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "no such dead letter, or catalog"}}
        shared: dict[str, Any] = {"openapi_extra": SECURED, "responses": unknown}
        router.add_api_route("/dead-letters", self.find, operation_id="findDeadLetters", **shared)
        router.add_api_route("/dead-letters/{number}", self.show, operation_id="showDeadLetter", **shared)
        for verb, route in (("replay", self.replay), ("discard", self.discard)):
            router.add_api_route(
                f"/dead-letters:{verb}", route, methods=["POST"], operation_id=f"{verb}DeadLetters", **shared
            )

    async def find(self, search: Annotated[Search, Query()]) -> Letters:
        """Dead letters by id, page by page."""
        wanted = await self._wanted(search, None if search.status == "all" else search.status)
        found = await self._letters.find(wanted, search.after, search.limit)
        return Letters(dead_letters=[Letter.of(letter) for letter in found], next=_next(found, search.limit))

    async def show(self, number: Annotated[int, Path(ge=0, le=LARGEST)]) -> LetterInFull:
        """One dead letter, with the request that it is about, or whose file keeps ours from its table's place."""
        found = await self._letters.numbered([number])
        if not found:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no dead letter has the id {number}")
        letter = found[0]
        standing = await self._operations.inbox.desk.standing(letter.subject) if letter.subject is not None else None
        foreign_id = standing.story.foreign_id if standing is not None else None
        return LetterInFull.with_event(letter, await self._letters.event(number), foreign_id)

    async def replay(self, selection: Selection, request: Request) -> Replayed:
        """Have the tables of open letters looked at again: what is published is the catalog's present answer.

        A request that nobody understood is decoded again. What is replayed takes its turn behind new events. A batch of
        a filter ends once such requests say enough; letters that are named are replayed in parts, each audited.
        """
        batch, following = await self._batch(selection)
        order = self._operations.order(request, _about(selection))
        failed: list[Unreplayed] = []
        count, left = 0, batch
        while True:
            part = await self._part(left)
            count += await self._letters.replay(part.numbers, part.hints, order)
            failed += part.failed
            left = left[len(part.numbers) + len(part.failed) :]
            if not left or selection.ids is None:
                break
        if left:
            following = batch[-len(left) - 1].id
        _log.info("dead letters replayed", number=count, failed=len(failed), actor=order.actor)
        return Replayed(replayed=count, failed=failed, passed=_passed(selection, batch), next=following)

    async def discard(self, selection: Selection, request: Request) -> Discarded:
        """Close open letters and leave their tables as they are, until something is told of them."""
        batch, following = await self._batch(selection)
        order = self._operations.order(request, _about(selection))
        count = await self._letters.discard([letter.id for letter in batch], order)
        _log.info("dead letters discarded", number=count, actor=order.actor)
        return Discarded(discarded=count, passed=_passed(selection, batch), next=following)

    async def _part(self, letters: Sequence[DeadLetter]) -> _Part:
        """As many of the first letters as one transaction takes, at least one."""
        part = _Part()
        for letter in letters:
            if len(part.hints) >= HINTS:
                break
            try:
                if letter.reason is Reason.UNDECODABLE:
                    # Each is asked for alone, so that the loop is free between one decoding and the next.
                    part.hints += self._understood(await self._letters.event(letter.id))
                part.numbers.append(letter.id)
            except Rejected as refusal:
                part.failed.append(Unreplayed(id=letter.id, why=str(refusal)))
        return part

    async def _batch(self, selection: Selection) -> tuple[list[DeadLetter], int | None]:
        """The open letters that are meant, and where the next batch begins."""
        if (selection.ids is None) == (selection.filter is None):
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "expected either ids or a filter, found both or none")
        if selection.ids is not None:
            found = await self._letters.numbered(selection.ids)
            return [letter for letter in found if letter.status is Status.OPEN], None
        wanted = await self._wanted(selection.filter or Filter(), Status.OPEN)
        found = await self._letters.find(wanted, selection.after, selection.limit)
        return found, _next(found, selection.limit)

    async def _wanted(self, chosen: Filter, status: Status | None) -> Wanted:
        catalog = chosen.catalog
        known = catalog is None or catalog in self._operations.catalogs
        # One that left the configuration may still have letters.
        if catalog is not None and not (known or await self._letters.newest(Wanted(None, catalog), 1)):
            self._operations.followed(catalog)
        table = self._operations.named(chosen.table, chosen.catalog) if chosen.table is not None else None
        before, since = chosen.before, chosen.since
        return Wanted(status, chosen.catalog, table, chosen.reason, chosen.sender, before, since)

    def _understood(self, event: Undecodable | None) -> Sequence[Hint]:
        if event is None or event.size > len(event.body):
            kept = len(event.body) if event is not None else 0
            raise Rejected(
                "body",
                status=422,
                expected="all of it",
                found=f"its first {kept} bytes, the rest was not kept",
                remedy="have the catalog swept (`sfn reconcile`), then discard the letter",
            )
        return self._operations.understand(event)


def _next(found: Sequence[DeadLetter], limit: int) -> int | None:
    return found[-1].id if len(found) == limit else None


def _passed(selection: Selection, batch: Sequence[DeadLetter]) -> list[int]:
    """The ids that were named and are no open letters."""
    found = {letter.id for letter in batch}
    return [number for number in dict.fromkeys(selection.ids or ()) if number not in found]


def _about(selection: Selection) -> str:
    """What was selected, for the audit log."""
    if selection.filter is None:
        return f"ids {', '.join(str(number) for number in (selection.ids or ())[:50])}"
    terms = selection.filter.model_dump(mode="json", exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in terms.items()) or "all"
