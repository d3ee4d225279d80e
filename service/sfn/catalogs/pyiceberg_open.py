"""How a catalog is opened with PyIceberg: by its own class, with our settings alone, and to be read only.

`pyiceberg.catalog.load_catalog` would lay what `~/.pyiceberg.yaml` and `PYICEBERG_CATALOG__NAME__…` say of a catalog of
that name under our settings: then another catalog would be read than the one that `catalog_id` stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NoReturn
from urllib.parse import quote

from pyiceberg.catalog import Catalog
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile
from typing_extensions import override

from sfn.catalogs.pyiceberg import EXTRA, IMPLEMENTATION, PyIcebergSettings
from sfn.errors import SfnError

_SQLITE: Final = "sqlite"
_CONNECT_TIMEOUT: Final = 5
_READ_TIMEOUT: Final = 30
"""Seconds that AWS has: what is given up here should end there too."""


class NoCatalogTable(Exception):
    """DynamoDB has no table that holds the catalog."""


class MetadataLocated(Exception):
    """The catalog has told where the metadata file is, and PyIceberg is about to open it.

    Attributes:
        location: as the catalog has it.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class LocationOnlyIO(FileIO):
    """Opens nothing: PyIceberg's catalogs ask for the metadata file after they have read where it is.

    So a table that has not changed costs one question to its catalog and no file, and what did change is parsed by us:
    PyIceberg holds the interpreter's lock for as long as it takes to build every snapshot.
    """

    @override
    def new_input(self, location: str) -> InputFile:
        raise MetadataLocated(location)

    @override
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(location)

    @override
    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        raise PermissionError(str(location))


def check_installed(settings: PyIcebergSettings) -> None:
    """See whether a catalog can be opened, without asking it.

    Raises:
        SfnError: something is not installed, or the URI of a database is none.
    """
    _catalog_class(settings)
    if settings.kind == "sql":
        _database(settings)


def open_catalog(settings: PyIcebergSettings) -> Catalog:
    """A catalog, which may have been asked already; it raises whatever PyIceberg and those below it raise."""
    made = _catalog_class(settings)(settings.catalog_name, **_properties(settings))
    if not isinstance(made, Catalog):
        raise TypeError(f"{settings.implementation} is no catalog of PyIceberg")
    return made


def other_catalog_names(catalog: Catalog) -> list[str]:
    """The names of all catalogs that share a SQL catalog's database, where none of them is its own."""
    from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
    from sqlalchemy import select, union

    if not isinstance(catalog, SqlCatalog):
        return []
    named = union(select(IcebergTables.catalog_name), select(IcebergNamespaceProperties.catalog_name))
    with catalog.engine.connect() as connection:
        names = sorted(connection.scalars(named))
    return [] if catalog.name in names else names


def _catalog_class(settings: PyIcebergSettings) -> Callable[..., object]:
    module, _, name = settings.implementation.rpartition(".")
    try:
        found: Callable[..., object] = getattr(import_module(module), name)
    except ImportError as error:
        raise settings.not_installed(error) from None
    except (AttributeError, ValueError):
        place = settings.setting_path(IMPLEMENTATION)
        raise SfnError(place, expected="the path of a class", found=settings.implementation) from None
    return found


def _properties(settings: PyIcebergSettings) -> dict[str, Any]:
    """What PyIceberg is told: never to make or change anything."""
    properties: dict[str, Any] = {key: value for key, value in settings.properties.items() if key != "name"}
    properties[PY_IO_IMPL] = f"{LocationOnlyIO.__module__}.{LocationOnlyIO.__qualname__}"
    if settings.kind == "sql":
        # A database that is not there yet must not become an empty catalog, nor an old one be migrated by us.
        properties |= {"init_catalog_tables": "false", "uri": _database(settings)}
        properties.pop("schema_version", None)
    if settings.kind in {"dynamodb", "glue"}:
        properties["botocore_session"] = _session()
    return properties


def _database(settings: PyIcebergSettings) -> str:
    """The database's URL; of SQLite's, of a file that exists.

    Raises:
        SfnError: it is none, or its driver is not installed.
    """
    from sqlalchemy import exc, make_url

    expected = "a database URL of SQLAlchemy, whose driver is installed and waits for its answers"
    try:
        url = make_url(settings.uri)
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except (exc.ArgumentError, ValueError):
        found, remedy = "another one", "such as postgresql+psycopg2://user:password@host/database or sqlite:////file.db"
        raise SfnError(settings.setting_path("uri"), expected=expected, found=found, remedy=remedy) from None
    except ImportError as error:
        remedy = f"{EXTRA}; of PostgreSQL's drivers it brings psycopg2: postgresql+psycopg2://…"
        found = f"no module {error.name}"
        raise SfnError(settings.setting_path("uri"), expected=expected, found=found, remedy=remedy) from None
    if dialect.is_async:
        found, remedy = f"{dialect.driver}, which PyIceberg can't use", "such as postgresql+psycopg2://…"
        raise SfnError(settings.setting_path("uri"), expected=expected, found=found, remedy=remedy)
    if url.get_backend_name() != _SQLITE:
        return settings.uri
    if not url.database or url.database == ":memory:":
        expected = "the file of a database: sqlite:/// and its path, absolute where a fourth slash follows"
        raise SfnError(
            settings.setting_path("uri"), expected=expected, found="a database in memory, which nobody else sees"
        )
    if not url.database.startswith("file:"):
        url = url.set(database=f"file:{quote(url.database)}").update_query_dict({"uri": "true", "mode": "rw"})
    return url.render_as_string(hide_password=False)


def _session() -> object:
    """A session with AWS that makes no table: where DynamoDB has none yet, PyIceberg would make an empty catalog."""
    from botocore.config import Config
    from botocore.session import Session

    session = Session()
    session.set_default_client_config(Config(connect_timeout=_CONNECT_TIMEOUT, read_timeout=_READ_TIMEOUT))
    session.register("before-call.dynamodb.CreateTable", _refuse_create_table)
    return session


def _refuse_create_table(**_: object) -> NoReturn:
    raise NoCatalogTable("no table of that name in DynamoDB")
