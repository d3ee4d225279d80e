"""Opening of a catalog with PyIceberg: with its class, only our settings, and read-only.

`pyiceberg.catalog.load_catalog` would merge `~/.pyiceberg.yaml` and `PYICEBERG_CATALOG__NAME__…` into our settings.
Then the listener might read another catalog than the one that `catalog_id` stands for.
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
"""Seconds for a request to AWS, so that an abandoned call ends there, too."""


class NoCatalogTable(Exception):
    """A DynamoDB catalog without its table."""


class MetadataLocated(Exception):
    """Raised when the catalog has returned the location of the metadata file, and PyIceberg is about to read it.

    Attributes:
        location: the location as the catalog returned it.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class LocationOnlyIO(FileIO):
    """File access that reads nothing. PyIceberg's catalogs read the metadata file after they have found its location.

    So an unchanged table costs one query and no file, and a changed one is parsed by our own code: PyIceberg holds the
    interpreter lock for as long as it takes to build every snapshot.
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
    """Check that a catalog can be opened, without a query.

    Raises:
        SfnError: a package is not installed, or the URI of a database is invalid.
    """
    _catalog_class(settings)
    if settings.kind == "sql":
        _database(settings)


def open_catalog(settings: PyIcebergSettings) -> Catalog:
    """Open a catalog, which may already send queries. Raises any error of PyIceberg and the libraries below it."""
    catalog = _catalog_class(settings)(settings.catalog_name, **_properties(settings))
    if not isinstance(catalog, Catalog):
        raise TypeError(f"{settings.implementation} is no PyIceberg catalog")
    return catalog


def other_catalog_names(catalog: Catalog) -> list[str]:
    """Return the names of all catalogs in a SQL catalog's database, [] if its own is among them."""
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
    """Return PyIceberg's properties, which forbid it to create or change anything."""
    properties: dict[str, Any] = {key: value for key, value in settings.properties.items() if key != "name"}
    properties[PY_IO_IMPL] = f"{LocationOnlyIO.__module__}.{LocationOnlyIO.__qualname__}"
    if settings.kind == "sql":
        # A missing database must not become an empty catalog, and an old one must not be migrated by us.
        properties |= {"init_catalog_tables": "false", "uri": _database(settings)}
        properties.pop("schema_version", None)
    if settings.kind in {"dynamodb", "glue"}:
        properties["botocore_session"] = _session()
    return properties


def _database(settings: PyIcebergSettings) -> str:
    """Return the URL of the database; a SQLite file must exist.

    Raises:
        SfnError: the URL is invalid, or its driver is not installed.
    """
    from sqlalchemy import exc, make_url

    expected = "a database URL of SQLAlchemy with an installed, synchronous driver"
    try:
        url = make_url(settings.uri)
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except (exc.ArgumentError, ValueError):
        found, remedy = (
            "another value",
            "such as postgresql+psycopg2://user:password@host/database or sqlite:////file.db",
        )
        raise SfnError(settings.setting_path("uri"), expected=expected, found=found, remedy=remedy) from None
    except ImportError as error:
        remedy = f"{EXTRA}; for PostgreSQL it installs psycopg2: postgresql+psycopg2://…"
        found = f"no module {error.name}"
        raise SfnError(settings.setting_path("uri"), expected=expected, found=found, remedy=remedy) from None
    if dialect.is_async:
        found, remedy = f"{dialect.driver}, which PyIceberg cannot use", "such as postgresql+psycopg2://…"
        raise SfnError(settings.setting_path("uri"), expected=expected, found=found, remedy=remedy)
    if url.get_backend_name() != _SQLITE:
        return settings.uri
    if not url.database or url.database == ":memory:":
        expected = "the file of a database: sqlite:/// and its path, absolute after a fourth slash"
        raise SfnError(
            settings.setting_path("uri"), expected=expected, found="a database in memory, which no other process sees"
        )
    if not url.database.startswith("file:"):
        url = url.set(database=f"file:{quote(url.database)}").update_query_dict({"uri": "true", "mode": "rw"})
    return url.render_as_string(hide_password=False)


def _session() -> object:
    """Return an AWS session that creates no table: PyIceberg would create an empty catalog in DynamoDB."""
    from botocore.config import Config
    from botocore.session import Session

    session = Session()
    session.set_default_client_config(Config(connect_timeout=_CONNECT_TIMEOUT, read_timeout=_READ_TIMEOUT))
    session.register("before-call.dynamodb.CreateTable", _refuse_create_table)
    return session


def _refuse_create_table(**_: object) -> NoReturn:
    raise NoCatalogTable("no table of that name in DynamoDB")
