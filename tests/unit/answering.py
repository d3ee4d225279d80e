"""A facade that shows the tables below a folder, and requests to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio

from sfn.clock import SystemClock
from sfn.errors import FatalError
from sfn.facade import FileTree, TableSource
from sfn.facade.app import Facade, FacadeOptions
from sfn.facade.discovery import ScannedTables, folder_scans
from sfn.facade.metadata_files import open_tree
from sfn.facade.tables import TableLoader
from tests.unit.faced import HOME, Reply, ask


def scope(method: str) -> MutableMapping[str, Any]:
    path = f"/iceberg{HOME}/sales/tables/orders".encode()
    return {"type": "http", "method": method, "raw_path": path, "query_string": b"", "headers": []}


async def forever() -> MutableMapping[str, Any]:
    """A body that does not come."""
    await anyio.sleep_forever()
    return {}


@dataclass
class Ground:
    """Tables below a root, and a facade that shows them.

    Attributes:
        counted: the statuses of its answers.
        broken: what it was told of the inbox.
    """

    root: Path
    facade: Facade = field(init=False)
    counted: list[int] = field(default_factory=list)
    broken: list[FatalError] = field(default_factory=list)

    async def ask(self, path: str, query: str = "", **more: object) -> Reply:
        return await ask(self.facade, path, query, **more)

    async def table(self, name: str, query: str = "", namespace: str = "sales", **more: object) -> Reply:
        path = f"{HOME}/{quote(namespace, safe='')}/tables/{quote(name, safe='')}"
        return await self.ask(path, query, **more)


def ground(
    root: Path,
    shelves: Mapping[str, TableSource] | None = None,
    directories: bool = True,
    admits: Callable[[bytes | None], bool] | None = None,
) -> Ground:
    trees: dict[str, FileTree] = {f"file://{root}": open_tree(f"file://{root}", {})}
    made = Ground(root)
    terms = FacadeOptions(
        shelves if shelves is not None else {"sfn": ScannedTables(folder_scans(trees), 0, 0)},
        trees if directories else {},
        admits,
        made.counted.append,
        made.broken.append,
    )
    made.facade = Facade(terms, TableLoader(SystemClock(), 1 << 20))
    return made
