"""What must be true of each file of ours once the service has settled, whatever a scenario expects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sfn.pointer import document
from sfn.pointer.document import State
from sfn.pointer.location import canonical
from sfn.pointer.naming import commit_of
from tests.integration.scenarios.stage import Known, Stage


def untrue(stage: Stage) -> list[str]:
    """Every file that says what the catalog does not say, or never said: a line each."""
    live = stage.live()
    return [line for file in _files(stage) for line in _wrong(stage, file, live)]


def _files(stage: Stage) -> Iterator[Path]:
    for directory in sorted(stage.directories):
        yield from sorted(directory.glob("**/_sfn/*"))


def _wrong(stage: Stage, file: Path, live: dict[str, Known]) -> Iterator[str]:
    doc = document.parse(file.read_bytes())
    if doc.catalog_id != catalog_id(stage.naming):
        return
    pointer = canonical(doc.metadata_file_path)
    if pointer not in stage.had:
        yield f"{file}: names {pointer}, which the catalog never had"
    if doc.state is not State.CURRENT or commit_of(file.name) is not None:
        return
    if pointer not in live:
        yield f"{file}: is current and names {pointer}, which is none of {sorted(live)}"
    elif (said := (*doc.namespace, doc.name, doc.guid)) != (now := (*live[pointer].identifier, live[pointer].uuid)):
        yield f"{file}: speaks of {said}, the catalog of {now}"


def catalog_id(naming: str) -> str:
    """Of the catalog that is followed in a naming."""
    return f"catalog-of-{naming}"
