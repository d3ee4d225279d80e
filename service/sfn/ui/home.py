"""Pages without sign-in: links to everything the service has, and a viewer of its OpenAPI description."""

from __future__ import annotations

from typing import Final

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from sfn.clock import Clock
from sfn.ui.rendering import PREFIX, Renderer, asset_response

DOCS_PATH: Final = "/docs"


def home_router(clock: Clock, version: str, *, has_operators: bool) -> APIRouter:
    """Return the routes of the pages without sign-in, and of the files that all pages load.

    Args:
        clock: the wall clock.
        version: version of the service.
        has_operators: True if this process serves the page for operators.
    """
    router = APIRouter(include_in_schema=False)
    HomePages(Renderer(None, clock, version), has_operators=has_operators).register(router)
    return router


class HomePages:
    """The pages without sign-in.

    Args:
        renderer: renders pages.
        has_operators: True if this process serves the page for operators.
    """

    def __init__(self, renderer: Renderer, *, has_operators: bool) -> None:
        self._renderer, self._has_operators = renderer, has_operators

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route("/", self.home)
        router.add_api_route(DOCS_PATH, self.docs)
        router.add_api_route(f"{PREFIX}/assets/{{name}}", self.asset)

    async def home(self, request: Request) -> Response:
        """The links, for a browser; other clients get the problem document of a path without a route."""
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(404)
        return self._renderer.page(request, "home.html", {"has_operators": self._has_operators})

    async def docs(self, request: Request) -> Response:
        """The viewer of the OpenAPI description."""
        return self._renderer.page(request, "docs.html", {})

    async def asset(self, name: str, request: Request) -> Response:
        """A file that pages load."""
        return await anyio.to_thread.run_sync(asset_response, request, name)
