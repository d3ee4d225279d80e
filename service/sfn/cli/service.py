"""The running service, asked over HTTP."""

from __future__ import annotations

import getpass
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from sfn.admin import schemas
from sfn.cli.access import ServiceAccess
from sfn.cli.pages import escape
from sfn.cli.unreached import CONNECT_TIMEOUT, RESPONSE_TIMEOUT, connection_error
from sfn.errors import SfnError, suggest_name
from sfn.settings.sources import ConfigurationError

T = TypeVar("T", bound=BaseModel)

MAX_ATTEMPTS: Final = 4
"""Requests in all, where a 503 or a 429 says when to come again."""
MAX_WAIT: Final = 10.0
"""Seconds that are waited for one of these to pass, whatever it says."""

_LEVELS: Final = "\x1f"
"""Between the levels of a namespace in a path, as in Iceberg's REST API."""
_ADMIN: Final = "/admin/v1"
_DETAIL: Final = 300
_RETRYABLE: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
_JSON: Final = {"Content-Type": "application/json"}
_SERVICE: Final = "an sfn service"
_CHECK_URL: Final = "that is not this service, or a proxy before it: check --url, or the --config that says where it is"


class AcceptedEvents(BaseModel):
    """What became of posted events."""

    accepted: int
    duplicates: int
    ignored: int


class ProblemDocument(BaseModel):
    """A problem document (RFC 9457)."""

    title: str = ""
    status: int = 0
    detail: str = ""


class UnknownToService(SfnError):
    """The service has no such thing."""


class ConflictingState(SfnError):
    """The service knows better; `found` says what."""


