"""Catalogs behind PyIceberg: a SQL database, AWS Glue, a Hive metastore, DynamoDB, or a class of a third party.

PyIceberg is an optional dependency, imported only if such a catalog is configured. Start reading at `PyIcebergCatalog`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, unquote_plus

import anyio

from sfn.catalogs import CatalogFailure, CatalogRequestFailed, LoadResult, SkipNamespace, UnlistedNamespace, combine
from sfn.catalogs.activity import CatalogActivity
from sfn.catalogs.listing import walk_tables
from sfn.clock import SystemClock
from sfn.concurrency import AbandonableThreads, TimedOut
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.extras import install_command
from sfn.telemetry import tracing

EXTRA: Final = install_command("pyiceberg")
IMPLEMENTATION: Final = "py-catalog-impl"
KINDS: Final = {
    "dynamodb": "pyiceberg.catalog.dynamodb.DynamoDbCatalog",
    "glue": "pyiceberg.catalog.glue.GlueCatalog",
    "hive": "pyiceberg.catalog.hive.HiveCatalog",
    "rest": "pyiceberg.catalog.rest.RestCatalog",
    "sql": "pyiceberg.catalog.sql.SqlCatalog",
}
"""PyIceberg's classes by its property `type`. Not `in-memory`, which no other process can see."""

_INFERRED: Final = {"http": "rest", "postgresql": "sql", "sqlite": "sql", "thrift": "hive"}
"""Type by the scheme of `uri`, if `type` is not set; as `pyiceberg.catalog.infer_catalog_type`."""

_IDENTIFYING: Final = (
    "warehouse",
    "table-name",
    "client.region",
    "dynamodb.region",
    "glue.endpoint",
    "glue.id",
    "glue.region",
)
"""Properties that, with `uri`, distinguish one catalog from others."""
_PLAIN: Final = frozenset({"type", IMPLEMENTATION, "name", "uri", *_IDENTIFYING})
_PLAIN_ENDINGS: Final = (".endpoint", ".profile-name", ".region")
"""Properties that messages may contain, except for secrets in URIs."""
_SECRET: Final = re.compile("key|pass|secret|token", re.IGNORECASE)
_TRIVIAL: Final = frozenset({"true", "false"})

