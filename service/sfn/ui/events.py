"""The page of events: the last requests with events to this process, and the last ones of each sender."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response

from sfn.admin.routes import AdminContext
from sfn.ui.queries import address, filled
from sfn.ui.rendering import PREFIX, Renderer

PATH: Final = f"{PREFIX}/events"
PAGE: Final = 100
"""The most requests of the page, unless all are asked for."""
ALL: Final = 1_000
UNIDENTIFIED: Final = "(unidentified)"
"""The value of the filter for requests of unidentified senders. No sender can have this name."""
_FILTERS: Final = ("sender", "refused", "all")


class RecentRequestPages:
    """The page of events.

    Args:
        context: the state of the process.
        renderer: renders pages.
    """

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._process, self._renderer = context.process, renderer

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(PATH, self.events)

    async def events(self, request: Request) -> Response:
        """The last requests, the newest first."""
        fields, recent = filled(request.query_params), self._process.recent
        chosen = fields.get("sender")
        most = ALL if "all" in fields else PAGE
        found = recent.latest(
            most + 1, sender="" if chosen == UNIDENTIFIED else chosen, refused_only="refused" in fields
        )
        filters: dict[str, str] = {name: fields[name] for name in _FILTERS if name in fields}
        values = {
            "requests": found[:most],
            "has_more": len(found) > most,
            "most": most,
            "all": address(PATH, {**filters, "all": "true"}),
            "activities": recent.activities,
            "unauthorized": [(one, recent.senders_at(one.client)) for one in recent.unauthorized()],
            "chosen": chosen,
            "unidentified": UNIDENTIFIED,
            "refused_only": "refused" in fields,
            "here": address(PATH, filters),
            "paused": "paused" in fields,
            "pause": address(PATH, {**filters, "paused": "true"}),
            "phrase": _phrase,
            "is_receiver": not self._process.roles or "receiver" in self._process.roles,
        }
        return self._renderer.page(request, "events.html", values)


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
