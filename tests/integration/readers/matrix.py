"""All that was measured, each reader after each step, and the pages that show it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

from sfn.demo.environment import RestCatalogServer, ServerRuntime, running_service
from sfn.demo.lake import NAMESPACE
from tests.integration.readers.readers import READERS, REFUSES, SAME, Rows, outcome
from tests.integration.readers.steps import STEPS, Story
from tests.support.pages import Shown

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


_MODULE = "tests.integration.readers"
LEGEND = (
    "✓: the catalog's rows at that moment. refuses: an error, and no rows. **old rows**: those of the step "
    "before. **wrong rows**: any others, and how many. A column without `by` uses the version hint "
    "(in ClickHouse, this is a setting)."
)
_DIRECTORY = "/warehouse/sales/orders"
_FILE = f"{_DIRECTORY}/metadata/_sfn/sales_orders_main.ver"


def pages(matrix: Matrix) -> list[Shown]:
    """Where it is shown: the cells on two pages, all else on another."""
    cells = f"\n{LEGEND}\n\n{_cells(matrix)}\n"
    return [
        Shown("docs/evidence/readers.md", _MODULE, rendered(matrix)),
        Shown("README.md", _MODULE, cells),
        Shown("docs/read/README.md", _MODULE, cells),
    ]


def rendered(matrix: Matrix) -> str:
    """Two tables: the lines, and what refusals say."""
    tables = [
        _table(["reader", "what its user writes", "measured with"], _lines(matrix)),
        _table(["reader", "how it refuses"], _refusals(matrix)),
    ]
    return "\n" + "\n".join(tables) + "\n"


def _cells(matrix: Matrix) -> str:
    names = [reader.name for reader in READERS]
    return _table(
        ["after", *names], ([step, *(_short(row[name]) for name in names)] for step, row in matrix.cells.items())
    )


def _lines(matrix: Matrix) -> Iterator[list[str]]:
    for reader in READERS:
        packages = ", ".join(f"{package} {matrix.versions[package]}" for package in reader.packages)
        yield [reader.name, f"`{reader.line_for(_DIRECTORY, _FILE)}`", packages]


def _refusals(matrix: Matrix) -> Iterator[list[str]]:
    for reader in READERS:
        cells = [row[reader.name] for row in matrix.cells.values()]
        said = dict.fromkeys(cell.removeprefix(f"{REFUSES}: ") for cell in cells if cell.startswith(REFUSES))
        if said:
            yield [reader.name, "; ".join(f"`{why}`" for why in said)]


def _short(cell: str) -> str:
    if cell == SAME:
        return "✓"
    return REFUSES if cell.startswith(REFUSES) else f"**{cell}**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
