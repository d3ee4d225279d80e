"""The engine `iceberg`: Iceberg's own runtime on the JVM, which finds the table through a facade."""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakValueDictionary

import httpx
import msgspec
from pyspark.errors import IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import EmbeddedFacade
from sfn.errors import MalformedMetadata, NotFound, NotPermitted, NotSupported, Rejected, Unreachable, Unreadable
from sfn.facade import FileTree, Namespace, TablePlace
from sfn.facade.metadata_files import open_tree
from sfn.facade.tables import DIRECTORY_NAMESPACE
from sfn.reader import metadata
from sfn.reader import resolve as reading
from sfn.reader.files import run_synchronously
from sfn.reader.history import DocumentVersion
from sfn.reader.lookup import FoundDocument
from sfn.reader.metadata import PartialMetadata
from sfn.reader.resolve import MetadataPointer, Resolved
from sfn.sfnfile.locations import canonical, store_prefix
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.spark import start
from sfn.spark.request import AsOf, AsOfOrdinal, AsOfRef, AsOfSnapshot, AsOfTime, ReadRequest
from sfn.spark.time_travel import check_snapshot_id, snapshot_at

_NUMBER: Final = re.compile(r"[+-]?\d+")
"""Names that Java's `Long.parseLong` may take, which Iceberg tries first."""


@dataclass(frozen=True, slots=True)
class PinnedPointer:
    """A table in one state.

    Attributes:
        pointer: its metadata file, and the document that names it.
        name: its identifier, for display.
        version: a snapshot's id, a branch or a tag for Iceberg's option `versionAsOf`; None for the present state.
    """

    pointer: MetadataPointer
    name: str
    version: str | None


def pin_pointer(request: ReadRequest) -> PinnedPointer:
    """Find the state that a request asks for.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        NotSupported: the branch has a name that Iceberg would take for a snapshot's id.
    """
    storage = request.file_system_options.open_file_system()
    found = run_synchronously(reading.resolve_question(storage, request.question, request.file_system_options))
    key = canonical(found.metadata_location)
    if isinstance(request.as_of, AsOfOrdinal) or request.as_of == AsOfRef(MAIN_BRANCH):
        return _to_pinned_pointer(found, key, None)
    contents = run_synchronously(metadata.read_metadata(storage, key))
    if contents is None:
        raise metadata.metadata_gone_error(key, found.document, found.sfn_file, found.document.written_at + found.age)
    return _to_pinned_pointer(found, key, version_as_of(request.as_of, contents, found.metadata_location))


def version_as_of(as_of: AsOf, contents: PartialMetadata, where: str) -> str | None:
    """Return the value of Iceberg's option `versionAsOf` for a state: a snapshot's id, a branch or a tag.

    Args:
        as_of: the state, by the table's own history.
        contents: the contents of the metadata file, with all snapshots that may be meant.
        where: the metadata file.

    Returns:
        None for the table's present state.

    Raises:
        RefNotFound, CommitNotFound: the table has no such branch, tag or snapshot.
        NotSupported: the branch has a name that Iceberg would take for a snapshot's id.
    """
    known = contents.snapshot_ids
    match as_of:
        case AsOfRef(name) if name != MAIN_BRANCH:
            return _version_of_ref(name, contents, where)
        case AsOfRef() | AsOfOrdinal():
            return None
        case AsOfSnapshot(number):
            check_snapshot_id(number, known, where)
            return f"{number}"
        case AsOfTime(milliseconds):
            number = snapshot_at(contents.snapshot_log_entries(where), milliseconds, where)
            check_snapshot_id(number, known, where)
            return f"{number}"


def _version_of_ref(name: str, contents: PartialMetadata, where: str) -> str:
    """Return the option for a ref. Iceberg reads a branch with the table's schema, a tag with its snapshot's."""
    contents.head(name, where)
    ref = (contents.refs or {})[name]
    if _NUMBER.fullmatch(name) is None:
        return name
    schemas = {one.snapshot_id: one.schema_id for one in contents.snapshots or ()}
    if ref.type == "branch" and schemas.get(ref.snapshot_id) != contents.current_schema_id:
        raise NotSupported(
            where,
            expected="a branch with a name that is no number",
            found=f"branch {name}, with another schema than its snapshot",
            remedy="use engine='files' or engine='sfn'",
        )
    return f"{ref.snapshot_id}"


def _to_pinned_pointer(found: Resolved, key: str, version: str | None) -> PinnedPointer:
    name = ".".join((*found.document.namespace, found.document.name))
    return PinnedPointer(
        MetadataPointer(key, DocumentVersion(FoundDocument(found.sfn_file, found.document))), name, version
    )


PINNED_NAMESPACE: Final[Namespace] = ("tables",)
MAX_PINNED: Final = 10_000
"""The number of tables that are remembered: a DataFrame that is older than this many others can't be planned again."""


