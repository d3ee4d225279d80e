"""What a table's directory says, as a reader without a catalog sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document, parse
from sfn.sfnfile.naming import FileLayout, FileOwner


@dataclass(frozen=True, slots=True)
class Pointed:
    """The two files of one table.

    Attributes:
        document: the SFN file's; None where there is none.
        hint: the content of `version-hint.text`; None where there is none.
    """

    document: Document | None
    hint: str | None

    def says(self, pointer: str) -> bool:
        """Whether both name this metadata file, and the table is live."""
        document = self.document
        if document is None or not document.is_live:
            return False
        return document.metadata_file_path == pointer and self.hint == version_hint.text_for(pointer)


def pointed(directory: Path, namespace: str, name: str) -> Pointed:
    """The files of a table in its directory."""
    (key, *_) = FileLayout(directory.as_uri()).keys(FileOwner((namespace,), name))
    document, hint = _content(Path(key.removeprefix("file://"))), _content(directory / "metadata" / "version-hint.text")
    return Pointed(None if document is None else parse(document), None if hint is None else hint.decode())


def contents(warehouse: Path) -> dict[Path, bytes]:
    """Every SFN file and version hint below a directory, byte for byte."""
    found = (*warehouse.rglob("*.ver"), *warehouse.rglob("version-hint.text"))
    return {path: path.read_bytes() for path in found}


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
