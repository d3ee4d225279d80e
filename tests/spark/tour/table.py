"""A table of the tour: written through the gateway, compared through the facade, inspected by its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from sfn.reader.api import resolve
from sfn.sfnfile.locations import canonical
from tests.spark.tour.inspection import Inspection, inspected, name, tree, verified
from tests.spark.tour.place import GATED, LAKE, NAMESPACE, SFN
from tests.spark.tour.rendering import statement
from tests.spark.tour.stage import Row, Stage, qualified, rows


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
        self._is_shown = False

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

    def called(self, procedure: str, arguments: str = "") -> dict[str, Any]:
        """Call a procedure of the catalog through the gateway; the row that it answers."""
        more = f", {arguments}" if arguments else ""
        text = self._written(f"CALL {GATED}.system.{procedure}(table => '{{q}}'{more})")
        self.stage.narrator.show(*statement(f"> {text}"))
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
        narrator.note(f"✓ {waited:.2f} s later the SFN file names {name(pointer)}")
        if not self._is_shown:
            shown = partial(self.stage.place.session.catalog.tableExists, qualified(SFN, self.title))
            narrator.wait_for("the facade's table", shown, expected=True)
            self._is_shown = True
        self.rows = self.same(shown=False)

    def same(self, query: str = "SELECT * FROM {t}", *, shown: bool = True) -> list[Row]:
        """Return the rows of a query, which must be the same through the facade as through the catalog.

        Args:
            query: `{t}` stands for the table.
            shown: True to print the query and its rows.
        """
        if shown:
            self.stage.narrator.show(f"> {query.replace('{t}', qualified(SFN, self.title))}")
        what = "rows" if shown else "SELECT *"
        return self.stage.same(what, partial(self.queried, query), shown=shown)

    def queried(self, query: str, catalog: str) -> DataFrame:
        """A query through one of the catalogs."""
        return self.stage.sql(query.replace("{t}", qualified(catalog, self.title)))

    def asked(self, query: str) -> list[Row]:
        """Return the rows through the catalog itself, without printing."""
        return rows(self.queried(query, LAKE))

    def scan(self, query: str, catalog: str = SFN) -> Scan:
        """Return the files that a query opens, by the metrics of its plan."""
        found = self.queried(query, catalog)
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

    def inspect(self, *, shown: bool = False) -> Inspection:
        """Return the result of `sfn inspect`."""
        if shown:
            self.stage.narrator.show(f"$ sfn inspect {self.directory} --files", *tree(self.directory, self.identifier))
        return inspected(self.directory, self.identifier)

    def verify(self) -> None:
        """Check that every file of the current snapshot exists."""
        verified(self.directory, self.identifier)
        self.stage.narrator.note("✓ sfn verify --deep finds every manifest and file")

    def lying(self, pattern: str) -> frozenset[str]:
        """The names of files in its directory."""
        return frozenset(path.name for path in Path(self.directory).glob(pattern))

    def snapshots(self) -> list[int]:
        """Return the ids of all snapshots, the oldest first."""
        metadata = self.stage.place.client.load_table(self.identifier).metadata
        return [one.snapshot_id for one in sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)]

    def _written(self, text: str) -> str:
        return text.replace("{t}", qualified(GATED, self.title)).replace("{q}", self.identifier)


_METRICS = ("resultDataFiles", "skippedDataFiles", "scannedDataManifests", "skippedDataManifests")
