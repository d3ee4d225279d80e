"""What lies there: our files at all places of a row, and who else is beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLettered, LeasedJob, StoredObject
from sfn.publish.aliases import Alias
from sfn.publish.facts import CatalogAnswer, Observations
from sfn.publish.inventory import FileFinder
from sfn.publish.own import TableFiles
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout


@dataclass(frozen=True, slots=True)
class PublishContext:
    """The situation that one decision is about.

    Attributes:
        job, facts, policy: what the decision was given.
        name: the row's table name.
        answer: the catalog's answer for it.
        table: its table, None where it has none (or one that gets no files).
        location: the canonical location of that table.
        layout: where its files belong.
        finder: how our files are found.
        existing: our files at every site.
        foreign_documents: documents of other names or catalogs beside ours at `layout`.
        conflict: why the table's place gets no files of ours.
        listed_as: the name under which the catalog lists the table, or listed it when it last had one. Where the row's
            is another spelling of that, the files are the listed name's, and `table` is None here. None: not known.
        aliases: sites of the row that are other names of one of `existing`.
    """

    job: LeasedJob
    observations: Observations
    policy: Policy
    name: TableIdentifier
    answer: CatalogAnswer
    table: Table | None
    location: str | None
    layout: FileLayout | None
    finder: FileFinder
    existing: tuple[TableFiles, ...]
    foreign_documents: tuple[Document, ...] = ()
    conflict: DeadLettered | None = None
    listed_as: TableIdentifier | None = None
    aliases: Mapping[FileLayout, Alias] = field(default_factory=dict)

    @property
    def listed_name(self) -> TableIdentifier | None:
        """The listed name of the table, where the row's is another spelling of that."""
        return self.listed_as if self.listed_as != self.name else None

    @property
    def has_table(self) -> bool:
        """Whether the catalog has a table of this name, also where another spelling of the name has its files."""
        return self.table is not None or (self.listed_name is not None and isinstance(self.answer.found, Table))

    @property
    def documents(self) -> list[Document]:
        """The leading documents of ours at all sites."""
        return [table_files.main_document for table_files in self.existing if table_files.main_document is not None]

    @property
    def newest_document(self) -> Document | None:
        """What is held: the live document with the greatest Ordinal, else the greatest of any state."""
        found = self.documents
        return max([doc for doc in found if doc.is_live] or found, key=lambda doc: doc.ordinal, default=None)

    @property
    def is_purged(self) -> bool:
        """Whether a purge was told of the table that our files name, and not of one that had the name before it."""
        published = self.job.table_state.live
        if published is None:
            return self.job.pending.purge and self.table is None
        return self.job.pending.purge and all(doc.guid == published.uuid for doc in self.documents if doc.is_live)

    @property
    def last_ordinal(self) -> int:
        """The greatest Ordinal of our documents, 0 without any."""
        return max((file.doc.ordinal for table_files in self.existing for file in table_files.files), default=0)

    @property
    def current_files(self) -> TableFiles | None:
        """Our files where the table is."""
        return next((table_files for table_files in self.existing if self.is_current(table_files)), None)

    def is_current(self, table_files: TableFiles) -> bool:
        """Whether these are the files of the table itself, at its own site."""
        if self.table is None or table_files.layout != self.layout:
            return False
        # With such a naming the first one is the table's, and each other one is of a table that had the name before.
        return not table_files.layout.naming.is_by_uuid or table_files is next(
            one for one in self.existing if one.layout == self.layout
        )

    def files_at(self, location: str) -> list[TableFiles]:
        """Our files at a table's location, or in one folder below a root."""
        return [table_files for table_files in self.existing if table_files.layout.location == location]


def hint_at(observations: Observations, location: str) -> StoredObject | None:
    """The version hint at a location."""
    return observations.file(version_hint.key_of(location))
