"""The pages of dead letters: by cause, one by one, and one letter in full; replay and discard after a question."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from sfn.admin.dead_letters import DeadLetterRoutes
from sfn.admin.remedies import remedy_for
from sfn.admin.routes import AdminContext
from sfn.admin.schemas import (
    MAX_BATCH,
    MAX_ID,
    DeadLetterCauseSearch,
    DeadLetterCriteria,
    DeadLetterModel,
    DeadLetterSearch,
    DeadLetterSelection,
)
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import pluralise
from sfn.inbox.model import DeadLetterStatus
from sfn.ui.queries import address, filled, number_in, parse_fields
from sfn.ui.rendering import PREFIX, Renderer

PATH: Final = f"{PREFIX}/dead-letters"
PAGE: Final = 50
"""The most letters, and the most causes, of a page."""
MAX_BODY: Final = 16_384
"""The most characters of a request's body on the page of its letter."""
ORDER_SECONDS: Final = 20.0
"""Seconds after which an order begins no other batch, because proxies give up a request."""
_MAX_BATCHES: Final = 20
"""The most batches that are read for one page: letters of other causes may lie between those of the page."""
_TIMES: Final = ("before", "since")
_STATUSES: Final = [*(status.value for status in DeadLetterStatus), "all"]


class _Verb(StrEnum):
    """The orders about dead letters."""

    REPLAY = "replay"
    DISCARD = "discard"

    @property
    def done(self) -> str:
        """The word for a letter after the order."""
        return "replayed" if self is _Verb.REPLAY else "discarded"


