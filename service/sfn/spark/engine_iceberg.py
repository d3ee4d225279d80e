"""The engine `iceberg`: Iceberg's own runtime on the JVM, which asks a facade where the table is."""

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

# ── settled: Which metadata file has a table's state

_NUMBER: Final = re.compile(r"[+-]?\d+")
"""What Java's `Long.parseLong` may take, which Iceberg asks first."""


@dataclass(frozen=True, slots=True)
class PinnedPointer:
    """A table in one state.

    Attributes:
        pointer: its metadata file, and the document that names it.
        name: its identifier, for people.
        version: a snapshot's id, a branch or a tag, as Iceberg's option `versionAsOf` takes it; None: as it is there.
    """

    pointer: MetadataPointer
    name: str
    version: str | None


def pin_pointer(request: ReadRequest) -> PinnedPointer:
    """The state that is asked for, looked up now.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        NotSupported: a branch that Iceberg would take for a snapshot's id.
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
    """What Iceberg's option `versionAsOf` is given for a state of a table: a snapshot's id, a branch or a tag.

    Args:
        as_of: as which it is read, of its own history.
        contents: what stands in its metadata file, with all snapshots that a state is looked for among.
        where: that file.

    Returns:
        None for the table as it is there.

    Raises:
        RefNotFound, CommitNotFound: it has no such branch, tag or snapshot.
        NotSupported: a branch that Iceberg would take for a snapshot's id.
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
    """A branch has the table's schema, a tag that of its snapshot: Iceberg tells them by the name."""
    contents.head(name, where)
    ref = (contents.refs or {})[name]
    if _NUMBER.fullmatch(name) is None:
        return name
    schemas = {one.snapshot_id: one.schema_id for one in contents.snapshots or ()}
    if ref.type == "branch" and schemas.get(ref.snapshot_id) != contents.current_schema_id:
        raise NotSupported(
            where,
            expected="a branch that can be told from a snapshot's id",
            found=f"branch {name}, with another schema than its snapshot",
            remedy="use engine='files' or engine='sfn'",
        )
    return f"{ref.snapshot_id}"


def _to_pinned_pointer(found: Resolved, key: str, version: str | None) -> PinnedPointer:
    name = ".".join((*found.document.namespace, found.document.name))
    return PinnedPointer(
        MetadataPointer(key, DocumentVersion(FoundDocument(found.sfn_file, found.document))), name, version
    )


# ── driver: The facade in the driver

PINNED_NAMESPACE: Final[Namespace] = ("tables",)
MAX_PINNED: Final = 10_000
"""Tables that are known: a DataFrame that is older than so many others can't be planned again."""


