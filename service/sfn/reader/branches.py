"""The files of single branches. What has none, such as a tag, is found in the metadata file."""

from __future__ import annotations

from collections.abc import Sequence

from sfn.errors import Malformed, NotPermitted
from sfn.pointer.naming import IDENTIFIER, UUID, FileOwner
from sfn.pointer.site import FileLayout
from sfn.reader.documents import Found, followed, read
from sfn.reader.files import Files
from sfn.reader.trust import Trust
from sfn.reader.wanted import Wanted


class Branch:
    """One branch or tag, looked for.

    Args:
        files: how to read.
        trust: the directory, and where documents may lead.
        ref: its name; not `main`, whose document leads.
    """

    def __init__(self, files: Files, trust: Trust, ref: str) -> None:
        self._files, self._trust, self._ref = files, trust, ref
        self._looked_at: set[str] = set()

    async def by_name(self, wanted: Wanted) -> Found | None:
        """Its live document, where the table's name is known and the file lies where most do."""
        if wanted.table is None or wanted.whose is None:
            return None
        for key in FileLayout(self._trust.directory).keys(wanted.whose, self._ref):
            found = await self._at(key)
            if found is not None and wanted.is_meant_by(found.doc):
                last = await followed(self._files, self._trust, found)
                wanted.check(found, last)
                if self._is_it(last):
                    return last
        return None

    async def beside(self, leading: Found) -> Found | None:
        """Its live document, beside the leading one of its table."""
        for key in _keys(leading, self._ref):
            found = await self._at(key)
            if found is not None and found.identity == leading.identity and self._is_it(found):
                return found
        return None

    def _is_it(self, found: Found) -> bool:
        return found.doc.is_live and found.doc.ref == self._ref

    async def _at(self, key: str) -> Found | None:
        """The document at a key that has not been looked at yet; what can't be read may be another table's."""
        if key in self._looked_at:
            return None
        self._looked_at.add(key)
        try:
            return await read(self._files, key)
        except (Malformed, NotPermitted):
            return None


def _keys(leading: Found, ref: str) -> Sequence[str]:
    whose = FileOwner(leading.doc.namespace, leading.doc.name, leading.doc.guid)
    for naming in (IDENTIFIER, UUID):
        if leading.key.removeprefix(leading.folder) in naming.file_names(whose):
            return [leading.folder + name for name in naming.file_names(whose, ref)]
    return []
