"""Our files at one place."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.domain.jobs import DeadLetterReason, StoredObject
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout


@dataclass(frozen=True, slots=True)
class OurFile:
    """One file of ours.

    Attributes:
        key: where.
        stored: as it was seen.
        doc: its document.
    """

    key: str
    stored: StoredObject
    doc: Document


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A row's files at one site: one for each published branch, all led by one of them.

    Where files are called by the table's uuid, each uuid that the row's tables had there has its own.

    Attributes:
        layout: where.
        key: of the leading file, or where it would go.
        files: those that are there, the leading one first.
        conflict: why nothing of ours may be written at `key`.
        conflicting_document: the document that is in the way, if it is one.
    """

    layout: FileLayout
    key: str
    files: tuple[OurFile, ...] = ()
    conflict: DeadLetterReason | None = None
    conflicting_document: Document | None = None

    @property
    def main_file(self) -> OurFile | None:
        """The leading file; where it is gone, any other one."""
        return self.files[0] if self.files else None

    @property
    def main_document(self) -> Document | None:
        """Its document."""
        return self.files[0].doc if self.files else None

    @property
    def stored(self) -> StoredObject | None:
        """What is at `key`."""
        return self.files[0].stored if self.files and self.files[0].key == self.key else None
