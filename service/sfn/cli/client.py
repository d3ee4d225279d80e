"""The HTTP client of a running service, and how a command finds the service's address and token."""

from __future__ import annotations

import getpass
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from sfn.admin import schemas, table_schemas, verdict
from sfn.cli.options import EventSigner, ServiceOptions, exit_on_error
from sfn.cli.render import escape
from sfn.errors import SfnError, suggest_name
from sfn.http.secrets import WEBHOOK_PREFIX, AuthScheme, secret_bytes
from sfn.settings import explain_no_settings, load, load_client, local_url
from sfn.settings.root import Settings
from sfn.settings.sections import AdminSettings, CatalogSettings, ListenerSettings, SenderSettings
from sfn.settings.sources import ConfigurationError
from sfn.settings.types import validate_http_url

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """The address of a service, and the credentials for it.

    Attributes:
        url: base URL, without a trailing slash.
        token: bearer token; None if none is needed.
        tls_verify: the certificates that verify the service's; False without TLS.
        signer: the signer of events; None if events are not signed.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    tls_verify: ssl.SSLContext | bool = True
    signer: EventSigner | None = None


def admin_access(flags: ServiceOptions) -> ServiceAccess:
    """Return access to the admin routes.

    Raises:
        ConfigurationError: no token or no URL is configured or given.
    """
    known = None if flags.url is not None and flags.token_file is not None else load_client(flags.config)
    token = None if flags.token_file is None else read_first_token(flags.token_file)
    if token is None and known is not None:
        token = _admin_token(known.admin, flags.config)
    return _access(flags, token, None if known is None else known.listener)


@dataclass(frozen=True, slots=True)
class CatalogSender:
    """A sender that may send events for a catalog.

    Attributes:
        sender: the sender's name; None if no sender is configured and anyone may send.
        sender_catalog: the sender's name for the catalog.
        catalog: the catalog's name in the configuration.
    """

    sender: str | None
    sender_catalog: str
    catalog: str


@dataclass(frozen=True, slots=True)
class EventAccess:
    """Access to the events route.

    Attributes:
        access: the service's address and the sender's credentials.
        sender_catalog: the sender's name for the catalog; None for the only one.
        catalog: the catalog's name in the configuration.
        settings: the catalog's settings; None if the configuration was not read.
    """

    access: ServiceAccess
    sender_catalog: str | None
    catalog: str | None
    settings: CatalogSettings | None = None


def event_access(flags: ServiceOptions, catalog: str | None, sender: str | None) -> EventAccess:
    """Return access to the events route.

    Args:
        flags: the options of the command.
        catalog: the catalog; None for the only one.
        sender: the configured sender to use. Its token or signing secret is then in `flags.token_file`, if that is
            given. None for any sender of the catalog; `flags.token_file` then holds a bearer token.

    Raises:
        ConfigurationError: no token, secret or URL is configured or given, or the sender is unknown.
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
    """Return a configured sender that may send events for a catalog.

    Raises:
        ConfigurationError: no sender may, or several catalogs are possible and none was named.
    """
    if sender_name is not None and sender_name not in settings.senders:
        known = ", ".join(settings.senders) or "none"
        raise _configuration_error("--sender", f"a configured sender ({known})", sender_name)
    anyone = {None: {name: name for name in settings.catalogs}}
    names_by_sender = {
        name: settings.catalogs_of(name) for name in settings.senders if sender_name in {None, name}
    } or anyone
    candidates = [
        CatalogSender(sender, sender_catalog, name)
        for sender, names in names_by_sender.items()
        for sender_catalog, name in names.items()
    ]
    catalogs = sorted({one.catalog for one in candidates})
    if catalog is None and len(catalogs) > 1:
        raise _configuration_error("--catalog", f"one of {', '.join(catalogs)}", "none")
    for one in candidates:
        if catalog in {None, one.catalog}:
            return one
    remedy = "configure a sender for it, or pass --token-file"
    raise _configuration_error("--catalog", f"a catalog of a sender ({', '.join(catalogs)})", str(catalog), remedy)


