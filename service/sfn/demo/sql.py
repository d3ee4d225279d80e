"""PyIceberg's SQL catalog in a SQLite file: what the demo runs on where there is no Java or no jars."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SQL_CATALOG_NAME = "demo"
"""The database may hold several catalogs, told apart by this."""


class SqlCatalogFile:
    """A catalog in `folder`: its database and its warehouse. While it is stopped somebody keeps its database locked."""

    title = "PyIceberg's SQL catalog, in a SQLite file"

    def __init__(self, folder: Path) -> None:
        self.warehouse = (folder / "warehouse").as_uri()
        self.place = f"sqlite:///{folder / 'catalog.db'}"
        self.settings = (
            f'type = "pyiceberg"\nproperties = {{ type = "sql", uri = "{self.place}", name = "{SQL_CATALOG_NAME}" }}'
        )
        self.upstream: str | None = None
        self._database = folder / "catalog.db"
        self._lock: sqlite3.Connection | None = None
        (folder / "warehouse").mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.start()

    def start(self) -> None:
        """Let go of the database."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def stop(self) -> None:
        """Lock the database, as a migration would."""
        self._lock = sqlite3.connect(self._database, isolation_level=None)
        self._lock.execute("BEGIN EXCLUSIVE")

    def client(self, through: str | None = None) -> SqlCatalog:
        """For those who use its tables; the first one makes the database. No gateway leads to it."""
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an optional dependency

        return SqlCatalog(SQL_CATALOG_NAME, uri=self.place, warehouse=self.warehouse)
