"""Another environment: catalogs of its own over the same directories, and a service of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from sfn.sfnfile.naming import NAMINGS
from tests.integration.scenarios.service import Followed
from tests.integration.scenarios.stage import Stage


@contextmanager
def rival_of(stage: Stage) -> Iterator[SqlCatalog]:
    """The other environment's catalog, with the scenario's namespace."""
    catalog = _opened(stage.world.folder, stage.section.name)
    try:
        catalog.create_namespace(stage.namespace)
        yield catalog
    finally:
        catalog.close()


def followed(folder: Path) -> list[Followed]:
    """Catalogs that are new, and how their service is told of them.

    Args:
        folder: where they keep their databases.
    """
    for naming in NAMINGS:
        _opened(folder, naming).close()
    return [
        Followed(
            naming,
            [
                'type = "pyiceberg"',
                f'properties = {{ type = "sql", uri = "{_uri(folder, naming)}", name = "rival" }}',
                f'catalog_id = "rival-of-{naming}"',
                f'naming = "{naming}"',
                'replica_lag = "0s"',
                'min_publish_interval = "0s"',
            ],
        )
        for naming in NAMINGS
    ]


def _opened(folder: Path, naming: str) -> SqlCatalog:
    """A catalog; whoever opens it first makes its database."""
    return SqlCatalog("rival", uri=_uri(folder, naming))


def _uri(folder: Path, naming: str) -> str:
    return f"sqlite:///{folder}/rival-{naming}.db"