class PinnedTables:
    """The tables of the driver's facade: each has a fixed metadata file. Safe for several threads."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, TablePlace] = OrderedDict()
        # A tree, with its threads, ends with the last place that uses it.
        self._trees: WeakValueDictionary[str, FileTree] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        with self._lock:
            return {PINNED_NAMESPACE: dict(self._roots)}

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        if namespace != PINNED_NAMESPACE:
            return None
        with self._lock:
            place = self._roots.get(name)
        if place is None:
            # For a missing table Spark reports only that it is missing; and only names of earlier tables are asked for.
            raise Rejected(
                name,
                status=HTTPStatus.BAD_REQUEST,
                expected=f"one of the {MAX_PINNED:,} DataFrames that were made last",
                found="an older one",
                remedy="make it again: sfn.spark.read(…)",
            )
        return place

    def add(self, request: ReadRequest, pinned: PinnedPointer) -> str:
        """Add a table, and return its name in the facade."""
        place = TablePlace(
            self._tree(store_prefix(pinned.pointer.key), request.options), request.question, pinned.pointer
        )
        # Plans show this name, so it contains the table's identifier.
        name = f"{pinned.name}@{next(self._numbers)}"
        with self._lock:
            self._roots[name] = place
            while len(self._roots) > MAX_PINNED:
                self._roots.popitem(last=False)
        return name

    def _tree(self, root: str, options: Mapping[str, Any]) -> FileTree:
        """Return the file access for a store; tables there share one, because each has its own threads."""
        key = sha256(repr((root, sorted(options.items()))).encode()).hexdigest()
        with self._lock:
            found = self._trees.get(key)
            if found is None:
                found = self._trees[key] = open_tree(root, options)
            return found


class DriverFacade:
    """The facade in the driver's process.

    Attributes:
        pinned_tables: the tables that it shows.
        facade: the HTTP server.
    """

    def __init__(self) -> None:
        self.pinned_tables = PinnedTables()
        self.facade = EmbeddedFacade(FacadeFolders(tables=self.pinned_tables, directories=False))


_STARTING: Final = threading.Lock()


def driver_facade() -> DriverFacade:
    """Return the facade of this process; it is started on first use, and ends with the process."""
    # Otherwise two threads could start two facades, but a session knows one address.
    with _STARTING:
        return _create_once()


@cache
def _create_once() -> DriverFacade:
    return DriverFacade()


_CONFIG: Final = "config"
_PATIENCE: Final = 30.0
_REMEDY: Final = "set spark.sfn.facade.uri and spark.sfn.facade.token, or unset them to use a facade in the driver"
_ERROR_BY_STATUS: Final[dict[int, type[Unreadable]]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.UNAUTHORIZED: NotPermitted,
    HTTPStatus.FORBIDDEN: NotPermitted,
}
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""msgspec's errors for an answer that is no catalog's."""


class _FacadeError(msgspec.Struct):
    message: str


class _FacadeErrorBody(msgspec.Struct):
    error: _FacadeError


class _FacadeOverrides(msgspec.Struct):
    prefix: str = ""


class _FacadeConfig(msgspec.Struct):
    overrides: _FacadeOverrides = msgspec.field(default_factory=_FacadeOverrides)


class _LoadTableResult(msgspec.Struct, rename="kebab"):
    """A `LoadTableResult` (Iceberg's REST specification)."""

    metadata_location: str
    metadata: PartialMetadata


@dataclass(frozen=True, slots=True)
class RemoteTable:
    """A table of a facade.

    Attributes:
        name: its name in the facade's namespace of directories.
        version: see `version_as_of`.
    """

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class RemoteFacade:
    """The address of a facade.

    Attributes:
        uri: the catalog's URI, without `/v1`.
        token: the reader's token; "" for none.
    """

    uri: str
    token: str = field(default="", repr=False)

    def find_table(self, request: ReadRequest) -> RemoteTable:
        """Find the table in the facade.

        Raises:
            NotSupported: a facade elsewhere does not support the request.
            NotFound, NotPermitted, Unreachable: the facade reports so, or does not answer.
            RefNotFound, CommitNotFound: the table has no such branch, tag or snapshot.
        """
        if isinstance(request.as_of, AsOfOrdinal) or request.uuid is not None or request.options or request.allowed:
            raise NotSupported(
                self.uri,
                expected="a request for a remote facade: a directory, a table, a snapshot, a time or a ref",
                found="an Ordinal, a uuid, storage_options or allowed",
                remedy="unset spark.sfn.facade.uri: the driver's own facade can; or use engine='sfn'",
            )
        name = request.directory + (f"#{'.'.join(request.table)}" if request.table else "")
        fields = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with httpx.Client(headers=fields, timeout=_PATIENCE) as client:
            prefix = _decode_config(self._get(client, _CONFIG)).overrides.prefix
            path = f"{quote(prefix, safe='')}/namespaces/{DIRECTORY_NAMESPACE[0]}/tables/{quote(name, safe='')}"
            # All snapshots of a table may be megabytes.
            snapshots = "refs" if isinstance(request.as_of, AsOfRef) else "all"
            table = self._decode_table(self._get(client, f"{path}?snapshots={snapshots}"))
        return RemoteTable(name, version_as_of(request.as_of, table.metadata, table.metadata_location))

    def _decode_table(self, content: bytes) -> _LoadTableResult:
        try:
            return msgspec.json.decode(content, type=_LoadTableResult)
        except _DECODE_ERRORS as error:
            found = f"another answer: {error}"
            raise Unreachable(self.uri, expected="a facade's table", found=found, remedy=_REMEDY) from None

    def _get(self, client: httpx.Client, path: str) -> bytes:
        url = f"{self.uri.rstrip('/')}/v1/{path}"
        try:
            answer = client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            found = f"{type(error).__name__}: {error}"
            raise Unreachable(self.uri, expected="a facade that answers", found=found, remedy=_REMEDY) from error
        if answer.status_code == HTTPStatus.OK:
            return answer.content
        message = _error_message(answer)
        kind = _ERROR_BY_STATUS.get(answer.status_code, Unreachable) if message else Unreachable
        found = f"{answer.status_code}: {message or answer.reason_phrase}"
        if not message or path == _CONFIG:
            raise kind(self.uri, expected="a facade that answers", found=found, remedy=_REMEDY)
        # The facade's message about a table contains a remedy.
        raise kind(self.uri, expected="the table", found=found)


