"""Which table a reader wants."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.domain.identifiers import normal_uuid
from sfn.errors import NameTaken
from sfn.reader.documents import FoundDocument, identifier_text, link_text
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileOwner


@dataclass(frozen=True, slots=True)
class TableSelector:
    """Which table.

    Attributes:
        table: namespace levels and name; None where any will do that is the only one.
        uuid: its `table-uuid`; None likewise.
    """

    table: tuple[str, ...] | None = None
    uuid: str | None = None

    @property
    def file_owner(self) -> FileOwner | None:
        """What its files may be called by; None where only its directory is known."""
        if self.table is None:
            return None if self.uuid is None else FileOwner((), "", normal_uuid(self.uuid))
        return FileOwner(self.table[:-1], self.table[-1], normal_uuid(self.uuid))

    @property
    def is_any(self) -> bool:
        """Whether the table is to be the only one."""
        return self.table is None and self.uuid is None

    def matches(self, doc: Document) -> bool:
        """Whether a document speaks of it."""
        is_named = self.table is None or (*doc.namespace, doc.name) == self.table
        return is_named and (self.uuid is None or doc.guid == normal_uuid(self.uuid))

    @property
    def text(self) -> str:
        """It, for people."""
        name = "the table" if self.table is None else ".".join(self.table)
        return name if self.uuid is None else f"{name} with the uuid {self.uuid}"

    def check_name(self, start: FoundDocument, last: FoundDocument) -> None:
        """Refuse a name that another table has now.

        Every document of that name on the way is checked: after a change of settings, one file of a name may lead to
        another.

        Args:
            start: the document that was found by it.
            last: where that one led.

        Raises:
            NameTaken: another has.
        """
        if self.table is None or self.matches(last.doc):
            return
        for doc in reversed((start.doc, *last.previous_documents)):
            if doc.name_now is not None and (*doc.namespace, doc.name) == self.table:
                now = identifier_text(last.doc) if last.doc.is_live else link_text(doc.moved_to)
                raise NameTaken(
                    start.key,
                    expected=f"the table that was called {identifier_text(doc)} here",
                    found=f"that it is now {now}, and that another table is {identifier_text(doc)}",
                    remedy=f"name the one you mean: {now}, or read {doc.name_now.sfn_file_path}",
                )