class PinnedTables:
    """Implements `Shelf`: tables whose metadata file is settled. For several threads."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, TablePlace] = OrderedDict()
        # Each ends, and its threads with it, with the last place that it is for.
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
            # Of a table that there is not Spark would only say that; nobody asks for names that were not given out.
            raise Rejected(
                name,
                status=HTTPStatus.BAD_REQUEST,
                expected=f"one of the {MAX_PINNED:,} DataFrames that were made last",
                found="an older one",
                remedy="make it again: sfn.spark.read(…)",
            )
        return place

    def add(self, request: ReadRequest, pinned: PinnedPointer) -> str:
        """The name under which a table is shown from now on."""
        place = TablePlace(
            self._tree(store_prefix(pinned.pointer.key), request.options), request.question, pinned.pointer
        )
        # A number alone would tell nobody who reads a plan which table it is.
        name = f"{pinned.name}@{next(self._numbers)}"
        with self._lock:
            self._roots[name] = place
            while len(self._roots) > MAX_PINNED:
                self._roots.popitem(last=False)
        return name

    def _tree(self, root: str, options: Mapping[str, Any]) -> FileTree:
        """The files of a store: one for all tables there, as each has threads of its own."""
        key = sha256(repr((root, sorted(options.items()))).encode()).hexdigest()
        with self._lock:
            found = self._trees.get(key)
            if found is None:
                found = self._trees[key] = open_tree(root, options)
            return found


class DriverFacade:
    """The facade.

    Attributes:
        pinned_tables: the tables that it shows.
        facade: where it answers.
    """

    def __init__(self) -> None:
        self.pinned_tables = PinnedTables()
        self.facade = EmbeddedFacade(FacadeFolders(tables=self.pinned_tables, directories=False))


_STARTING: Final = threading.Lock()


def driver_facade() -> DriverFacade:
    """The one of this process, started when it is first asked for; it ends with the process."""
    # Two threads that ask at once would else start two, and a session knows the address of one.
    with _STARTING:
        return _create_once()


@cache
def _create_once() -> DriverFacade:
    return DriverFacade()


# ── remote: A facade elsewhere

_CONFIG: Final = "config"
_PATIENCE: Final = 30.0
_REMEDY: Final = (
    "set spark.sfn.facade.uri and spark.sfn.facade.token, or unset them: then the driver has a facade itself"
)
_ERROR_BY_STATUS: Final[dict[int, type[Unreadable]]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.UNAUTHORIZED: NotPermitted,
    HTTPStatus.FORBIDDEN: NotPermitted,
}
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of another answer than a catalog's."""


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
        name: in its namespace of directories.
        version: as of `sfn.spark.engine_iceberg.version_as_of`.
    """

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class RemoteFacade:
    """Where a facade is.

    Attributes:
        uri: the catalog's, without `/v1`.
        token: shown to it; "" for none.
    """

    uri: str
    token: str = field(default="", repr=False)

    def find_table(self, request: ReadRequest) -> RemoteTable:
        """The table, as it is shown there.

        Raises:
            NotSupported: what is asked for can't be asked there.
            NotFound, NotPermitted, Unreachable: the facade says so, or does not answer.
            RefNotFound, CommitNotFound: the table has no such branch, tag or snapshot.
        """
        if isinstance(request.as_of, AsOfOrdinal) or request.uuid is not None or request.options or request.allowed:
            raise NotSupported(
                self.uri,
                expected="what a facade elsewhere can be asked: a directory, a table, a snapshot, a time or a ref",
                found="an Ordinal, a uuid, storage_options or allowed",
                remedy="unset spark.sfn.facade.uri: the driver's own facade can; or use engine='sfn'",
            )
        name = request.directory + (f"#{'.'.join(request.table)}" if request.table else "")
        fields = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with httpx.Client(headers=fields, timeout=_PATIENCE) as client:
            prefix = _decode_config(self._get(client, _CONFIG)).overrides.prefix
            path = f"{quote(prefix, safe='')}/namespaces/{DIRECTORY_NAMESPACE[0]}/tables/{quote(name, safe='')}"
            # All of them may be megabytes.
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
            said = f"{type(error).__name__}: {error}"
            raise Unreachable(self.uri, expected="a facade that answers", found=said, remedy=_REMEDY) from error
        if answer.status_code == HTTPStatus.OK:
            return answer.content
        said = _error_message(answer)
        kind = _ERROR_BY_STATUS.get(answer.status_code, Unreachable) if said else Unreachable
        found = f"{answer.status_code}: {said or answer.reason_phrase}"
        if not said or path == _CONFIG:
            raise kind(self.uri, expected="a facade that answers", found=found, remedy=_REMEDY)
        # What a facade says of a table has a remedy.
        raise kind(self.uri, expected="the table", found=found)


def _decode_config(content: bytes) -> _FacadeConfig:
    try:
        return msgspec.json.decode(content, type=_FacadeConfig)
    except _DECODE_ERRORS:
        return _FacadeConfig()


def _error_message(answer: httpx.Response) -> str:
    """What a catalog says; empty where something else answers."""
    try:
        return msgspec.json.decode(answer.content, type=_FacadeErrorBody).error.message
    except _DECODE_ERRORS:
        return ""


# ── engine: Reads with Iceberg's runtime

PINNED_CATALOG, FACADE_CATALOG = "sfn_pinned", "sfn_facade"
"""What Spark calls the catalog in the driver, and one elsewhere."""
OPTIONS: Final = "spark.sfn.iceberg."
"""What follows it in a session's configuration is a property of these catalogs, such as `s3.endpoint`."""
URI, TOKEN = "spark.sfn.facade.uri", "spark.sfn.facade.token"
"""A facade elsewhere, instead of the driver's own, and a reader's token of it."""

_DIGITS: Final = 12
_KEY: Final = "spark.sql.catalog."
_CATALOG: Final = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".cache-enabled": "false"}


class IcebergEngine:
    """Implements `Engine`. Reads whatever Iceberg's runtime reads.

    With a facade elsewhere a branch is looked up by Spark, when it plans a query; snapshots and times are settled now.
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
    """The rows of a table.

    Args:
        where: its metadata file, or its directory.

    Raises:
        NotSupported: it has a column of a type that Spark has not.
        MalformedMetadata: Iceberg's library refuses the metadata, such as a branch at a snapshot that is not there.
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
    """Tell the session of a catalog, which has another name with other properties: Spark opens one but once."""
    properties = _CATALOG | {".uri": facade.uri} | ({".token": facade.token} if facade.token else {})
    own = {
        f".{key.removeprefix(OPTIONS)}": value for key, value in spark.conf.getAll.items() if key.startswith(OPTIONS)
    }
    settings = properties | own
    catalog = f"{name}_{sha256(repr(sorted(settings.items())).encode()).hexdigest()[:_DIGITS]}"
    for key, value in settings.items():
        spark.conf.set(f"{_KEY}{catalog}{key}", value)
    return catalog