def read_first_token(file: Path, scheme: AuthScheme = AuthScheme.BEARER) -> str:
    """Return the first token of a file with one token per line. Empty lines and comments (`#`) are ignored.

    Args:
        file: the file.
        scheme: the scheme that the tokens are for.

    Raises:
        ConfigurationError: the file has no token, or cannot be read.
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
    raise _configuration_error(str(file), f"a file with a {scheme.word} in its first line", found)


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
        # Loading certificates takes long, and plain HTTP needs none.
        return ServiceAccess(url, token, tls_verify=False)
    own = None if listener is None or flags.url is not None else listener.tls_certificate_file
    file = flags.ca_file or own
    try:
        if flags.ca_file is None and own is not None:
            return ServiceAccess(url, token, _trust_only(own))
        return ServiceAccess(url, token, ssl.create_default_context(cafile=flags.ca_file))
    except (OSError, UnicodeDecodeError) as error:
        # SSLError is an OSError, too: the file holds no certificate.
        found = getattr(error, "strerror", None) or type(error).__name__
    raise _configuration_error(str(file), "a file of PEM certificates", found)


def _trust_only(chain: Path) -> ssl.SSLContext:
    """Return a context that trusts the listener's own certificate only, the first one in its file.

    Host names are not checked: the certificate may not name the local address.
    """
    own = _CERTIFICATE.search(chain.read_text("ascii"))
    if own is None:
        raise _configuration_error(str(chain), "a file of PEM certificates", "none")
    trust = ssl.create_default_context(cadata=own[0])
    trust.check_hostname = False
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return trust


def _admin_token(admin: AdminSettings, config: Path | None) -> str:
    if admin.token is not None:
        return admin.token.get_secret_value()
    if admin.token_file is not None:
        return read_first_token(admin.token_file)
    remedy = "pass a configuration (--config FILE) with [admin] token or token_file, or pass --token-file"
    missing = SfnError("admin.token", expected="the operators' token", found="none", remedy=remedy)
    raise explain_no_settings(config, missing)


def _read_bearer_token(file: Path) -> str:
    token = read_first_token(file)
    if token.startswith(WEBHOOK_PREFIX):
        # A signing secret must not travel: anyone who reads it can sign events.
        remedy = "pass the sender, too: --sender NAME"
        raise _configuration_error(str(file), "a file with a token in its first line", "a signing secret", remedy)
    return token


def _with_secret(access: ServiceAccess, name: str, sender: SenderSettings, token_file: Path | None) -> ServiceAccess:
    """Return access with a sender's token or signer, from a file or else from the sender's configuration."""
    if token_file is not None and sender.scheme is AuthScheme.NONE:
        raise _configuration_error("--token-file", f"no file: the sender {name} has no token", str(token_file))
    secret = None if token_file is not None else next((one.get_secret_value() for one in sender.secrets.values()), None)
    file = token_file or sender.secrets_file
    if secret is None and file is not None:
        secret = read_first_token(file, sender.scheme)
    if secret is None or sender.signature_scheme is None:
        return replace(access, token=secret)
    return replace(access, signer=EventSigner(sender.signature_scheme, secret_bytes(sender.scheme, secret)))


def _configuration_error(where: str, expected: str, found: str, remedy: str = "") -> ConfigurationError:
    return ConfigurationError([SfnError(where, expected=expected, found=found, remedy=remedy)])


CONNECT_TIMEOUT: Final = 5.0
"""Seconds to get a connection."""
RESPONSE_TIMEOUT: Final = 60.0
"""Seconds to get an answer."""


def connection_error(url: str, error: httpx.TransportError) -> SfnError:
    """Return the reason why a service does not answer, with a remedy."""
    where = "start it with `sfn serve`, or pass its address: --url, or --config with its listener.host and port"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = "pass the certificates of its authority with --ca-file, and the host of its certificate in --url"
            return SfnError(url, expected="a certificate that is trusted", found=cause.verify_message, remedy=remedy)
        if isinstance(cause, ssl.SSLError):
            remedy = "check whether the port speaks TLS: use https:// if it does, http:// if not"
            return SfnError(url, expected="a TLS connection", found=cause.reason or "another protocol", remedy=remedy)
        if isinstance(cause, OSError) and cause.strerror:
            return SfnError(url, expected="a running service", found=cause.strerror, remedy=where)
    if isinstance(error, httpx.ConnectTimeout):
        return SfnError(url, expected=f"a connection within {CONNECT_TIMEOUT:g} s", found="none", remedy=where)
    if isinstance(error, httpx.TimeoutException):
        remedy = "check whether the machine or its disk is overloaded"
        return SfnError(url, expected=f"an answer within {RESPONSE_TIMEOUT:g} s", found="none", remedy=remedy)
    remedy = "check whether the port speaks TLS (https://), and whether the service has just ended"
    return SfnError(url, expected="an HTTP response", found=type(error).__name__, remedy=remedy)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


T = TypeVar("T", bound=BaseModel)

MAX_ATTEMPTS: Final = 4
"""Requests in all, if a 503 or a 429 has a Retry-After header."""
MAX_WAIT: Final = 10.0
"""The longest wait between two of these requests, in seconds."""

_LEVELS: Final = "\x1f"
"""The separator of a namespace's levels in a path, as in Iceberg's REST API."""
_ADMIN: Final = "/admin/v1"
_DETAIL: Final = 300
_RETRYABLE: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
_JSON: Final = {"Content-Type": "application/json"}
_SERVICE: Final = "an sfn service"
_CHECK_URL: Final = "another service or a proxy answered: check --url, or the address in --config"


class AcceptedEvents(BaseModel):
    """The counts of posted events."""

    accepted: int
    duplicates: int
    ignored: int


class ProblemDocument(BaseModel):
    """A problem document (RFC 9457)."""

    title: str = ""
    status: int = 0
    detail: str = ""


class UnknownToService(SfnError):
    """The service does not know the requested table, dead letter or catalog."""


class ConflictingState(SfnError):
    """The request conflicts with the service's state, which `found` describes."""