_URI: Final = re.compile(
    r"""
    (?P<scheme> (?P<web> https? ) | [a-z][a-z0-9.-]* ) (?: \+ [^:]* )? ://
    (?: [^:/@]* (?: : (?P<password> (?(web) [^@/?\#]* | [^@]* ) ) )? @ )?
    (?P<host> [^/?\#]* ) (?P<path> [^?\#]* ) (?: \? (?P<query> [^\#]* ) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""As in SQLAlchemy, a database password may contain any character except `@`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PyIcebergSettings:
    """One configured catalog.

    Attributes:
        name: the catalog's name in the configuration.
        properties: PyIceberg's properties, all that it gets: its file and environment variables are not read. `name` is
            PyIceberg's name of the catalog, as in the column `catalog_name` of a SQL catalog; our `name` if unset.
        catalog_id: its identity in our files; None: derived from its address.
        request_timeout: seconds for one call of PyIceberg, including the wait for a free thread.
        max_in_flight: concurrent calls.
        body_limit: bytes of one table's metadata file, decompressed.

    Raises:
        SfnError: a setting cannot work; the message repeats no secret.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)
    catalog_id: str | None = None
    request_timeout: float = 60.0
    max_in_flight: int = 8
    body_limit: int = 256 * 2**20

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            expected = f"one of {', '.join(KINDS)}, or {IMPLEMENTATION} and the path of a class"
            found = self.kind if re.fullmatch("[a-z-]{1,20}", self.kind) else "another value"
            raise SfnError(self.setting_path("type"), expected=expected, found=found)
        if self.kind is None and IMPLEMENTATION not in self.properties:
            raise SfnError(
                self.setting_path("type"),
                expected=f"one of {', '.join(KINDS)}",
                found="none, and no uri that implies it",
                remedy='for example properties = { type = "sql", uri = "postgresql+psycopg2://…" }',
            )
        if self.kind in {"hive", "rest", "sql"} and not self.uri:
            raise SfnError(self.setting_path("uri"), expected=f"the URI of a catalog of type {self.kind}", found="none")

    @property
    def kind(self) -> str | None:
        """PyIceberg's type of the catalog; None for a class of a third party."""
        if IMPLEMENTATION in self.properties:
            return None
        scheme = self.uri.partition(":")[0].partition("+")[0].lower()
        inferred = _INFERRED.get("http" if scheme == "https" else scheme)
        return self.properties.get("type", "").lower() or inferred

    @property
    def implementation(self) -> str:
        """The path of the class that accesses the catalog."""
        return self.properties.get(IMPLEMENTATION) or KINDS[self.kind or ""]

    @property
    def uri(self) -> str:
        """The catalog's URI, empty if its kind needs none. May contain a password."""
        return self.properties.get("uri", "")

    @property
    def catalog_name(self) -> str:
        """PyIceberg's name of the catalog."""
        return self.properties.get("name") or self.name

    def not_installed(self, error: ImportError) -> SfnError:
        """Return the error for a missing package that the catalog needs."""
        found = f"no module {(error.name or '').partition('.')[0]}"
        if self.kind is None and found != "no module pyiceberg":
            place, expected = self.setting_path(IMPLEMENTATION), "a class that can be imported"
            return SfnError(place, expected=expected, found=found, remedy="install it next to the service")
        expected = "PyIceberg, and the packages that it needs for such a catalog"
        return SfnError(self.setting_path("type"), expected=expected, found=found, remedy=EXTRA)

    def setting_path(self, key: str) -> str:
        """Return the name of a property in messages."""
        return f"catalogs.{self.name}.properties.{key}"

    def identity(self) -> str:
        """Return the `catalog_id` for our files: a digest of the properties that distinguish this catalog from others.

        No secret is part of it, so a new password changes nothing. Of `uri` scheme, host, port and path count, neither
        driver nor user nor query; of the other properties the warehouse and those that name an account, a region or a
        table. The catalog's own name counts if several share one database, which is true of SQL only. Elsewhere it
        counts only if it was set, as a third party's class may use it. For Glue without `glue.id` the account is not
        known here: set `catalog_id` if tables of two accounts share a location.
        """
        if self.catalog_id is not None:
            return self.catalog_id
        name = self.catalog_name if self.kind == "sql" else self.properties.get("name", "")
        words = [self.kind or self.implementation, _without_credentials(self.uri), name]
        words += [f"{key}={self.properties[key]}" for key in _IDENTIFYING if key in self.properties]
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    def secrets(self) -> tuple[str, ...]:
        """Return the values that messages must not contain: all that are not known to be harmless."""
        found: set[str] = set()
        for key, value in self.properties.items():
            is_plain = key in _PLAIN or key.endswith(_PLAIN_ENDINGS)
            found.update(_secrets_in_uri(value) if is_plain else _secrets_in(value))
        return tuple(found - _TRIVIAL)


def _without_credentials(uri: str) -> str:
    """Return a URI without driver, user, query and fragment; a list of URIs (Hive metastores) is sorted."""
    if uri.startswith("thrift:") and "," in uri:
        return ",".join(sorted(_without_credentials(one.strip()) for one in uri.split(",")))
    found = _URI.match(uri)
    return f"{found['scheme']}://{found['host']}".lower() + found["path"].rstrip("/") if found else ""


def _secrets_in(value: str) -> Iterator[str]:
    """Yield the secrets of a property, including parts: the secret of `id:secret`, the token of `Bearer token`."""
    yield value
    yield re.split(r"[:\s]", value)[-1]


def _secrets_in_uri(uri: str) -> Iterator[str]:
    """Yield the password, encoded and decoded, and the secret parameters of the query."""
    found = _URI.match(uri)
    if found is not None:
        password = found["password"] or ""
        yield from (password, unquote(password), unquote_plus(password))
        yield from (value for key, value in parse_qsl(found["query"] or "") if _SECRET.search(key))


if TYPE_CHECKING:
    from sfn.catalogs.pyiceberg_client import PyIcebergClient

T = TypeVar("T")

MAX_HANGING_CALLS: Final = 56
"""Calls that may hang for ever without blocking others: Hive's socket and PyIceberg's REST client have no time-out."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds for closing the connections."""


