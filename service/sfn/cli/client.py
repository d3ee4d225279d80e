"""The running service, asked over HTTP."""

from __future__ import annotations

import getpass
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from sfn.admin import schemas
from sfn.cli.options import EventSigner, ServiceOptions
from sfn.cli.render import escape
from sfn.errors import SfnError, suggest_name
from sfn.http.secrets import WEBHOOK_PREFIX, AuthScheme, secret_bytes
from sfn.settings import explain_no_settings, load, load_client
from sfn.settings.model import Settings
from sfn.settings.sections import AdminSettings, CatalogSettings, SenderSettings
from sfn.settings.service import ListenerSettings
from sfn.settings.sources import ConfigurationError
from sfn.settings.types import validate_http_url

# ── access: Where the service is

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - what a configuration says, read and not bound


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How the service is reached.

    Attributes:
        url: where it listens, without a trailing slash.
        token: bearer token; None where none is needed.
        tls_verify: the certificates that its own is verified by; False without TLS.
        signer: what events are signed with, where they are.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    tls_verify: ssl.SSLContext | bool = True
    signer: EventSigner | None = None


def admin_access(flags: ServiceOptions) -> ServiceAccess:
    """Access to the admin routes.

    Raises:
        Misconfigured: there is no token, or no URL, to be found.
    """
    known = None if flags.url is not None and flags.token_file is not None else load_client(flags.config)
    token = None if flags.token_file is None else read_first_token(flags.token_file)
    if token is None and known is not None:
        token = _admin_token(known.admin, flags.config)
    return _access(flags, token, None if known is None else known.listener)


@dataclass(frozen=True, slots=True)
class CatalogSender:
    """Who may tell of a catalog's tables.

    Attributes:
        sender: its name; None for everybody.
        sender_catalog: what it calls the catalog.
        catalog: what the configuration calls it.
    """

    sender: str | None
    sender_catalog: str
    catalog: str


@dataclass(frozen=True, slots=True)
class EventAccess:
    """Access to the route of events.

    Attributes:
        access: how it is reached.
        sender_catalog: what the sender whose token is shown calls the catalog; None for the only one.
        catalog: the catalog's name in the configuration.
        settings: its settings; None where the configuration was not read.
    """

    access: ServiceAccess
    sender_catalog: str | None
    catalog: str | None
    settings: CatalogSettings | None = None


def event_access(flags: ServiceOptions, catalog: str | None, sender: str | None) -> EventAccess:
    """Access to the route of events.

    Args:
        catalog: which one is meant, None for the only one.
        sender: which configured sender to be, None for any that speaks for the catalog: then `flags.token_file` holds a
            bearer token, else what that sender shows or signs with.

    Raises:
        Misconfigured: there is no token or secret, no URL or no such sender.
    """
    if flags.token_file is not None and sender is None:
        listener = None if flags.url is not None else load_client(flags.config).listener
        return EventAccess(_access(flags, _read_bearer_token(flags.token_file), listener), catalog, catalog)
    settings = load(flags.config)
    found = find_sender(settings, catalog, sender)
    access = _access(flags, None, settings.listener)
    if found.sender is not None:
        access = _with_secret(access, found.sender, settings.senders[found.sender], flags.token_file)
    return EventAccess(access, found.sender_catalog, found.catalog, settings.catalogs[found.catalog])


def find_sender(settings: Settings, catalog: str | None, sender_name: str | None) -> CatalogSender:
    """Which configured sender may tell of a catalog's tables.

    Raises:
        Misconfigured: none may, or it is not said which catalog.
    """
    if sender_name is not None and sender_name not in settings.senders:
        known = ", ".join(settings.senders) or "none"
        raise _configuration_error("--sender", f"a configured sender ({known})", sender_name)
    everybody = {None: {name: name for name in settings.catalogs}}
    names_by_sender = {
        name: settings.catalogs_of(name) for name in settings.senders if sender_name in {None, name}
    } or everybody
    pairs = [(sender, theirs, ours) for sender, names in names_by_sender.items() for theirs, ours in names.items()]
    catalogs = sorted({ours for _, _, ours in pairs})
    if catalog is None and len(catalogs) > 1:
        raise _configuration_error("--catalog", f"one of {', '.join(catalogs)}, as there are several", "none")
    for sender, theirs, ours in pairs:
        if catalog in {None, ours}:
            return CatalogSender(sender, theirs, ours)
    remedy = "configure a sender for it, or give --token-file"
    raise _configuration_error(
        "--catalog", f"a catalog that a sender speaks for ({', '.join(catalogs)})", str(catalog), remedy
    )


