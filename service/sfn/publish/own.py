"""Our files at one place."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.pointer.document import Document
from sfn.pointer.site import Site
from sfn.words import Held, Reason


@dataclass(frozen=True, slots=True)
class File:
    """One file of ours.

    Attributes:
        key: where.
        held: as it was seen.
        doc: its document.
    """

    key: str
    held: Held
    doc: Document


@dataclass(frozen=True, slots=True)
class Own:
    """A row's files at one site: one for each published branch, all led by one of them.

    Where files are called by the table's uuid, each uuid that the row's tables had there has its own.

    Attributes:
        site: where.
        key: of the leading file, or where it would go.
        files: those that are there, the leading one first.
        obstacle: why nothing of ours may be written at `key`.
        found: the document that is in the way, if it is one.
    """

    site: Site
    key: str
    files: tuple[File, ...] = ()
    obstacle: Reason | None = None
    found: Document | None = None

    @property
    def lead(self) -> File | None:
        """The leading file; where it is gone, any other one."""
        return self.files[0] if self.files else None

    @property
    def doc(self) -> Document | None:
        """Its document."""
        return self.files[0].doc if self.files else None

    @property
    def held(self) -> Held | None:
        """What is at `key`."""
        return self.files[0].held if self.files and self.files[0].key == self.key else None