class ServiceClient:
    """One running service. To be closed; follows no redirect and trusts no proxy of the environment: it shows a token.

    Every verb raises `SfnError` for whatever is not its answer.

    Args:
        access: where it is, and what it is shown.
        sleep: waits so many seconds.
    """

    def __init__(self, access: ServiceAccess, sleep: Callable[[float], None] = time.sleep) -> None:
        self.url = access.url
        self._signer = access.signer
        self._sleep = sleep
        headers = {"Accept": "application/json", "From": actor_name(), "User-Agent": f"sfn/{version('iceberg-sfn')}"}
        if access.token is not None:
            headers["Authorization"] = f"Bearer {access.token}"
        self._client = httpx.Client(
            base_url=access.url,
            headers=headers,
            timeout=httpx.Timeout(RESPONSE_TIMEOUT, connect=CONNECT_TIMEOUT),
            verify=access.tls_verify,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def status(self) -> schemas.ServiceStatus:
        """How it is."""
        return self._get("/status", schemas.ServiceStatus)

    def table(self, catalog: str, namespace: tuple[str, ...], name: str) -> schemas.TableModel:
        """A table's story; raises `UnknownToService` where the inbox has none."""
        path = "/".join(quote(part, safe="") for part in (catalog, _LEVELS.join(namespace), name))
        return self._get(f"/tables/{path}", schemas.TableModel)

    def resolve_catalog(self, name: str | None) -> str:
        """The catalog that is meant: the one that was named, else the only one.

        Raises:
            Misconfigured: there are several.
        """
        if name is not None:
            return name
        configured = [catalog.name for catalog in self.status().catalogs]
        if len(configured) == 1:
            return configured[0]
        raise ConfigurationError(
            [SfnError("--catalog", expected=f"one of {', '.join(configured)}, as there are several", found="none")]
        )

    def check_configured(self, catalog: str) -> None:
        """Refuse a catalog that the service does not have.

        Raises:
            Misconfigured: with the nearest name that it has.
        """
        known = [one.name for one in self.status().catalogs]
        if catalog not in known:
            expected, remedy = f"a configured catalog ({', '.join(known)})", suggest_name(catalog, known)
            raise ConfigurationError([SfnError("CATALOG", expected=expected, found=escape(catalog), remedy=remedy)])

    def dead_letters(self, parameters: Mapping[str, str | int]) -> schemas.DeadLetterPage:
        """A page of dead letters."""
        return self._get("/dead-letters", schemas.DeadLetterPage, parameters)

    def dead_letter(self, number: int) -> schemas.DeadLetterDetails:
        """One dead letter, with the event that nobody understood; raises `UnknownToService`."""
        try:
            return self._get(f"/dead-letters/{number}", schemas.DeadLetterDetails)
        except UnknownToService:
            remedy = "`sfn dead-letters list --status all` has those that are kept"
            raise UnknownToService(
                f"dead letter {number}", expected="one that the service keeps", found="none", remedy=remedy
            ) from None

    def replay(self, batch: schemas.DeadLetterSelection) -> schemas.ReplayResult:
        """Have one batch tried again."""
        return self._post("/dead-letters:replay", batch, schemas.ReplayResult)

    def discard(self, batch: schemas.DeadLetterSelection) -> schemas.DiscardResult:
        """Have one batch put away."""
        return self._post("/dead-letters:discard", batch, schemas.DiscardResult)

    def reconcile(self, catalogs: list[str]) -> schemas.SweepAccepted:
        """Ask for a sweep of these catalogs, or of all where none is named."""
        return self._post("/reconcile", schemas.SweepRequest(catalogs=catalogs), schemas.SweepAccepted)

    def release(self, catalog: str) -> int:
        """Let go what a catalog's brake holds; how many tables."""
        return self._post(f"/brakes/{quote(catalog, safe='')}:release", None, schemas.ReleasedTables).released

    def retire(self, catalog: str, *, undo: bool) -> int:
        """Withdraw all our files of a catalog, or begin to keep them again; how many tables."""
        return self._post(
            f"/catalogs/{quote(catalog, safe='')}:retire", schemas.RetireRequest(undo=undo), schemas.AffectedTables
        ).tables

    def adopt(self, catalog: str, adoption: schemas.AdoptRequest) -> int:
        """Take over files of another catalog id; how many tables. Raises `ConflictingState` where they carry a
        third.
        """
        return self._post(f"/catalogs/{quote(catalog, safe='')}:adopt", adoption, schemas.AffectedTables).tables

    def audit(self, limit: int, before: int | None) -> schemas.AuditPage:
        """What operators did, newest first."""
        parameters = {"limit": limit} if before is None else {"limit": limit, "before": before}
        return self._get("/audit", schemas.AuditPage, parameters)

    def post_events(self, events: Mapping[str, object] | Sequence[Mapping[str, object]]) -> AcceptedEvents:
        """Post one event, or up to 1,000, signed where the access says so."""
        content, headers = to_json(events), {**_JSON}
        if (signing := self._signer) is not None:
            # The same whenever it is sent again: what was taken is a duplicate then.
            headers |= signing.headers(content)
        reply = self._exchange("POST", "/v1/events", content=content, headers=headers)
        if reply.status_code != HTTPStatus.ACCEPTED:
            raise self._error_of(reply)
        return self._read(reply, AcceptedEvents)

    def _get(self, path: str, kind: type[T], parameters: Mapping[str, str | int] | None = None) -> T:
        return self._answer(self._exchange("GET", _ADMIN + path, params=parameters), kind)

    def _post(self, path: str, content: BaseModel | None, kind: type[T]) -> T:
        order = b"{}" if content is None else content.model_dump_json(exclude_unset=True).encode()
        return self._answer(self._exchange("POST", _ADMIN + path, content=order, headers=_JSON), kind)

    def _answer(self, reply: httpx.Response, kind: type[T]) -> T:
        if reply.is_success:
            return self._read(reply, kind)
        if reply.status_code == HTTPStatus.NOT_FOUND:
            raise self._not_found_error(reply)
        raise self._error_of(reply)

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request, made again while a 503 or a 429 says when; never raises for a status."""
        left = MAX_ATTEMPTS
        while True:
            left -= 1
            try:
                reply = self._client.request(method, path, params=params, content=content, headers=headers)
            except httpx.TransportError as error:
                raise connection_error(self.url, error) from error
            wait = reply.headers.get("Retry-After", "")
            if reply.status_code not in _RETRYABLE or not wait.isdigit() or not left:
                return reply
            self._sleep(min(float(wait), MAX_WAIT))

    def _read(self, reply: httpx.Response, kind: type[T]) -> T:
        try:
            return kind.model_validate_json(reply.content)
        except ValidationError as error:
            raise SfnError(
                str(reply.url),
                expected=f"an answer of sfn {version('iceberg-sfn')}",
                found=_first_validation_error(error),
                remedy="use the `sfn` of the service's own version, and see what listens at that URL",
            ) from None

    def _not_found_error(self, reply: httpx.Response) -> SfnError:
        """A 404: of a thing that does not exist, or of all these routes."""
        probe = self._exchange("GET", f"{_ADMIN}/status")
        if probe.status_code != HTTPStatus.NOT_FOUND:
            return UnknownToService(
                str(reply.url), expected="one that exists", found=f"none: {_problem(reply) or _body(reply)}"
            )
        if self._exchange("GET", "/livez").status_code not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
            return SfnError(self.url, expected=_SERVICE, found="404 to what one answers", remedy=_CHECK_URL)
        remedy = "set admin.token or admin.token_file in the service's configuration and restart it"
        return SfnError(
            self.url, expected="a service with admin routes", found="one without, or of an old version", remedy=remedy
        )

    def _error_of(self, reply: httpx.Response) -> SfnError:
        where, problem = f"{reply.request.method} {reply.url}", _problem(reply)
        match reply.status_code:
            case status if status in range(300, 400):
                expected = "the service itself, and no redirect: a token would be sent along"
                remedy = f"set --url to where it leads, {reply.headers.get('Location', 'which it does not say')}"
            case _ if not problem:
                expected, remedy = _SERVICE, _CHECK_URL
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN if self._signer is not None:
                expected = "a signature of now"
                remedy = "give the --config of that very service; and see that both machines' clocks are right"
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                expected = "a token that the service knows"
                remedy = "give --token-file, or the --config of that very service"
            case HTTPStatus.SERVICE_UNAVAILABLE:
                expected = f"an answer within {MAX_ATTEMPTS} tries"
                remedy = "see what is wrong: `sfn check` says it, or the service's log"
            case HTTPStatus.TOO_MANY_REQUESTS:
                expected = f"an answer within {MAX_ATTEMPTS} tries"
                remedy = "tell it of less at once, or raise the sender's rate_limit"
            case HTTPStatus.CONFLICT:
                return ConflictingState(where, expected="what fits what the service knows", found=problem)
            case _:
                expected, remedy = "an answer", ""
        found = f"status {reply.status_code}: {problem or _body(reply)}"
        return SfnError(where, expected=expected, found=found, remedy=remedy)


def actor_name() -> str:
    """Who asks, for the service's audit log (RFC 9110, section 10.1.2): user and host, in ASCII."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # A container's user may have no name.
        user = f"uid-{os.getuid()}"
    return re.sub(r"[^\x21-\x7e]", "?", f"{user}@{socket.gethostname()}")


def _first_validation_error(error: ValidationError) -> str:
    """What is wrong with an answer, and where in it."""
    wrong = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, wrong["loc"]))
    return f"{where}: {wrong['msg']}" if where else wrong["msg"]


def _problem(reply: httpx.Response) -> str:
    """What a refusal says about itself; empty for one that is not the service's."""
    try:
        problem = ProblemDocument.model_validate_json(reply.content)
    except ValidationError:
        return ""
    return escape(problem.detail or problem.title)[:_DETAIL]


def _body(reply: httpx.Response) -> str:
    kind = escape(reply.headers.get("Content-Type", "no type"))
    return f"a body of {kind}, {len(reply.content)} bytes, that is no problem document"
