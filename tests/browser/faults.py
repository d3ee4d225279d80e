"""Six ways in which a service breaks: what an operator has to find out. `python -m tests.browser.faults NAME` has one.

The module prints where the page is and the operators' token, and runs until it is interrupted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.browser.stage import OPERATORS_TOKEN, Stage, staged

TABLES: Final = ("customers", "invoices", "orders", "returns", "stock", "suppliers")
DROPPED: Final = tuple(f"daily_{number:02d}" for number in range(12))
"""More than the drop limit lets pass within an hour."""
_REPEATED: Final = 5


def populate(stage: Stage) -> None:
    """Make tables whose files are right."""
    for name in TABLES + DROPPED:
        stage.lake.commit(name)
        stage.tell(name)
    stage.until_published(*TABLES, *DROPPED)


def hang(stage: Stage) -> None:
    """The catalog takes a request and does not answer."""
    stage.hang(3_600)
    _commit(stage, "orders", "stock")


def refuse(stage: Stage) -> None:
    """The catalog refuses connections."""
    stage.stop_catalog()
    _commit(stage, "orders", "stock")


def read_only(stage: Stage) -> None:
    """The store takes no files."""
    for folder in sorted((stage.lake.folder / "warehouse").rglob("*/"), reverse=True):
        folder.chmod(0o555)
    _commit(stage, "orders", "stock")


def foreign_file(stage: Stage) -> None:
    """A file of another program lies where the SFN file of a table goes."""
    for file in stage.lake.directory("orders").rglob("*.ver"):
        file.write_text("written by the nightly export\n")
    _commit(stage, "orders")


def drops_held(stage: Stage) -> None:
    """The catalog has lost more tables at once than the drop limit lets pass."""
    for name in DROPPED:
        stage.lake.drop(name)
        stage.tell(name, operation="drop")


def token_rotated(stage: Stage) -> None:
    """The sender of events has a token that the service does not know."""
    for number in range(_REPEATED):
        stage.lake.commit("orders")
        stage.post('{"namespace": ["sales"], "name": "orders"}', token=f"the-token-of-next-month-{number}")


FAULTS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "hang": hang,
    "refuse": refuse,
    "read-only": read_only,
    "foreign-file": foreign_file,
    "drops-held": drops_held,
    "token-rotated": token_rotated,
}


def _commit(stage: Stage, *names: str) -> None:
    for name in names:
        stage.lake.commit(name)
        stage.tell(name)


def main() -> None:
    """Break a service, and wait."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.faults", description=__doc__)
    parser.add_argument("fault", choices=[*FAULTS, "none"])
    parser.add_argument("--port", type=int, default=0, help="where the service listens; 0 for any free port")
    parser.add_argument("--tables", type=int, default=0, help="further tables that the inbox knows")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder, staged(Path(folder), filled=chosen.tables, port=chosen.port) as stage:
        populate(stage)
        print(f"page: {stage.url}/ui\ntoken: {OPERATORS_TOKEN}\nconfiguration: {folder}/sfn.toml", flush=True)
        if chosen.fault != "none":
            FAULTS[chosen.fault](stage)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
