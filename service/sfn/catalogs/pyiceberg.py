"""A catalog that PyIceberg opens: a SQL database, AWS Glue, a Hive metastore, DynamoDB, or one of somebody's own.

PyIceberg is an optional dependency: it is imported where such a catalog is configured, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, unquote_plus

import anyio

from sfn.catalogs import CatalogFailure, CatalogRequestFailed, SkipNamespace, UnlistedNamespace, combine
from sfn.catalogs.listing import walk_tables
from sfn.concurrency import AbandonableThreads, TimedOut
from sfn.domain.catalog_answer import LoadResult
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, SfnError, Transient

# ── settings: What an adapter to PyIceberg's catalogs is told at its start

EXTRA: Final = "pip install '.[pyiceberg]'"
IMPLEMENTATION: Final = "py-catalog-impl"
KINDS: Final = {
    "dynamodb": "pyiceberg.catalog.dynamodb.DynamoDbCatalog",
    "glue": "pyiceberg.catalog.glue.GlueCatalog",
    "hive": "pyiceberg.catalog.hive.HiveCatalog",
    "rest": "pyiceberg.catalog.rest.RestCatalog",
    "sql": "pyiceberg.catalog.sql.SqlCatalog",
}
"""PyIceberg's classes by its property `type`. Not `in-memory`: nobody else sees what is in there."""

_INFERRED: Final = {"http": "rest", "postgresql": "sql", "sqlite": "sql", "thrift": "hive"}
"""What `uri` says where there is no `type`, as `pyiceberg.catalog.infer_catalog_type` has it."""

