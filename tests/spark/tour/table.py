"""A table of the tour: written through the gateway, compared through the facade, inspected by its directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Self

from pyspark.sql import DataFrame
from typer.testing import CliRunner

from sfn.cli.main import app
from sfn.errors import SfnError
from sfn.reader.api import resolve
from sfn.sfnfile.locations import canonical
from tests.spark.tour.stage import GATED, LAKE, NAMESPACE, SFN, Row, Stage, qualified, rows, wrap_statement

_METRICS: Final = ("resultDataFiles", "skippedDataFiles", "scannedDataManifests", "skippedDataManifests")


@dataclass(frozen=True, slots=True)
class Scan:
    """What a query opened.

    Attributes:
        files: data files read.
        skipped: data files that their manifest ruled out.
        manifests: manifests read.
        skipped_manifests: manifests that their list ruled out.
        columns: read of each file.
        rows: what came of it.
    """

    files: int
    skipped: int
    manifests: int
    skipped_manifests: int
    columns: tuple[str, ...]
    rows: list[Row]


class Table:
    """A table of the tour.

    Args:
        title: its name below the tour's namespace.

    Attributes:
        rows: the rows at the last comparison.
    """

    def __init__(self, stage: Stage, title: str) -> None:
        self.stage, self.title = stage, title
        self.identifier = f"{NAMESPACE}.{title}"
        self.rows: list[Row] = []
        self._is_listed = False

    def create(
        self, columns: str, partitioned: str = "", properties: Mapping[str, str] | None = None, then: str = ""
    ) -> None:
        """Create it, and wait for its SFN file.

        Args:
            then: a statement to run before the first check.
        """
        clause = f" PARTITIONED BY ({partitioned})" if partitioned else ""
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in (properties or {}).items())
        tail = f" TBLPROPERTIES ({listed})" if listed else ""
        self.run(f"CREATE TABLE {{t}} ({columns}) USING iceberg{clause}{tail}", *filter(None, [then]))

    def run(self, *statements: str) -> None:
        """Run statements through the gateway, and wait for the SFN file.

        Args:
            statements: `{t}` stands for the table, `{q}` for its name as procedures take it.
        """
        for text in statements:
            self.stage.run(self._written(text))
        self.follow()

    def call(self, procedure: str, arguments: str = "") -> dict[str, Any]:
        """Call a procedure of the catalog through the gateway; the row that it answers."""
        more = f", {arguments}" if arguments else ""
        text = self._written(f"CALL {GATED}.system.{procedure}(table => '{{q}}'{more})")
        self.stage.narrator.show(*wrap_statement(f"> {text}"))
        answered = self.stage.sql(text).first()
        self.follow()
        return {} if answered is None else answered.asDict()

    def follow(self) -> None:
        """Wait until the SFN file says what the catalog says, and compare the rows.

        Raises:
            SfnError: it does not come to it, or the facade shows other rows.
        """
        narrator, pointer = self.stage.narrator, self.pointer
        waited = narrator.wait_for("the SFN file", self.published, pointer)
        narrator.note(f"✓ {waited:.2f} s later the SFN file names {file_name(pointer)}")
        if not self._is_listed:
            is_listed = partial(self.stage.place.session.catalog.tableExists, qualified(SFN, self.title))
            narrator.wait_for("the facade's table", is_listed, expected=True)
            self._is_listed = True
        self.rows = self.same(printed=False)

    def same(self, query: str = "SELECT * FROM {t}", *, printed: bool = True) -> list[Row]:
        """Return the rows of a query, which must be the same through the facade as through the catalog.

        Args:
            query: `{t}` stands for the table.
            printed: True to print the query and its rows.
        """
        if printed:
            self.stage.narrator.show(f"> {query.replace('{t}', qualified(SFN, self.title))}")
        what = "rows" if printed else "SELECT *"
        return self.stage.same(what, partial(self.frame, query), printed=printed)

    def frame(self, query: str, catalog: str) -> DataFrame:
        """A query through one of the catalogs."""
        return self.stage.sql(query.replace("{t}", qualified(catalog, self.title)))

    def catalog_rows(self, query: str) -> list[Row]:
        """Return the rows through the catalog itself, without printing."""
        return rows(self.frame(query, LAKE))

    def scan(self, query: str, catalog: str = SFN) -> Scan:
        """Return the files that a query opens, by the metrics of its plan."""
        found = self.frame(query, catalog)
        got = rows(found)
        leaf = found._jdf.queryExecution().executedPlan().collectLeaves().head()  # noqa: SLF001 - what EXPLAIN prints
        files, skipped, manifests, skipped_manifests = (int(leaf.metrics().apply(key).value()) for key in _METRICS)
        columns = tuple(leaf.scan().readSchema().fieldNames())
        return Scan(files, skipped, manifests, skipped_manifests, columns, got)

    @property
    def pointer(self) -> str:
        """The metadata file that the catalog says is current."""
        return canonical(str(self.stage.place.client.load_table(self.identifier).metadata_location))

    @cached_property
    def directory(self) -> str:
        """Return the table's directory."""
        return canonical(str(self.stage.place.client.load_table(self.identifier).location())).removeprefix("file://")

    def published(self) -> str:
        """The metadata file that the SFN file says is current."""
        return canonical(resolve(self.directory, self.identifier).metadata_location)

    def inspect(self, *, printed: bool = False) -> Inspection:
        """Return the result of `sfn inspect`."""
        if printed:
            self.stage.narrator.show(
                f"$ sfn inspect {self.directory} --files", *inspection_lines(self.directory, self.identifier)
            )
        return inspect_directory(self.directory, self.identifier)

    def verify(self) -> None:
        """Check that every file of the current snapshot exists."""
        verify_directory(self.directory, self.identifier)
        self.stage.narrator.note("✓ sfn verify --deep finds every manifest and file")

    def file_names(self, pattern: str) -> frozenset[str]:
        """The names of files in its directory."""
        return frozenset(path.name for path in Path(self.directory).glob(pattern))

    def snapshots(self) -> list[int]:
        """Return the ids of all snapshots, the oldest first."""
        metadata = self.stage.place.client.load_table(self.identifier).metadata
        return [one.snapshot_id for one in sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)]

    def _written(self, text: str) -> str:
        return text.replace("{t}", qualified(GATED, self.title)).replace("{q}", self.identifier)