class PyIcebergCatalog:
    """A catalog behind PyIceberg. It is only read, never changed.

    Scope of errors: see behaviour.md. If one error does not show its scope, a listing of the outermost namespaces
    decides. In `tables`, scope table means that the walk fails while the catalog answers other queries. An unreadable
    metadata file is its table's error, unless a file that was readable before has become unreadable, too.

    Args:
        settings: the catalog's settings.

    Raises:
        SfnError: PyIceberg, or a package that it needs for such a catalog, is not installed.
    """

    def __init__(self, settings: PyIcebergSettings) -> None:
        self._settings = settings
        self._client = _client(settings)
        self.activity = CatalogActivity(SystemClock())
        self._threads = AbandonableThreads(
            settings.max_in_flight,
            settings.request_timeout,
            ErrorScope.CATALOG,
            max_abandoned=MAX_HANGING_CALLS,
            read_only=True,
        )
        self._checking = anyio.Lock()
        self._checked_at = -1.0
        self._last_outage: CatalogFailure | None = None

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        """Return the current state of a table.

        The etag stands for the location of the metadata file, which is not read while it stays the same. A table of
        another kind than Iceberg's, as Hive and Glue may hold, is `NoSuchTable`: `is_listed` and `tables` skip it, too,
        and if it replaced an Iceberg table, that one is gone.
        """
        return await self._call(f"load {table.dotted}", lambda: self._client.load(table, known_etag))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """Return True if the table's namespace lists it."""
        async with aclosing(self._tables(table.namespace)) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.dotted:
                    return True
        return False

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """Yield every table, and each unlisted namespace.

        A SQL catalog is unlisted as a whole if its database holds other catalogs and nothing under its own name. Users
        of PyIceberg often name theirs `default`, and under a wrong name all tables would seem dropped.
        """
        is_empty = True
        async with aclosing(walk_tables(self._settings.name, self._tables, self.namespaces, skip)) as found:
            async for one in found:
                is_empty = False
                yield one
        if is_empty and self._settings.kind == "sql":
            others = await self._call("list the catalogs", self._client.namesakes)
            if others:
                yield self._misnamed(others)

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """Yield the children of a namespace, or the outermost ones."""
        for found in await self._listing(f"list below {'.'.join(parent)}", lambda: self._client.namespaces(parent)):
            yield found

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        async with aclosing(self._tables(namespace)) as found:
            async for levels, name in found:
                yield TableIdentifier(self._settings.name, levels, name)

    async def identity(self) -> str:
        """Return the `catalog_id` for our files; see `PyIcebergSettings.identity`.

        Raises:
            Transient, Permanent: scope catalog; the catalog does not answer.
        """
        failure = await self._outage()
        if failure is not None:
            raise self._error(failure, ErrorScope.CATALOG)
        return self._settings.identity()

    async def ping(self) -> None:
        """List the outermost namespaces, to learn whether the catalog answers."""
        await self._call("list all", lambda: self._client.namespaces(()))

    async def close(self) -> None:
        """Close all connections except those that hang."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._threads.run(f"catalog {self._settings.name}: close", lambda _: self._client.close())

    def _misnamed(self, others: list[str]) -> UnlistedNamespace:
        why = f"its database holds {', '.join(others)}, and nothing of {self._settings.catalog_name}"
        right = f"= {json.dumps(others[0], ensure_ascii=False)}" if len(others) == 1 else "to one of these"
        return UnlistedNamespace((), why, f"set {self._settings.setting_path('name')} {right}")

    async def _tables(self, namespace: tuple[str, ...]) -> AsyncGenerator[tuple[tuple[str, ...], str]]:
        for found in await self._listing(f"list {'.'.join(namespace)}", lambda: self._client.tables(namespace)):
            yield found

    async def _listing(self, what: str, ask: Callable[[], T]) -> T:
        """Return a listing. A late one has no scope: a namespace may hang while the catalog lists others."""
        return await self._call(what, ask, scope_if_late=None)

    async def _call(self, what: str, ask: Callable[[], T], scope_if_late: ErrorScope | None = ErrorScope.CATALOG) -> T:
        """Return the answer to a query; raise Transient or Permanent if there is none.

        Args:
            what: the query, for messages.
            ask: makes the query.
            scope_if_late: the scope of an answer that does not come in time; None: another query decides.
        """
        try:
            return await self._call_in_thread(what, ask, scope_if_late)
        except CatalogRequestFailed as refused:
            failure = refused.failure
        scope = failure.scope
        if scope is None:
            other = await self._outage()
            scope = ErrorScope.TABLE if other is None else ErrorScope.CATALOG
            failure = failure if other is None else combine(failure, other)
        raise self._error(failure, scope)

    async def _call_in_thread(
        self, what: str, ask: Callable[[], T], scope_if_late: ErrorScope | None = ErrorScope.CATALOG
    ) -> T:
        where = f"catalog {self._settings.name}: {what}"
        # PyIceberg sends the requests itself, so the step is the whole call.
        with (
            tracing.span(f"{what.partition(' ')[0]} catalog {self._settings.name}", "client"),
            self.activity.request(what.partition(" ")[0], what) as request,
        ):
            try:
                answer = await self._threads.run(where, lambda _: ask())
            except CatalogRequestFailed as refused:
                if refused.failure.scope is ErrorScope.CATALOG:
                    request.failure = str(replace(refused.failure, where=what).to_error(ErrorScope.CATALOG, ()))
                raise
            if not isinstance(answer, TimedOut):
                return answer
            found = "none" if answer.may_still_run else "no free thread: earlier calls have not returned"
            expected = f"an answer to PyIceberg within {self._settings.request_timeout:g} s"
            remedy = "check the catalog's own log and load, and the network between here and there"
            request.failure = f"{what}: expected {expected}, found {found}; {remedy}"
            raise CatalogRequestFailed(
                CatalogFailure(
                    where,
                    expected=expected,
                    found=found,
                    remedy=remedy,
                    scope=scope_if_late if answer.may_still_run else ErrorScope.CATALOG,
                )
            )

    async def _outage(self) -> CatalogFailure | None:
        """Return why the catalog answers nothing at all, or None, by an answer that came after this call."""
        since = anyio.current_time()
        async with self._checking:
            # Callers share one check. Otherwise the last of many would wait for all their time-outs in turn.
            if self._checked_at < since:
                try:
                    await self._call_in_thread("list all", lambda: self._client.namespaces(()))
                except CatalogRequestFailed as refused:
                    self._last_outage = refused.failure
                else:
                    self._last_outage = None
                self._checked_at = anyio.current_time()
            return self._last_outage

    def _error(self, failure: CatalogFailure, scope: ErrorScope) -> Transient | Permanent:
        return failure.to_error(scope, self._settings.secrets())


def check_can_open(settings: PyIcebergSettings) -> None:
    """Check that a catalog can be opened, without a query.

    Raises:
        SfnError: PyIceberg, or a package that it needs for such a catalog, is not installed.
    """
    _client(settings)


def _client(settings: PyIcebergSettings) -> PyIcebergClient:
    """Return a client. The import is here, because PyIceberg is optional and takes a second to import."""
    try:
        from sfn.catalogs import pyiceberg_client, pyiceberg_open
    except ImportError as error:
        raise settings.not_installed(error) from None
    pyiceberg_open.check_installed(settings)
    return pyiceberg_client.PyIcebergClient(settings)


@dataclass(frozen=True, slots=True)
class _PyIcebergErrorMeaning:
    remedy: str
    scope: ErrorScope | None = None
    permanent: bool = False


_CREDENTIALS: Final = _PyIcebergErrorMeaning(
    "give PyIceberg valid credentials for the catalog", ErrorScope.CATALOG, permanent=True
)
_FORBIDDEN: Final = _PyIcebergErrorMeaning("grant our principal to load and list there, or exclude it", permanent=True)
_BUSY: Final = _PyIcebergErrorMeaning("lower worker.concurrency, or raise the catalog's own limit", ErrorScope.CATALOG)
_UNREACHABLE: Final = _PyIcebergErrorMeaning(
    "check whether the catalog is up, and can be reached from here", ErrorScope.CATALOG
)
_DATABASE: Final = _PyIcebergErrorMeaning(
    "check whether the database is up, its uri is right, and no client locks it for seconds", ErrorScope.CATALOG
)
_SCHEMA: Final = _PyIcebergErrorMeaning(
    "check whether it is an Iceberg catalog's database, and our user may read it", permanent=True
)
_NAME: Final = _PyIcebergErrorMeaning("the catalog accepts no such name: exclude it or rename it", permanent=True)
_MISSING: Final = _PyIcebergErrorMeaning(
    "check whether the catalog's own table exists, and its name is right", ErrorScope.CATALOG
)
_INSTALL: Final = _PyIcebergErrorMeaning(EXTRA, ErrorScope.CATALOG, permanent=True)
_SERVER_ERROR: Final = _PyIcebergErrorMeaning("check the catalog's own log")
_UNKNOWN: Final = _PyIcebergErrorMeaning(
    "check whether a property is wrong: PyIceberg failed on it, or on an answer of the catalog"
)

_BY_TYPE: Final[Mapping[str, _PyIcebergErrorMeaning]] = {
    "botocore.exceptions.BotoCoreError": _UNREACHABLE,
    "botocore.exceptions.CredentialRetrievalError": _CREDENTIALS,
    "botocore.exceptions.NoCredentialsError": _CREDENTIALS,
    "botocore.exceptions.NoRegionError": _CREDENTIALS,
    "botocore.exceptions.ParamValidationError": _NAME,
    "botocore.exceptions.PartialCredentialsError": _CREDENTIALS,
    "botocore.exceptions.ProfileNotFound": _CREDENTIALS,
    "pyiceberg.exceptions.AuthorizationExpiredError": _CREDENTIALS,
    "pyiceberg.exceptions.BadRequestError": _NAME,
    "pyiceberg.exceptions.ForbiddenError": _FORBIDDEN,
    "pyiceberg.exceptions.NotInstalledError": _INSTALL,
    "pyiceberg.exceptions.OAuthError": _CREDENTIALS,
    "pyiceberg.exceptions.RESTError": _SERVER_ERROR,
    "pyiceberg.exceptions.TooManyRequestsError": _BUSY,
    "pyiceberg.exceptions.UnauthorizedError": _CREDENTIALS,
    "requests.exceptions.ConnectionError": _UNREACHABLE,
    "requests.exceptions.RequestException": _SERVER_ERROR,
    "requests.exceptions.Timeout": _UNREACHABLE,
    "sfn.catalogs.pyiceberg_open.NoCatalogTable": _MISSING,
    "sqlalchemy.exc.InterfaceError": _DATABASE,
    "sqlalchemy.exc.OperationalError": _DATABASE,
    "sqlalchemy.exc.ProgrammingError": _SCHEMA,
    "sqlalchemy.exc.SQLAlchemyError": _SERVER_ERROR,
    "sqlalchemy.exc.TimeoutError": _DATABASE,
    "thrift.Thrift.TException": _SERVER_ERROR,
    "thrift.transport.TTransport.TTransportException": _UNREACHABLE,
}
"""Meaning by class; the nearest base class counts."""

_BY_CODE: Final[Mapping[str, _PyIcebergErrorMeaning]] = {
    "AccessDenied": _FORBIDDEN,
    "AccessDeniedException": _FORBIDDEN,
    "ExpiredToken": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "IncompleteSignature": _CREDENTIALS,
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidInputException": _NAME,
    "InvalidSignatureException": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "ProvisionedThroughputExceededException": _BUSY,
    "RequestLimitExceeded": _BUSY,
    "ResourceNotFoundException": _MISSING,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "Throttling": _BUSY,
    "ThrottlingException": _BUSY,
    "TooManyRequestsException": _BUSY,
    "UnrecognizedClientException": _CREDENTIALS,
    "ValidationException": _NAME,
}
"""AWS's common error codes, and those of Glue and DynamoDB."""

