"""`ui_router`: the routes of the page, who may use them, and what they answer if something is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit

import anyio
import structlog
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException
from typing_extensions import override

from sfn.admin.routes import AdminContext, EncodedPathRoute
from sfn.admin.status import StatusRoutes
from sfn.admin.verdict import StatusProblem, describe_sweep, headline
from sfn.errors import Transient
from sfn.http.app import describe_errors
from sfn.ui.charts import lag_chart
from sfn.ui.dead_letters import DeadLetterPages
from sfn.ui.events import RecentRequestPages
from sfn.ui.held_drops import HeldDropPages
from sfn.ui.operators_log import OperatorsLogPages
from sfn.ui.rendering import PREFIX, Renderer
from sfn.ui.session import COOKIE, MAX_AGE, OperatorTokens, Session, Sessions
from sfn.ui.table import TablePageRoutes
from sfn.ui.tables import TableListRoutes

Page: TypeAlias = Callable[[Request], Awaitable[Response]]
"""Answers a request; `request.state.session` has the session, `request.state.form` the fields of a form."""

_LOGIN: Final = f"{PREFIX}/login"
_WRONG_TOKEN_PAUSE: Final = 0.5
"""Seconds before the answer to a wrong token."""

_log = structlog.stdlib.get_logger(__name__)


def ui_router(context: AdminContext, tokens: OperatorTokens) -> APIRouter:
    """Return the routes of the page.

    Args:
        context: the inbox, the catalogs and the state of the process.
        tokens: the tokens of operators.
    """
    sessions = Sessions(tokens, context.clock)
    renderer = Renderer(sessions, context.clock, context.process.version)
    router = APIRouter(include_in_schema=False)
    LoginRoutes(sessions, renderer).register(router)
    signed_in = APIRouter(include_in_schema=False, route_class=page_route(sessions, renderer))
    OverviewRoutes(context, renderer).register(signed_in)
    for pages in (
        TableListRoutes,
        TablePageRoutes,
        DeadLetterPages,
        HeldDropPages,
        RecentRequestPages,
        OperatorsLogPages,
    ):
        pages(context, renderer).register(signed_in)
    signed_in.add_api_route(f"{PREFIX}/{{rest:path}}", _no_such_page)
    router.include_router(signed_in)
    return router


def page_route(sessions: Sessions, renderer: Renderer) -> type[EncodedPathRoute]:
    """Return the class of a route for signed-in operators. An error becomes a page; a form needs its token.

    Args:
        sessions: finds the session of a cookie.
        renderer: renders errors.
    """

    class PageRoute(EncodedPathRoute):
        @override
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answer = super().get_route_handler()

            async def answer_operator(request: Request) -> Response:
                session = sessions.find(request.cookies.get(COOKIE))
                if session is None:
                    return _to_login(request)
                # `token` is where the functions of the admin API look for the operator.
                request.state.session, request.state.token = session, session.token_name
                try:
                    if request.method == "POST":
                        request.state.form = await _read_form(request, sessions, session)
                    return await answer(request)
                except HTTPException as error:
                    return _error_page(renderer, request, error.status_code, str(error.detail))
                except RequestValidationError as error:
                    text = describe_errors(error.errors())
                    return _error_page(renderer, request, HTTPStatus.UNPROCESSABLE_ENTITY, text)
                except Transient as error:
                    _log.warning("inbox unavailable", error=str(error))
                    text = f"the inbox is unavailable: {error}"
                    return _error_page(renderer, request, HTTPStatus.SERVICE_UNAVAILABLE, text)

            return answer_operator

    return PageRoute


class LoginRoutes:
    """Signs operators in and out."""

    def __init__(self, sessions: Sessions, renderer: Renderer) -> None:
        self._sessions, self._renderer = sessions, renderer

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(_LOGIN, self.form)
        router.add_api_route(_LOGIN, self.sign_in, methods=["POST"])
        router.add_api_route(f"{PREFIX}/logout", self.sign_out, methods=["POST"])

    async def form(self, request: Request) -> Response:
        """The form that asks for the token."""
        return self._renderer.page(request, "login.html", {"next": _next(request.query_params), "error": ""})

    async def sign_in(self, request: Request) -> Response:
        """Set the cookie of a new session, and lead to the page that was asked for."""
        _check_origin(request)
        form = dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))
        client = request.client.host if request.client is not None else None
        session = self._sessions.sign_in(form.get("token", ""), client)
        following = _next(form)
        if session is None:
            await anyio.sleep(_WRONG_TOKEN_PAUSE)
            values = {"next": following, "error": "This is not a token of an operator."}
            return self._renderer.page(request, "login.html", values, HTTPStatus.UNAUTHORIZED)
        _log.info("operator signed in", actor=session.token_name, client=client)
        response = RedirectResponse(following, HTTPStatus.SEE_OTHER)
        response.set_cookie(
            COOKIE,
            session.cookie,
            max_age=int(MAX_AGE.total_seconds()),
            path=PREFIX,
            secure=_is_https(request),
            httponly=True,
            # Not strict: links from alerts and runbooks would always lead to the login. Forms have their own token.
            samesite="lax",
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """Remove the cookie."""
        _check_origin(request)
        response = RedirectResponse(_LOGIN, HTTPStatus.SEE_OTHER)
        response.delete_cookie(COOKIE, PREFIX)
        return response


class OverviewRoutes:
    """The overview of the service."""

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._context, self._renderer = context, renderer
        self._status = StatusRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(PREFIX, self.overview)

    async def overview(self, request: Request) -> Response:
        """The verdict, and the state of each catalog."""
        status, now = await self._status.status(), self._context.clock.now()
        lag = self._context.process.lag
        values = {
            "status": status,
            "headline": headline(status, now),
            "charts": {one.name: lag_chart(lag.by_minute(one.name, now)) for one in status.catalogs},
            "sweep": partial(describe_sweep, now=now),
            "page_of": _page_of,
            "paused": "paused" in request.query_params,
        }
        return self._renderer.page(request, "overview.html", values)


class PageLink(NamedTuple):
    """A page where an operator can act.

    Attributes:
        address: its path, with a query.
        name: its title.
    """

    address: str
    name: str


def _page_of(problem: StatusProblem) -> PageLink | None:
    """Return the page that has the tables, letters or requests of a problem; None if there is none."""
    chosen = f"catalog={quote(problem.catalog or '', safe='')}"
    match problem.kind:
        case "late":
            return PageLink(f"{PREFIX}/tables?late=true&{chosen}", "Late tables")
        case "dead-letters":
            return PageLink(f"{PREFIX}/dead-letters", "Dead letters")
        case "held-drops" | "drop-limit":
            return PageLink(f"{PREFIX}/held-drops", "Held drops")
        case "unauthorized":
            return PageLink(f"{PREFIX}/events?refused=true", "Refused requests")
        case _:
            return None


async def _no_such_page(request: Request) -> Response:
    raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no page {request.url.path}")


async def _read_form(request: Request, sessions: Sessions, session: Session) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        HTTPException: 403: the form is not of a page of this session.
    """
    _check_origin(request)
    form = dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))
    if not sessions.is_form_token(session, form.pop("form_token", "")):
        text = "this form was not made for your session: open its page again, and send it from there"
        raise HTTPException(HTTPStatus.FORBIDDEN, text)
    return form


def _check_origin(request: Request) -> None:
    """Refuse a request that another site's page sends.

    Raises:
        HTTPException: 403.
    """
    origin = request.headers.get("origin")
    is_own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not is_own or request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HTTPException(HTTPStatus.FORBIDDEN, "the page of another site may not send this request")


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


def _next(fields: Mapping[str, str]) -> str:
    """Return the page that was asked for before the login: one of this service, whatever the address says."""
    found = fields.get("next", PREFIX)
    is_own = found == PREFIX or found.startswith((f"{PREFIX}/", f"{PREFIX}?"))
    return found if is_own and not any(character in found for character in "\\\r\n") else PREFIX


def _to_login(request: Request) -> Response:
    if request.headers.get("hx-request"):
        # After a redirect, htmx would put the login into a part of the page.
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": _LOGIN})
    asked = PREFIX if request.method == "POST" else request.url.path
    asked += f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{_LOGIN}?next={quote(asked, safe='')}", HTTPStatus.SEE_OTHER)


def _error_page(renderer: Renderer, request: Request, status: int, text: str) -> Response:
    values = {"title": HTTPStatus(status).phrase, "status": status, "text": text}
    return renderer.page(request, "error.html", values, status)