@dataclass(frozen=True, slots=True)
class Inspection:
    """A table from its SFN file to its data, by the names of its files.

    Attributes:
        metadata: the metadata file's.
        columns: names and types.
        partitioned: the fields of the partition spec.
        snapshots: how many there are.
        manifest_list: of the current snapshot; None where the table is empty.
        manifests: of that.
        data, deletes: live files.
        partitions: of the live data files, as pairs of fields and what people read.
    """

    metadata: str
    columns: tuple[str, ...]
    partitioned: tuple[str, ...]
    snapshots: int
    manifest_list: str | None
    manifests: frozenset[str]
    data: frozenset[str]
    deletes: frozenset[str]
    partitions: frozenset[tuple[tuple[str, str], ...]]

    @classmethod
    def parse(cls, printed: Mapping[str, Any]) -> Self:
        metadata = printed["metadata"]
        walked = next((one["contents"] for one in metadata["snapshots"] if one["contents"] is not None), None)
        manifests = [] if walked is None else walked["manifests"]
        files = [file for one in manifests for file in one["files"]]
        return cls(
            file_name(metadata["path"]),
            tuple(metadata["columns"]),
            tuple(metadata["partition_fields"]),
            len(metadata["snapshots"]),
            None if walked is None else file_name(walked["manifest_list"]),
            frozenset(file_name(one["path"]) for one in manifests),
            frozenset(file_name(file["path"]) for file in files if file["content"] == "data"),
            frozenset(file_name(file["path"]) for file in files if file["content"] != "data"),
            frozenset(tuple(file["partition"].items()) for file in files if file["content"] == "data"),
        )


def inspect_directory(directory: str, table: str) -> Inspection:
    """Return the result of `sfn inspect --files`."""
    return Inspection.parse(json.loads(_run_command("inspect", directory, "--table", table, "--files", "--json")))


def inspection_lines(directory: str, table: str) -> list[str]:
    """Return the printed lines from the metadata file on, with paths relative to the table's directory."""
    lines = _run_command("inspect", directory, "--table", table, "--files").splitlines()
    first = next(at for at, line in enumerate(lines) if line.lstrip().startswith("metadata file"))
    return [re.sub(rf"file:(//)?{re.escape(directory)}/", "", line) for line in lines[first:]]


def verify_directory(directory: str, table: str) -> None:
    """Run `sfn verify --deep`: every file that the current snapshot needs must exist.

    Raises:
        SfnError: a file is missing.
    """
    _run_command("verify", directory, "--table", table, "--deep")


def file_name(path: str) -> str:
    """Return the name of a file."""
    return path.rsplit("/", 1)[-1]


def _run_command(command: str, directory: str, *arguments: str) -> str:
    # A new process would take a second, most of it to import PyIceberg.
    result = CliRunner().invoke(app, [command, directory, *arguments])
    if result.exit_code != 0:
        raise SfnError(
            f"sfn {command} {directory}", expected="exit code 0", found=f"{result.exit_code}: {result.output}"
        )
    return result.output