_IDENTIFYING: Final = (
    "warehouse",
    "table-name",
    "client.region",
    "dynamodb.region",
    "glue.endpoint",
    "glue.id",
    "glue.region",
)
"""Beside `uri`: which of many catalogs one is."""
_PLAIN: Final = frozenset({"type", IMPLEMENTATION, "name", "uri", *_IDENTIFYING})
_PLAIN_ENDINGS: Final = (".endpoint", ".profile-name", ".region")
"""Properties that may show, but for what a URI among them hides."""
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
"""A password in front of a database may hold anything but `@`: so SQLAlchemy reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PyIcebergSettings:
    """One configured catalog.

    Attributes:
        name: the name that the configuration gives it.
        properties: PyIceberg's own, all that it gets: its file and its environment variables are not read. `name` is
            what PyIceberg calls the catalog, as in the column `catalog_name` of a SQL catalog; `name` of ours if unset.
        catalog_id: its identity in our files; None: derived from where it is.
        request_timeout: seconds for one call of PyIceberg, with the wait for a free thread.
        max_in_flight: calls at a time.
        body_limit: bytes of one table's metadata file, inflated.

    Raises:
        SfnError: what cannot work; no secret is repeated.
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
            found = self.kind if re.fullmatch("[a-z-]{1,20}", self.kind) else "another one"
            raise SfnError(self.setting_path("type"), expected=expected, found=found)
        if self.kind is None and IMPLEMENTATION not in self.properties:
            raise SfnError(
                self.setting_path("type"),
                expected=f"one of {', '.join(KINDS)}",
                found="none, and no uri that tells it",
                remedy='such as properties = { type = "sql", uri = "postgresql+psycopg2://…" }',
            )
        if self.kind in {"hive", "rest", "sql"} and not self.uri:
            raise SfnError(self.setting_path("uri"), expected=f"the URI of a catalog of type {self.kind}", found="none")

    @property
    def kind(self) -> str | None:
        """PyIceberg's type of catalog; None for a class of somebody's own."""
        if IMPLEMENTATION in self.properties:
            return None
        scheme = self.uri.partition(":")[0].partition("+")[0].lower()
        inferred = _INFERRED.get("http" if scheme == "https" else scheme)
        return self.properties.get("type", "").lower() or inferred

    @property
    def implementation(self) -> str:
        """The path of the class that speaks to the catalog."""
        return self.properties.get(IMPLEMENTATION) or KINDS[self.kind or ""]

    @property
    def uri(self) -> str:
        """Where the catalog is; empty where its kind needs none. May hold a password."""
        return self.properties.get("uri", "")

    @property
    def catalog_name(self) -> str:
        """What PyIceberg calls the catalog."""
        return self.properties.get("name") or self.name

    def not_installed(self, error: ImportError) -> SfnError:
        """What to say where something can't be imported that the catalog needs."""
        found = f"no module {(error.name or '').partition('.')[0]}"
        if self.kind is None and found != "no module pyiceberg":
            place, expected = self.setting_path(IMPLEMENTATION), "a class that can be imported"
            return SfnError(place, expected=expected, found=found, remedy="install it beside the service")
        expected = "PyIceberg, and what it needs for such a catalog"
        return SfnError(self.setting_path("type"), expected=expected, found=found, remedy=EXTRA)

    def setting_path(self, key: str) -> str:
        """What a property is called in messages."""
        return f"catalogs.{self.name}.properties.{key}"

    def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files: a digest of what tells this catalog from others.

        No secret goes in, so that a new password changes nothing: of `uri` scheme, host, port and path count, neither
        driver nor user nor query; of the other properties the warehouse and what names an account, a region or a
        table. The catalog's own name counts where several share one database, which is true of SQL alone; elsewhere it
        only counts where it was set, for it may mean something to a class of somebody's own. For Glue without
        `glue.id` the account is not known here: set `catalog_id` where two accounts' tables lie in one place.
        """
        if self.catalog_id is not None:
            return self.catalog_id
        name = self.catalog_name if self.kind == "sql" else self.properties.get("name", "")
        words = [self.kind or self.implementation, _without_credentials(self.uri), name]
        words += [f"{key}={self.properties[key]}" for key in _IDENTIFYING if key in self.properties]
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    def secrets(self) -> tuple[str, ...]:
        """What must not show in any message: every value that is not known to be none."""
        found: set[str] = set()
        for key, value in self.properties.items():
            is_plain = key in _PLAIN or key.endswith(_PLAIN_ENDINGS)
            found.update(_secrets_in_uri(value) if is_plain else _secrets_in(value))
        return tuple(found - _TRIVIAL)


def _without_credentials(uri: str) -> str:
    """Where a URI leads, of several (a Hive metastore's) where any does; without driver, user, query and fragment."""
    if uri.startswith("thrift:") and "," in uri:
        return ",".join(sorted(_without_credentials(one.strip()) for one in uri.split(",")))
    found = _URI.match(uri)
    return f"{found['scheme']}://{found['host']}".lower() + found["path"].rstrip("/") if found else ""


def _secrets_in(value: str) -> Iterator[str]:
    """What a property keeps to itself, also a part of it: the secret of `id:secret`, the token of `Bearer token`."""
    yield value
    yield re.split(r"[:\s]", value)[-1]


def _secrets_in_uri(uri: str) -> Iterator[str]:
    """The password as it stands there and as it is meant, and what the query calls a secret."""
    found = _URI.match(uri)
    if found is not None:
        password = found["password"] or ""
        yield from (password, unquote(password), unquote_plus(password))
        yield from (value for key, value in parse_qsl(found["query"] or "") if _SECRET.search(key))


# ── catalog: The catalog port over PyIceberg

if TYPE_CHECKING:
    from sfn.catalogs.pyiceberg_client import PyIcebergClient

T = TypeVar("T")

MAX_HANGING_CALLS: Final = 56
"""Calls that may hang for ever without keeping others from being made: Hive's socket and REST's have no time-out."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds for saying goodbye to a server."""


class PyIcebergCatalog:
    """A catalog behind PyIceberg. It is only read: nothing is made or changed in it.

    Scope of trouble: as in behaviour.md; where one error cannot tell, one listing of the outermost namespaces decides.
    In `tables` scope table means that the walk has that trouble while the catalog answers other questions. A metadata
    file that can't be read is its table's trouble, unless one that could be read before can't be any more.

    Args:
        settings: which, as whom, how long.

    Raises:
        SfnError: PyIceberg, or what it needs for such a catalog, is not installed.
    """

    def __init__(self, settings: PyIcebergSettings) -> None:
        self._settings = settings
        self._client = _client(settings)
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

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        """As the port promises.

        The entity tag stands for the location of the metadata file, which is not opened while it stays the same. A
        table of another kind than Iceberg's, as Hive and Glue may hold, is `Missing`: `listed` and `tables` pass over
        it too, and where an Iceberg table made way for it, that one is gone.
        """
        return await self._call(f"load {table.dotted}", lambda: self._client.load(table, known_etag))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """As the port promises."""
        async with aclosing(self._tables(table.namespace)) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.dotted:
                    return True
        return False

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """As the port promises.

        A SQL catalog is withheld as a whole where its database holds others and nothing under its own name: PyIceberg's
        users often call theirs `default`, and under a wrong name all tables would be gone.
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
        """As `NamespaceLister` promises."""
        for found in await self._listing(f"list below {'.'.join(parent)}", lambda: self._client.namespaces(parent)):
            yield found

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        """As `NamespaceLister` promises."""
        async with aclosing(self._tables(namespace)) as found:
            async for levels, name in found:
                yield TableIdentifier(self._settings.name, levels, name)

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files; see `PyIcebergSettings.identity`.

        Raises:
            Transient, Permanent: scope catalog; it does not answer.
        """
        failure = await self._outage()
        if failure is not None:
            raise self._error(failure, ErrorScope.CATALOG)
        return self._settings.identity()

    async def close(self) -> None:
        """Close all connections but those that hang."""
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
        """As `_told`, of a listing: one namespace may hang while the catalog lists others."""
        return await self._call(what, ask, scope_if_late=None)

    async def _call(self, what: str, ask: Callable[[], T], scope_if_late: ErrorScope | None = ErrorScope.CATALOG) -> T:
        """What an answer gives; raises Transient or Permanent where there is none.

        Args:
            what: is asked.
            ask: asks it.
            scope_if_late: the scope of an answer that does not come in time; None: another question decides.
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
        answer = await self._threads.run(where, lambda _: ask())
        if not isinstance(answer, TimedOut):
            return answer
        found = "none" if answer.may_still_run else "no free thread: earlier calls have not returned"
        raise CatalogRequestFailed(
            CatalogFailure(
                where,
                expected=f"an answer to PyIceberg within {self._settings.request_timeout:g} s",
                found=found,
                remedy="look into the catalog's own log and its load, and what is between here and there",
                scope=scope_if_late if answer.may_still_run else ErrorScope.CATALOG,
            )
        )

    async def _outage(self) -> CatalogFailure | None:
        """Why the catalog answers nothing at all, or None, by an answer that came after this call."""
        since = anyio.current_time()
        async with self._checking:
            # Without sharing, the last of many that wait on a dead catalog would wait for all their time-outs in turn.
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
    """See whether a catalog can be opened, without asking it.

    Raises:
        SfnError: PyIceberg, or what it needs for such a catalog, is not installed.
    """
    _client(settings)


def _client(settings: PyIcebergSettings) -> PyIcebergClient:
    """PyIceberg takes a second to be imported, and it is optional."""
    try:
        from sfn.catalogs import pyiceberg_client, pyiceberg_open
    except ImportError as error:
        raise settings.not_installed(error) from None
    pyiceberg_open.check_installed(settings)
    return pyiceberg_client.PyIcebergClient(settings)


# ── refusals: What an error under PyIceberg means


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
_UNREACHABLE: Final = _PyIcebergErrorMeaning("see whether the catalog is up, and reached from here", ErrorScope.CATALOG)
_DATABASE: Final = _PyIcebergErrorMeaning(
    "see whether the database is up, its uri right, and nobody keeps it locked for seconds", ErrorScope.CATALOG
)
_SCHEMA: Final = _PyIcebergErrorMeaning(
    "see whether it is an Iceberg catalog's database, and our user may read it", permanent=True
)
_NAME: Final = _PyIcebergErrorMeaning("the catalog takes no such name: exclude it or rename it", permanent=True)
_MISSING: Final = _PyIcebergErrorMeaning(
    "see whether the catalog's own table is there, and its name right", ErrorScope.CATALOG
)
_INSTALL: Final = _PyIcebergErrorMeaning(EXTRA, ErrorScope.CATALOG, permanent=True)
_SERVER_ERROR: Final = _PyIcebergErrorMeaning("look into the catalog's own log")
_UNKNOWN: Final = _PyIcebergErrorMeaning(
    "see whether a property is wrong: PyIceberg stumbled over it, or over an answer"
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
"""The nearest class counts."""

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
    """Why PyIceberg gave no answer.

    Args:
        where: who was asked what.
        error: what it raised.
        expected: in words, what would have been an answer.
        loading: it was asked for a table: one that is forbidden now is not given up at once, for a grant that was
            revoked by mistake must not send every table to the dead letters.
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
    """The first of an error and its causes that means anything. PyIceberg hides some behind errors of its own."""
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
    # SQLAlchemy's own text repeats the whole statement.
    inner = getattr(error, "orig", None) or error
    text = str(inner)
    return f"{type(inner).__name__}: {text}" if text else type(inner).__name__
