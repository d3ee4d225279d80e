"""All that was measured: each reader after each step."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

from sfn.demo.environment import NAMESPACE, RestCatalogServer, ServerRuntime, running_service
from tests.integration.readers.outcome import outcome
from tests.integration.readers.readers import READERS, Rows
from tests.integration.readers.steps import STEPS
from tests.integration.readers.story import Story

EXPECTED = Path(__file__).with_name("expected.json")


@dataclass(frozen=True, slots=True)
class Matrix:
    """What was measured.

    Attributes:
        versions: of the packages it was measured with.
        cells: outcomes by step and reader.
    """

    versions: Mapping[str, str]
    cells: Mapping[str, Mapping[str, str]]

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def named(self) -> Iterator[tuple[str, str]]:
        """Cells, and what names each."""
        yield from ((f"the version of {package}", number) for package, number in self.versions.items())
        for step, row in self.cells.items():
            yield from ((f"{reader} after {step}", cell) for reader, cell in row.items())


def installed() -> dict[str, str]:
    """The versions of the readers' packages that are here."""
    return {package: version(package) for reader in READERS for package in reader.packages}


def measured(folder: Path, runtime: ServerRuntime) -> Matrix:
    """Take each step, and let each reader read.

    Args:
        folder: an empty one, for catalog, service and tables.
        runtime: runs the catalog.

    Raises:
        AssertionError: a step did not do what it says.
        TimeoutError: the service did not publish.
    """
    (folder / "catalog").mkdir()
    # ClickHouse in a process reads nothing outside the folder that the process is in.
    with (
        contextlib.chdir(folder),
        RestCatalogServer(folder / "catalog", runtime) as server,
        running_service(folder, server) as service,
    ):
        catalog = server.client()
        catalog.create_namespace(NAMESPACE)
        return Matrix(installed(), dict(_rows(Story(catalog, server.uri, server.warehouse, service))))


def _rows(story: Story) -> Iterator[tuple[str, dict[str, str]]]:
    was: dict[Path, Rows] = {}
    for step in STEPS:
        place = step.take(story)
        now: Rows = [] if step.ids is None else story.rows(place.name)
        if sorted(row["id"] for row in now) != list(step.ids or ()):
            raise AssertionError(f"{step.name}: expected the rows {step.ids} through the catalog, found {now}")
        before = was.get(place.directory, [])
        yield step.name, {reader.name: outcome(reader, place, now, before) for reader in READERS}
        was[place.directory] = now