class DeadLetterPages:
    """The pages of dead letters.

    Args:
        context: the inbox, the catalogs and the state of the process.
        renderer: renders pages.
    """

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._context, self._renderer = context, renderer
        self._routes = DeadLetterRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(PATH, self.letters)
        for verb in _Verb:
            router.add_api_route(f"{PATH}/{verb}", self.question)
            router.add_api_route(f"{PATH}/{verb}", self.order, methods=["POST"])
        router.add_api_route(f"{PATH}/{{number}}", self.letter)

    async def letters(self, request: Request) -> Response:
        """The letters by cause; one by one with `view=list`, or with `like`, the id of a letter with the same cause."""
        fields = filled(request.query_params)
        search = parse_fields(DeadLetterSearch, {**await self._criteria_fields(fields), "limit": PAGE})
        filters = {name: fields[name] for name in (*DeadLetterCauseSearch.model_fields, "like") if name in fields}
        values: dict[str, Any] = {
            "search": search,
            "fields": filters,
            "catalogs": list(self._context.catalogs),
            "reasons": list(DeadLetterReason),
            "statuses": _STATUSES,
            "result": describe_result(fields),
            "utc": _local_text,
            "like": lambda number: address(PATH, {**filters, "like": number}),
            "listed": address(PATH, {**filters, "view": "list"}),
            "grouped": address(PATH, {name: text for name, text in filters.items() if name != "like"}),
            "order": lambda verb, like=None: address(
                f"{PATH}/{verb}", {**filters, "status": None, "like": like or filters.get("like")}
            ),
        }
        if "like" in fields or fields.get("view") == "list":
            found, following = await self._page(search)
            older = address(PATH, {**filters, "view": "list", "after": following}) if following is not None else None
            return self._renderer.page(request, "dead_letters_list.html", {**values, "letters": found, "more": older})
        causes = await self._routes.causes(parse_fields(DeadLetterCauseSearch, search.model_dump(exclude_none=True)))
        return self._renderer.page(request, "dead_letters.html", {**values, "counted": causes, "most": PAGE})

    async def letter(self, number: Annotated[int, Path(ge=0, le=MAX_ID)], request: Request) -> Response:
        """One letter in full."""
        letter = await self._routes.show(number)
        values = {
            "letter": letter,
            "remedy": remedy_for(letter, letter.foreign_catalog_id),
            "body": letter.request.body[:MAX_BODY] if letter.request is not None else "",
            "is_cut": letter.request is not None and len(letter.request.body) > MAX_BODY,
            "result": describe_result(filled(request.query_params)),
        }
        return self._renderer.page(request, "dead_letter.html", values)

    async def question(self, request: Request) -> Response:
        """How many letters an order affects, and whether it shall be carried out."""
        verb, fields = _verb_of(request), filled(request.query_params)
        values: dict[str, Any] = {"verb": verb.value, "letter": None, "counted": None}
        if "id" in fields:
            letter = await self._routes.show(_id_of(fields, "id"))
            number = int(letter.status == DeadLetterStatus.OPEN)
            values |= {"letter": letter, "number": number, "hidden": {"id": letter.id}}
        else:
            chosen = await self._criteria_fields(fields)
            now = self._context.clock.now()
            # Letters that are opened after the question are not in the answer, so the order leaves them out.
            before = parse_fields(DeadLetterCriteria, chosen).before
            criteria = parse_fields(DeadLetterCriteria, {**chosen, "before": min(before or now, now)})
            counted = await self._routes.causes(DeadLetterCauseSearch(**criteria.model_dump()))
            hidden = criteria.model_dump(mode="json", exclude_none=True)
            values |= {"counted": counted, "number": counted.letters, "hidden": hidden, "before": criteria.before}
        return self._renderer.page(request, "dead_letters_order.html", values)

    async def order(self, request: Request) -> Response:
        """Carry out an order, and lead to a page with its result."""
        verb, form = _verb_of(request), filled(request.state.form)
        if "id" in form:
            number = _id_of(form, "id")
            done, failed, _ = await self._order_batch(verb, DeadLetterSelection(ids=[number]), request)
            fields = {"done": verb.done, "count": done, "failed": failed or None}
            return RedirectResponse(address(f"{PATH}/{number}", fields), HTTPStatus.SEE_OTHER)
        criteria = parse_fields(DeadLetterCriteria, form)
        if criteria.before is None:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "the form names no dead letters: open its page again")
        ends_at = anyio.current_time() + ORDER_SECONDS
        count = failed_count = 0
        after: int | None = 0
        while after is not None and anyio.current_time() < ends_at:
            batch = DeadLetterSelection(filter=criteria, after=after, limit=MAX_BATCH)
            done, failed, after = await self._order_batch(verb, batch, request)
            count, failed_count = count + done, failed_count + failed
        fields = {
            "done": verb.done,
            "count": count,
            "failed": failed_count or None,
            "left": None if after is None else 1,
        }
        return RedirectResponse(address(PATH, fields), HTTPStatus.SEE_OTHER)

    async def _order_batch(
        self, verb: _Verb, batch: DeadLetterSelection, request: Request
    ) -> tuple[int, int, int | None]:
        """Return how many letters of a batch were closed, how many failed, and where the next batch begins."""
        if verb is _Verb.REPLAY:
            replayed = await self._routes.replay(batch, request)
            return replayed.replayed, len(replayed.failed), replayed.next
        discarded = await self._routes.discard(batch, request)
        return discarded.discarded, 0, discarded.next

    async def _criteria_fields(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a search; times without an offset are UTC, and `like` becomes a reason and a cause."""
        chosen: dict[str, Any] = dict(fields)
        for name in _TIMES:
            if name in chosen:
                chosen[name] = _utc(name, chosen[name])
        if "like" in chosen:
            letter = await self._routes.show(_id_of(fields, "like"))
            chosen |= {"reason": letter.reason, "cause": letter.cause}
        return chosen

    async def _page(self, search: DeadLetterSearch) -> tuple[list[DeadLetterModel], int | None]:
        """Return the letters of a page, and where the next page begins."""
        found: list[DeadLetterModel] = []
        after: int | None = search.after
        for _ in range(_MAX_BATCHES):
            most = PAGE - len(found)
            page = await self._routes.find(search.model_copy(update={"after": after, "limit": most}))
            found += page.dead_letters
            after = page.next
            if after is None or len(found) >= PAGE:
                break
        return found, after


def describe_result(fields: Mapping[str, str]) -> str | None:
    """Return the result of an order, made from known words and numbers in an address; None without an order."""
    done = fields.get("done", "")
    if done not in {verb.done for verb in _Verb}:
        return None
    count, failed = number_in(fields, "count"), number_in(fields, "failed")
    if not count and not failed:
        return f"No dead letter was {done}: none of them was open any more."
    parts = [f"{pluralise(count, 'dead letter')} {done}."]
    if count and done == _Verb.REPLAY.done:
        parts.append("The tables are in the queue for another attempt.")
    if failed:
        parts.append(f"{pluralise(failed, 'request')} still cannot be decoded, so the letters stay open.")
    if "left" in fields:
        parts.append(f"Not all letters were reached within {ORDER_SECONDS:.0f} s: repeat the order for the others.")
    return " ".join(parts)


def _verb_of(request: Request) -> _Verb:
    return _Verb(request.url.path.rpartition("/")[2])


def _id_of(fields: Mapping[str, str], name: str) -> int:
    if (number := number_in(fields, name)) or fields[name] == "0":
        return number
    raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: expected the id of a dead letter")


def _utc(name: str, text: str) -> datetime:
    """Return a time that an operator typed.

    Raises:
        HTTPException: 422.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        detail = f"{name}: expected a time such as 2026-08-21T12:00"
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def _local_text(at: datetime | None) -> str:
    """Return the value of a field for a time: in UTC, without an offset."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