Parameters: TypeAlias = Mapping[str, str | int | Sequence[str]]
"""Parameters of a query; one with several values is repeated."""


class ServiceClient:
    """A client of one running service, to be closed after use.

    The client sends a token, so it follows no redirects and ignores the proxy variables of the environment. Each method
    raises `SfnError` if the service does not answer as expected.

    Args:
        access: address and credentials.
        sleep: sleeps for a number of seconds.
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

    def status(self) -> verdict.ServiceReport:
        """Return the state of the service."""
        return self._get("/status", verdict.ServiceReport)

    def table(
        self, catalog: str, namespace: tuple[str, ...], name: str, *, ask_catalog: bool = False
    ) -> table_schemas.TableModel:
        """Return the state of a table.

        Args:
            catalog: the catalog's name.
            namespace: the levels of the table's namespace.
            name: the table's name.
            ask_catalog: True to have the service ask the catalog, too.

        Raises:
            UnknownToService: the inbox does not know the table.
        """
        path = "/".join(quote(part, safe="") for part in (catalog, _LEVELS.join(namespace), name))
        parameters = {"ask_catalog": "true"} if ask_catalog else None
        return self._get(f"/tables/{path}", table_schemas.TableModel, parameters)

    def tables(self, search: Parameters) -> table_schemas.TableListPage:
        """Return a page of tables; `search` has the parameters of the route."""
        return self._get("/tables", table_schemas.TableListPage, search)

    def resolve_catalog(self, name: str | None) -> str:
        """Return the name of a catalog: the given one, or else the only one that is configured.

        Raises:
            ConfigurationError: several catalogs are configured.
        """
        if name is not None:
            return name
        configured = [catalog.name for catalog in self.status().catalogs]
        if len(configured) == 1:
            return configured[0]
        raise _configuration_error("--catalog", f"one of {', '.join(configured)}", "none")

    def check_configured(self, catalog: str, where: str = "CATALOG") -> None:
        """Check that the service has a catalog.

        Args:
            catalog: the catalog's name.
            where: the argument or option that names it, for the message.

        Raises:
            ConfigurationError: the service has no such catalog; the remedy suggests the closest name.
        """
        known = [one.name for one in self.status().catalogs]
        if catalog not in known:
            expected, remedy = f"a configured catalog ({', '.join(known)})", suggest_name(catalog, known)
            raise ConfigurationError([SfnError(where, expected=expected, found=escape(catalog), remedy=remedy)])

    @contextmanager
    def explain_unknown(self, *catalogs: str | None) -> Iterator[None]:
        """Explain an `UnknownToService` in the block: a catalog in `--catalog` that is not configured is wrong usage.

        Raises:
            ConfigurationError: the service has no such catalog.
        """
        try:
            yield
        except UnknownToService:
            for name in catalogs:
                if name is not None:
                    self.check_configured(name, "--catalog")
            raise

    def dead_letters(self, parameters: Mapping[str, str | int]) -> schemas.DeadLetterPage:
        return self._get("/dead-letters", schemas.DeadLetterPage, parameters)

    def dead_letter_causes(self, parameters: Mapping[str, str | int]) -> schemas.DeadLetterCauses:
        return self._get("/dead-letter-causes", schemas.DeadLetterCauses, parameters)

    def dead_letter(self, number: int) -> schemas.DeadLetterDetails:
        """Return one dead letter, with its undecodable request, if it has one.

        Raises:
            UnknownToService: the service has no dead letter with this id.
        """
        try:
            return self._get(f"/dead-letters/{number}", schemas.DeadLetterDetails)
        except UnknownToService:
            remedy = "`sfn dead-letters list --status all` shows all that the inbox still has"
            raise UnknownToService(
                f"dead letter {number}", expected="an id of the inbox", found="none", remedy=remedy
            ) from None

    def replay(self, batch: schemas.DeadLetterSelection) -> schemas.ReplayResult:
        """Replay one batch of dead letters."""
        return self._post("/dead-letters:replay", batch, schemas.ReplayResult)

    def discard(self, batch: schemas.DeadLetterSelection) -> schemas.DiscardResult:
        """Discard one batch of dead letters."""
        return self._post("/dead-letters:discard", batch, schemas.DiscardResult)

    def reconcile(self, catalogs: list[str]) -> schemas.SweepAccepted:
        """Request a sweep of some catalogs, or of all for an empty list."""
        return self._post("/reconcile", schemas.SweepRequest(catalogs=catalogs), schemas.SweepAccepted)

    def drop_limit(self, catalog: str) -> schemas.DropLimitDetails:
        """Return what the drop limit of a catalog let pass, and what it holds."""
        return self._get(f"/drop-limits/{quote(catalog, safe='')}", schemas.DropLimitDetails)

    def release(self, catalog: str) -> int:
        """Release the tables that a catalog's drop limit holds. Return their number."""
        return self._post(f"/drop-limits/{quote(catalog, safe='')}:release", None, schemas.ReleasedTables).released

    def retire(self, catalog: str, *, undo: bool) -> int:
        """Retire a catalog, or undo that. Return the number of its tables."""
        return self._post(
            f"/catalogs/{quote(catalog, safe='')}:retire", schemas.RetireRequest(undo=undo), schemas.AffectedTables
        ).tables

    def adopt(self, catalog: str, adoption: schemas.AdoptRequest) -> int:
        """Take over files of another `catalog_id`. Return the number of tables.

        Raises:
            ConflictingState: the files are known to carry a third `catalog_id`.
        """
        return self._post(f"/catalogs/{quote(catalog, safe='')}:adopt", adoption, schemas.AffectedTables).tables

    def audit(self, limit: int, before: int | None) -> schemas.AuditPage:
        """Return a page of the audit log, newest entries first.

        Args:
            limit: the most entries.
            before: an id; only older entries are returned. None for the newest.
        """
        parameters = {"limit": limit} if before is None else {"limit": limit, "before": before}
        return self._get("/audit", schemas.AuditPage, parameters)

    def post_events(self, events: Mapping[str, object] | Sequence[Mapping[str, object]]) -> AcceptedEvents:
        """Post one event, or up to 1,000, signed if the access has a signer."""
        content, headers = to_json(events), {**_JSON}
        if self._signer is not None:
            # Retries send the same signed message id, so an event that was accepted is a duplicate then.
            headers |= self._signer.headers(content)
        reply = self._exchange("POST", "/v1/events", content=content, headers=headers)
        if reply.status_code != HTTPStatus.ACCEPTED:
            raise self._error_of(reply)
        return self._read(reply, AcceptedEvents)

    def _get(self, path: str, kind: type[T], parameters: Parameters | None = None) -> T:
        return self._answer(self._exchange("GET", _ADMIN + path, params=parameters), kind)

    def _post(self, path: str, content: BaseModel | None, kind: type[T]) -> T:
        body = b"{}" if content is None else content.model_dump_json(exclude_unset=True).encode()
        return self._answer(self._exchange("POST", _ADMIN + path, content=body, headers=_JSON), kind)

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
        params: Parameters | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request, and repeat it while a 503 or a 429 has a Retry-After header. Never raises for a status."""
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
                remedy="use the `sfn` of the service's own version, and check what listens at that URL",
            ) from None

    def _not_found_error(self, reply: httpx.Response) -> SfnError:
        """Return the error of a 404: an unknown table, no admin routes, or another service."""
        probe = self._exchange("GET", f"{_ADMIN}/status")
        if probe.status_code != HTTPStatus.NOT_FOUND:
            return UnknownToService(
                str(reply.url), expected="one that exists", found=f"none: {_problem(reply) or _body(reply)}"
            )
        if self._exchange("GET", "/livez").status_code not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
            return SfnError(self.url, expected=_SERVICE, found="404 for /livez", remedy=_CHECK_URL)
        remedy = "set admin.token or admin.token_file in the service's configuration and restart it"
        return SfnError(
            self.url, expected="a service with admin routes", found="one without, or an old version", remedy=remedy
        )

    def _error_of(self, reply: httpx.Response) -> SfnError:
        where, problem = f"{reply.request.method} {reply.url}", _problem(reply)
        match reply.status_code:
            case status if status in range(300, 400):
                expected = "no redirect, because its target would receive the token"
                remedy = f"set --url to the redirect's target, {reply.headers.get('Location', 'which is not given')}"
            case _ if not problem:
                expected, remedy = _SERVICE, _CHECK_URL
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN if self._signer is not None:
                expected = "a valid, recent signature"
                remedy = "pass the --config of this service, and check the clocks of both machines"
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                expected = "a token that the service knows"
                remedy = "pass --token-file, or the --config of this service"
            case HTTPStatus.SERVICE_UNAVAILABLE:
                expected = f"an answer within {MAX_ATTEMPTS} tries"
                remedy = "find the cause with `sfn check`, or in the service's log"
            case HTTPStatus.TOO_MANY_REQUESTS:
                expected = f"an answer within {MAX_ATTEMPTS} tries"
                remedy = "send fewer events at once, or raise the sender's rate_limit"
            case HTTPStatus.CONFLICT:
                return ConflictingState(where, expected="a request that fits the service's state", found=problem)
            case _:
                expected, remedy = "an answer", ""
        found = f"status {reply.status_code}: {problem or _body(reply)}"
        return SfnError(where, expected=expected, found=found, remedy=remedy)


def actor_name() -> str:
    """Return user and host in ASCII, for the service's audit log and the From header (RFC 9110, section 10.1.2)."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # A container's user may have no name.
        user = f"uid-{os.getuid()}"
    return re.sub(r"[^\x21-\x7e]", "?", f"{user}@{socket.gethostname()}")


def _first_validation_error(error: ValidationError) -> str:
    """Return the first error of an answer, with its place."""
    wrong = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, wrong["loc"]))
    return f"{where}: {wrong['msg']}" if where else wrong["msg"]


def _problem(reply: httpx.Response) -> str:
    """Return the text of a problem document; empty for an answer that is none."""
    try:
        problem = ProblemDocument.model_validate_json(reply.content)
    except ValidationError:
        return ""
    return escape(problem.detail or problem.title)[:_DETAIL]


def _body(reply: httpx.Response) -> str:
    kind = escape(reply.headers.get("Content-Type", "no type"))
    return f"a body of {kind}, {len(reply.content)} bytes, and no problem document"


@contextmanager
def open_service(flags: ServiceOptions) -> Iterator[ServiceClient]:
    """Yield a client of the admin routes; print the message of an error in the block, and exit with its code."""
    with exit_on_error(), ServiceClient(admin_access(flags)) as service:
        yield service
