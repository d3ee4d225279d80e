"""A table that Spark writes through a catalog, and what whoever asks the catalog reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sfn.sfnfile.document import Document, render, render_ordinal
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, FileLayout, FileOwner, Naming
from tests.spark.matrix.lake import Lake
from tests.spark.matrix.shown import Shown

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


BEFORE: Final = "as of the snapshot before"
"""The title of a look at what the table was one commit ago."""


@dataclass(frozen=True, slots=True)
class Look:
    """One state of a table.

    Attributes:
        truth: what the catalog shows; None where Iceberg's own library can't read the table.
        asked: which state, as `sfn.spark.read` takes it.
        title: what tells it from the other states of the table; of its present one nothing.
    """

    truth: Shown | None
    asked: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a table was at a time.

    Attributes:
        ordinal: the time, in Unix milliseconds.
        shown: what the catalog showed then.
    """

    ordinal: int
    shown: Shown | None


class Table:
    """A table to be.

    Args:
        name: its own.
        namespace: levels.
        catalog: which one of the lake's it is to be in.
    """

    def __init__(self, lake: Lake, name: str, namespace: tuple[str, ...], catalog: str = "lake") -> None:
        self.lake, self.name, self.namespace, self._catalog = lake, name, namespace, catalog
        parts = (catalog, *namespace, name)
        self.sql_name = ".".join(f"`{part.replace('`', '``')}`" for part in parts)

    def run(self, *statements: str) -> None:
        """SQL; `{t}` stands for the table, `{q}` for its name as procedures take it, `{system}` for where these are."""
        quoted = ".".join(f"`{part}`" for part in (*self.namespace, self.name)).replace("'", "\\'")
        for statement in statements:
            told = statement.replace("{t}", self.sql_name).replace("{q}", f"'{quoted}'")
            self.lake.run(told.replace("{system}", f"{self._catalog}.system"))

    def create(
        self, columns: str, partitioned: str = "", properties: Mapping[str, str] | None = None, tail: str = ""
    ) -> None:
        """Create it, of version 2 if no property says otherwise."""
        told = {"format-version": "2", **(properties or {})}
        clause = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        listed = ", ".join(f"'{name}'='{value}'" for name, value in told.items())
        self.run(f"CREATE TABLE {{t}} ({columns}) USING iceberg {clause} {tail} TBLPROPERTIES ({listed})")

    def create_of(self, *fields: Any, properties: Mapping[str, str] | None = None) -> None:  # noqa: ANN401 - Java's
        """Create it with columns that SQL has no words for."""
        iceberg = self.lake.iceberg
        schema = iceberg.Schema(self.lake.array(iceberg.types.Types.NestedField, *fields))
        named = iceberg.catalog.TableIdentifier.parse(".".join((*self.namespace, self.name)))
        self.lake.catalog(self._catalog).createTable(
            named, schema, iceberg.PartitionSpec.unpartitioned(), dict(properties or {})
        )

    def insert(self, *rows: str, branch: str = "") -> None:
        """Commit rows, in one file for each partition."""
        into = f"{{t}}.`branch_{branch}`" if branch else "{t}"
        self.run(f"INSERT INTO {into} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(rows)}")

    @property
    def java(self) -> Any:  # noqa: ANN401 - Java's
        """Iceberg's own object for it, as it is now."""
        return self.lake.load(self.sql_name)

    @property
    def snapshot(self) -> int:
        """The current one."""
        return int(self.java.currentSnapshot().snapshotId())

    def files(self) -> list[str]:
        """Its metadata file, and the data files of now."""
        rows = self.lake.session.sql(f"SELECT file_path FROM {self.sql_name}.files").collect()
        return [str(self.java.operations().current().metadataFileLocation()), *(row.file_path for row in rows)]

    def delete_files(self) -> int:
        """How many files of deletes the current snapshot has added."""
        return int(self.java.currentSnapshot().summary().getOrDefault("added-delete-files", "0"))

    def shown(self, clause: str = "") -> Shown | None:
        """What the catalog shows of it; None where Iceberg's own library refuses."""
        try:
            return Shown.by(self.lake.session.sql(f"SELECT * FROM {self.sql_name} {clause}"))
        except (PySparkException, Py4JJavaError):
            return None

    def now(self) -> Look:
        """Its present state."""
        return Look(self.shown())

    def at_snapshot(self, number: int, title: str = "as of a snapshot") -> Look:
        return Look(self.shown(f"VERSION AS OF {number}"), {"as_of": number}, title)

    def at_ref(self, name: str, title: str, *, by: str = "ref") -> Look:
        return Look(self.shown(f"VERSION AS OF '{name}'"), {by: name}, title)

    def at_time(self, milliseconds: int, title: str = "as of a time") -> Look:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
        return Look(self.shown(f"TIMESTAMP AS OF '{at:%Y-%m-%d %H:%M:%S.%f}'"), {"as_of": at}, title)

    def as_it_was(self, then: Moment, title: str = "as of an Ordinal") -> Look:
        return Look(then.shown, {"as_of": render_ordinal(then.ordinal)}, title)

    def moment(self) -> Moment:
        """What it is now, for later."""
        return Moment(int(self.java.operations().current().lastUpdatedMillis()), self.shown())

    @property
    def directory(self) -> str:
        """Its location."""
        return canonical(str(self.java.location()))

    def publish(self, naming: Naming = IDENTIFIER) -> None:
        """Write what the service would write now: the SFN file, and that of the commit where each has one."""
        metadata = self.java.operations().current()
        head = metadata.currentSnapshot()
        ordinal = int(metadata.lastUpdatedMillis())
        whose = FileOwner(self.namespace, self.name, str(metadata.uuid()))
        document = Document(
            catalog_id="0123456789abcdef0123456789abcdef",
            namespace=self.namespace,
            name=self.name,
            guid=whose.guid,
            metadata_file_path=str(metadata.metadataFileLocation()),
            ordinal=ordinal,
            written_at=_EPOCH + timedelta(milliseconds=ordinal),
            snapshot_id=None if head is None else int(head.snapshotId()),
        )
        site = FileLayout(canonical(str(metadata.location())), naming)
        names = [site.keys(whose)[0]]
        if naming is ORDINAL:
            names.append(site.folder + naming.commit_file_names(whose, ordinal)[0])
        for name in names:
            file = Path(name.removeprefix("file://"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(render(document))