_CLIENT_ERROR: Final = "botocore.exceptions.ClientError"


def failure_of(where: str, error: Exception, *, expected: str, loading: bool = False) -> CatalogFailure:
    """Return the failure that an error of PyIceberg means.

    Args:
        where: the catalog and the query.
        error: the error that was raised.
        expected: description of a valid answer.
        loading: True if a table was loaded. Then a denial is not permanent, because a grant that was revoked by mistake
            must not turn every table into a dead letter.
    """
    cause, meaning = _meaning(error)
    return CatalogFailure(
        where,
        expected=expected,
        found=_describe(cause),
        remedy=meaning.remedy,
        permanent=meaning.permanent and not (loading and meaning is _FORBIDDEN),
        scope=meaning.scope,
    )


def _meaning(error: Exception) -> tuple[BaseException, _PyIcebergErrorMeaning]:
    """Return the first of an error and its causes with a known meaning. PyIceberg hides some behind its own errors."""
    for one in _chain(error):
        for kind in type(one).__mro__:
            name = f"{kind.__module__}.{kind.__qualname__}"
            if name == _CLIENT_ERROR:
                return one, _aws_meaning(one)
            if name in _BY_TYPE:
                return one, _BY_TYPE[name]
    is_network = isinstance(error, ConnectionError | TimeoutError)
    return error, _UNREACHABLE if is_network else _UNKNOWN


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _aws_meaning(error: BaseException) -> _PyIcebergErrorMeaning:
    answer: Mapping[str, Any] = getattr(error, "response", {})
    if (meaning := _BY_CODE.get(answer.get("Error", {}).get("Code", ""))) is not None:
        return meaning
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return _BUSY if status == HTTPStatus.TOO_MANY_REQUESTS else _SERVER_ERROR


def _describe(error: BaseException) -> str:
    # SQLAlchemy's own message repeats the whole statement.
    inner = getattr(error, "orig", None) or error
    text = str(inner)
    return f"{type(inner).__name__}: {text}" if text else type(inner).__name__
