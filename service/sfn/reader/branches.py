"""The files of single branches. What has none, such as a tag, is found in the metadata file."""

from __future__ import annotations

from collections.abc import Sequence

from sfn.errors import MalformedDocument, NotPermitted
from sfn.reader.documents import FoundDocument, follow_links, read_document
from sfn.reader.files import FileReader
from sfn.reader.trust import AllowedLocations
from sfn.reader.wanted import TableSelector
from sfn.sfnfile.naming import IDENTIFIER, UUID, FileLayout, FileOwner


class BranchLookup:
    """One branch or tag, looked for.

    Args:
        files: how to read.
        trust: the directory, and where documents may lead.
        ref: its name; not `main`, whose document leads.
    """

    def __init__(self, files: FileReader, allowed_locations: AllowedLocations, ref: str) -> None:
        self._files, self._allowed_locations, self._ref = files, allowed_locations, ref
        self._checked_keys: set[str] = set()

    async def find_by_name(self, selector: TableSelector) -> FoundDocument | None:
        """Its live document, where the table's name is known and the file lies where most do."""
        if selector.table is None or selector.file_owner is None:
            return None
        for key in FileLayout(self._allowed_locations.directory).keys(selector.file_owner, self._ref):
            found = await self._document_at(key)
            if found is not None and selector.matches(found.doc):
                last = await follow_links(self._files, self._allowed_locations, found)
                selector.check_name(found, last)
                if self._matches(last):
                    return last
        return None

    async def find_sibling(self, leading: FoundDocument) -> FoundDocument | None:
        """Its live document, beside the leading one of its table."""
        for key in _branch_keys(leading, self._ref):
            found = await self._document_at(key)
            if found is not None and found.identity == leading.identity and self._matches(found):
                return found
        return None

    def _matches(self, found: FoundDocument) -> bool:
        return found.doc.is_live and found.doc.ref == self._ref

    async def _document_at(self, key: str) -> FoundDocument | None:
        """The document at a key that has not been looked at yet; what can't be read may be another table's."""
        if key in self._checked_keys:
            return None
        self._checked_keys.add(key)
        try:
            return await read_document(self._files, key)
        except (MalformedDocument, NotPermitted):
            return None


def _branch_keys(leading: FoundDocument, ref: str) -> Sequence[str]:
    owner = FileOwner(leading.doc.namespace, leading.doc.name, leading.doc.guid)
    for naming in (IDENTIFIER, UUID):
        if leading.key.removeprefix(leading.folder) in naming.file_names(owner):
            return [leading.folder + name for name in naming.file_names(owner, ref)]
    return []