def read_first_token(file: Path, scheme: AuthScheme = AuthScheme.BEARER) -> str:
    """The first token of a file of tokens, one a line; empty lines and remarks (`#`) are passed over.

    Args:
        file: it.
        scheme: what they are for.

    Raises:
        Misconfigured: there is none.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        found = error.strerror or "an error"
    except UnicodeDecodeError:
        found = "bytes that are not UTF-8"
    else:
        token = next((line for raw in lines if (line := raw.strip()) and not line.startswith("#")), "")
        try:
            secret_bytes(scheme, token)
        except ValueError as error:
            found = f"none of {error}" if token else f"no {scheme.word}"
        else:
            return token
    raise _configuration_error(str(file), f"a file whose first line is a {scheme.word}", found)


def local_url(listener: ListenerSettings) -> str:
    """Where this machine reaches a listener.

    Raises:
        Misconfigured: it listens on whichever port is free.
    """
    if listener.port == 0:
        remedy = "give --url; the service's record `listening` says it"
        raise _configuration_error(
            "listener.port", "the port that the service listens on", "0, which is any free one", remedy
        )
    host = listener.host.removeprefix("[").removesuffix("]")
    if listener.host in _ANY_ADDRESS:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{listener.port}"


def _service_url(flags: ServiceOptions, listener: ListenerSettings | None) -> str:
    if flags.url is None:
        return local_url(listener or ListenerSettings())
    try:
        return validate_http_url(flags.url).rstrip("/")
    except ValueError as error:
        expected = f"{error}, such as http://127.0.0.1:8085"
    raise _configuration_error("--url", expected, flags.url)


def _access(flags: ServiceOptions, token: str | None, listener: ListenerSettings | None) -> ServiceAccess:
    url = _service_url(flags, listener)
    if url.startswith("http://"):
        # There is nothing to verify, and certificates take long to load.
        return ServiceAccess(url, token, tls_verify=False)
    own = None if listener is None or flags.url is not None else listener.tls_certificate_file
    file = flags.ca_file or own
    try:
        if flags.ca_file is None and own is not None:
            return ServiceAccess(url, token, _trust_only(own))
        return ServiceAccess(url, token, ssl.create_default_context(cafile=flags.ca_file))
    except (OSError, UnicodeDecodeError) as error:
        # An SSLError is an OSError too: of a file that holds no certificate.
        found = getattr(error, "strerror", None) or type(error).__name__
    raise _configuration_error(str(file), "a file of PEM certificates", found)


def _trust_only(chain: Path) -> ssl.SSLContext:
    """Trust in the listener's own certificate, the first one of its file, and in nothing that others of it signed.

    It is reached by an address that this certificate need not name.
    """
    own = _CERTIFICATE.search(chain.read_text("ascii"))
    if own is None:
        raise _configuration_error(str(chain), "a file of PEM certificates", "none in it")
    trust = ssl.create_default_context(cadata=own[0])
    trust.check_hostname = False
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return trust


def _admin_token(admin: AdminSettings, config: Path | None) -> str:
    if admin.token is not None:
        return admin.token.get_secret_value()
    if admin.token_file is not None:
        return read_first_token(admin.token_file)
    remedy = "name the configuration (--config FILE) that has [admin] token or token_file, or give --token-file"
    lacking = SfnError("admin.token", expected="the operators' token", found="none", remedy=remedy)
    raise explain_no_settings(config, lacking)


def _read_bearer_token(file: Path) -> str:
    token = read_first_token(file)
    if token.startswith(WEBHOOK_PREFIX):
        # Whoever reads it on the way could sign with it from then on.
        remedy = "say which sender's, --sender NAME"
        raise _configuration_error(str(file), "a file whose first line is a token", "a secret that signs", remedy)
    return token


def _with_secret(access: ServiceAccess, name: str, sender: SenderSettings, token_file: Path | None) -> ServiceAccess:
    """As a sender, by what a file holds that was given, else by the first of its tokens or secrets."""
    if token_file is not None and sender.scheme is AuthScheme.NONE:
        raise _configuration_error("--token-file", f"none, as the sender {name} shows nothing", str(token_file))
    secret = None if token_file is not None else next((one.get_secret_value() for one in sender.secrets.values()), None)
    file = token_file or sender.secrets_file
    if secret is None and file is not None:
        secret = read_first_token(file, sender.scheme)
    if secret is None or sender.signature_scheme is None:
        return replace(access, token=secret)
    return replace(access, signer=EventSigner(sender.signature_scheme, secret_bytes(sender.scheme, secret)))


def _configuration_error(where: str, expected: str, found: str, remedy: str = "") -> ConfigurationError:
    return ConfigurationError([SfnError(where, expected=expected, found=found, remedy=remedy)])


# ── unreached: Why a service gives no answer

CONNECT_TIMEOUT: Final = 5.0
"""Seconds to get a connection."""
RESPONSE_TIMEOUT: Final = 60.0
"""Seconds to get an answer."""


def connection_error(url: str, error: httpx.TransportError) -> SfnError:
    """What stands between us and an answer, and what to do about it."""
    where = "start it with `sfn serve`, or say where it is: --url, or --config with its listener.host and port"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = "name its authority's certificates with --ca-file, and its host in --url as its certificate does"
            return SfnError(url, expected="a certificate that is trusted", found=cause.verify_message, remedy=remedy)
        if isinstance(cause, ssl.SSLError):
            remedy = "see whether the port speaks TLS: https:// where it does, http:// where not"
            return SfnError(url, expected="a TLS connection", found=cause.reason or "another protocol", remedy=remedy)
        if isinstance(cause, OSError) and cause.strerror:
            return SfnError(url, expected="a running service", found=cause.strerror, remedy=where)
    if isinstance(error, httpx.ConnectTimeout):
        return SfnError(url, expected=f"a connection within {CONNECT_TIMEOUT:g} s", found="none", remedy=where)
    if isinstance(error, httpx.TimeoutException):
        remedy = "see whether the machine or its disk is overloaded"
        return SfnError(url, expected=f"an answer within {RESPONSE_TIMEOUT:g} s", found="none", remedy=remedy)
    remedy = "see whether the port speaks TLS (https://), and whether the service has just ended"
    return SfnError(url, expected="an answer in HTTP", found=type(error).__name__, remedy=remedy)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# ── service: The running service

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
        return self._post(f"/drop-limits/{quote(catalog, safe='')}:release", None, schemas.ReleasedTables).released

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
