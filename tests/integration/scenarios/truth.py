"""What the catalog says once a scenario has been played: whatever was expected, nobody may see anything else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from pyiceberg.table import StaticTable, Table

from sfn.sfnfile import document
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH, commit_ordinal
from tests.integration.scenarios.stage import Stage


class Truth:
    """The catalog's tables at the end, which nobody changes any more.

    Args:
        stage: where the scenario was played.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._rows: set[tuple[str, str]] = set()

    @cached_property
    def live(self) -> dict[str, Table]:
        """All tables of the scenario that the catalog has, by their pointers."""
        return {canonical(str(table.metadata_location)): table for table in self.stage.live()}

    @cached_property
    def theirs(self) -> dict[str, Table]:
        """The other environment's, of which its service was told."""
        return {canonical(str(table.metadata_location)): table for table in self.stage.others}

    def confirm(self, said_by: str, pointer: str, found: StaticTable, ref: str = MAIN_BRANCH) -> str:
        """What a table that was found is called: a live one, at its current metadata file and with its rows.

        Args:
            said_by: the file that names it.
            pointer: what it names.
            found: what was opened, at the ref.

        Raises:
            AssertionError: it is not.
        """
        key = canonical(pointer)
        table = self.live.get(key) or self.theirs.get(key)
        if table is None:
            what = "an old one" if key in self.stage.had else "one that the catalog never had"
            raise AssertionError(f"{said_by}: expected one of {sorted(self.live)}, found {pointer}, {what}")
        if (key, ref) not in self._rows:
            scan = table.scan() if ref == MAIN_BRANCH else table.scan().use_ref(ref)
            rows, here = (sorted(map(repr, one.to_arrow().to_pylist())) for one in (scan, found.scan()))
            if rows != here:
                raise AssertionError(f"{said_by}: expected {rows} as through the catalog, found {here}")
            self._rows.add((key, ref))
        whose = "" if key in self.live else "the other one's "
        return f"{whose}{self.stage.short(table.name())}"

    def untrue(self) -> list[str]:
        """Every file that says what its catalog does not say, or never said: a line each."""
        folders = [directory.glob("**/_sfn/*") for directory in sorted(self.stage.directories)]
        folders.append(self.stage.section.root.glob(f"{self.stage.namespace}*/*/*"))
        return [line for files in folders for file in sorted(files) for line in self._wrong(file)]

    def _wrong(self, file: Path) -> Iterator[str]:
        doc = document.parse(file.read_bytes())
        live = self.live if doc.catalog_id == self.stage.section.catalog_id else self.theirs
        pointer = canonical(doc.metadata_file_path)
        if pointer not in self.stage.had:
            yield f"{file}: names {pointer}, which the catalog never had"
        if doc.state is not DocumentState.CURRENT or commit_ordinal(file.name) is not None:
            return
        table = live.get(pointer)
        if table is None:
            yield f"{file}: is current and names {pointer}, which is none of {sorted(live)}"
        elif (said := (*doc.namespace, doc.name, doc.guid)) != (now := (*table.name(), str(table.metadata.table_uuid))):
            yield f"{file}: speaks of {said}, the catalog of {now}"