def _decode_config(content: bytes) -> _FacadeConfig:
    try:
        return msgspec.json.decode(content, type=_FacadeConfig)
    except _DECODE_ERRORS:
        return _FacadeConfig()


def _error_message(answer: httpx.Response) -> str:
    """Return the message of a catalog's error; empty if the answer is no catalog's."""
    try:
        return msgspec.json.decode(answer.content, type=_FacadeErrorBody).error.message
    except _DECODE_ERRORS:
        return ""


PINNED_CATALOG, FACADE_CATALOG = "sfn_pinned", "sfn_facade"
"""The names of the driver's catalog and of a remote one in Spark."""
OPTIONS: Final = "spark.sfn.iceberg."
"""The prefix of settings in a session that become properties of these catalogs, such as `s3.endpoint`."""
URI, TOKEN = "spark.sfn.facade.uri", "spark.sfn.facade.token"
"""Settings for a facade elsewhere, used instead of the driver's own, and a reader's token for it."""

_DIGITS: Final = 12
_KEY: Final = "spark.sql.catalog."
_CATALOG: Final = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".cache-enabled": "false"}


class IcebergEngine:
    """The engine `iceberg`, which can read everything that Iceberg's runtime can.

    With a facade elsewhere Spark resolves a branch when it plans a query; snapshots and times are resolved now.
    """

    name: Final = "iceberg"

    def missing_requirement(self, spark: SparkSession) -> str:
        return start.missing_runtime(spark)

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        start.check_runtime(spark)
        uri = spark.conf.get(URI, "")
        if uri:
            remote = RemoteFacade(uri, spark.conf.get(TOKEN, "") or "")
            shown = remote.find_table(request)
            catalog = _register_catalog(spark, FACADE_CATALOG, remote)
            return _read_table(
                _reader_at(spark, shown.version), request.directory, catalog, *DIRECTORY_NAMESPACE, shown.name
            )
        state = pin_pointer(request)
        own = driver_facade()
        catalog = _register_catalog(spark, PINNED_CATALOG, RemoteFacade(own.facade.url, own.facade.token))
        name = own.pinned_tables.add(request, state)
        return _read_table(_reader_at(spark, state.version), state.pointer.key, catalog, *PINNED_NAMESPACE, name)


def _reader_at(spark: SparkSession, version: str | None) -> DataFrameReader:
    return spark.read if version is None else spark.read.option("versionAsOf", version)


def _read_table(reader: DataFrameReader, where: str, *names: str) -> DataFrame:
    """Return the rows of a table.

    Args:
        where: its metadata file, or its directory.

    Raises:
        NotSupported: a column has a type that Spark does not have.
        MalformedMetadata: Iceberg's library refuses the metadata, such as a branch at a missing snapshot.
    """
    try:
        return reader.table(".".join(f"`{name.replace('`', '``')}`" for name in names))
    except UnsupportedOperationException as error:
        found = str(error).partition("\n")[0]
        raise NotSupported(where, expected="columns of types that Spark has", found=found) from error
    except IllegalArgumentException as error:
        found, remedy = str(error).partition("\n")[0], "`sfn verify` lists what is wrong with the table"
        raise MalformedMetadata(where, expected="metadata that Iceberg can read", found=found, remedy=remedy) from error


def _register_catalog(spark: SparkSession, name: str, facade: RemoteFacade) -> str:
    """Configure a catalog in the session. Its name depends on its properties, because Spark opens a name only once."""
    properties = _CATALOG | {".uri": facade.uri} | ({".token": facade.token} if facade.token else {})
    own = {
        f".{key.removeprefix(OPTIONS)}": value for key, value in spark.conf.getAll.items() if key.startswith(OPTIONS)
    }
    settings = properties | own
    catalog = f"{name}_{sha256(repr(sorted(settings.items())).encode()).hexdigest()[:_DIGITS]}"
    for key, value in settings.items():
        spark.conf.set(f"{_KEY}{catalog}{key}", value)
    return catalog
