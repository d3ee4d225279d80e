"""Which promise which adapter keeps: as the page shows it, and as the suite is, of which every test passes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.promises import inboxes, stores
from tests.support.pages import Shown

FOLDER: Final = Path(__file__).parent
EXPECTED: Final = FOLDER / "expected.json"
KEPT: Final = "✓"
_MODULE: Final = "tests.promises"

ANEW = "write it down: python -m tests.promises"


@dataclass(frozen=True, slots=True)
class Suite:
    """The promises of one port.

    Attributes:
        title: of its table.
        modules: where they are tried.
        adapters: on which.
    """

    title: str
    modules: Sequence[str]
    adapters: Sequence[str]

    def promises(self) -> Iterator[str]:
        """Each by the name of its test, in order."""
        for name in self.modules:
            yield from _of(import_module(f"{_MODULE}.{name}"))


INBOXES: Final = tuple(sorted(file.stem for file in FOLDER.glob("test_inbox*.py") if file.stem != "test_inbox_alike"))

SUITES: Final = (
    Suite("What every store promises", ("test_store", "test_probe"), tuple(stores.ADAPTERS)),
    Suite("What every inbox promises", INBOXES, tuple(inboxes.ADAPTERS)),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found.

    Attributes:
        cells: by suite and promise, what each adapter did: `KEPT`, or what else.
    """

    cells: Mapping[str, Mapping[str, Mapping[str, str]]]

    @classmethod
    def parse(cls, text: str) -> Found:
        """As `text` gives it."""
        return cls(json.loads(text))

    def text(self) -> str:
        """For a file."""
        return json.dumps(self.cells, indent=1, ensure_ascii=False) + "\n"


def page(found: Found) -> Shown:
    """Where it is shown."""
    tables = "\n".join(f"{title}:\n\n{_table(rows)}" for title, rows in found.cells.items())
    return Shown("docs/evidence/contracts.md", _MODULE, f"\n{tables}\n")


def sentence(name: str) -> str:
    """A promise as it is read."""
    return name.removeprefix("test_").replace("_", " ")


def _of(module: ModuleType) -> Iterator[str]:
    for name, member in vars(module).items():
        if name.startswith("test_") and "ground" in inspect.signature(member).parameters:
            yield name


def _table(rows: Mapping[str, Mapping[str, str]]) -> str:
    adapters = list(next(iter(rows.values())))
    lines = [["promise", *adapters], ["---"] * (len(adapters) + 1)]
    lines += [[sentence(name), *(row[adapter] for adapter in adapters)] for name, row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def expected() -> Found:
    return Found.parse(EXPECTED.read_text())


def test_every_adapter_fulfils_every_contract() -> None:
    suite = {one.title: {name: dict.fromkeys(one.adapters, KEPT) for name in one.promises()} for one in SUITES}
    assert expected().cells == suite, ANEW


def test_page_matches_the_results() -> None:
    shown = page(expected())
    assert shown.path.read_text() == shown.brought_up_to_date(), ANEW
