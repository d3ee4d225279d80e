"""A table's directory with SFN files and metadata files in it, as a reader meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sfn.pointer import document
from sfn.pointer.document import Document, Link, State
from sfn.pointer.naming import IDENTIFIER, Whose

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
OTHER_UUID = "00000000-03fe-4693-9a96-a0705ddf69c1"
WRITTEN_AT = datetime(2026, 8, 21, 12, tzinfo=UTC)


class Directory:
    """One directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "metadata" / "_sfn"
        self.folder.mkdir(parents=True)

    def metadata(self, name: str = "00001-a.metadata.json", body: bytes | None = None, uuid: str = UUID) -> Path:
        """Write a metadata file."""
        file = self.path / "metadata" / name
        file.write_bytes(json.dumps({"format-version": 2, "table-uuid": uuid}).encode() if body is None else body)
        return file

    def document(self, identifier: str = "sales.orders", **more: Any) -> Document:  # noqa: ANN401 - any attribute
        """A document of a live table, with some attributes changed; `minutes` after noon."""
        *namespace, name = identifier.split(".")
        minutes = timedelta(minutes=more.pop("minutes", 0))
        plain = Document(
            catalog_id="0123456789abcdef0123456789abcdef",
            namespace=tuple(namespace),
            name=name,
            guid=UUID,
            metadata_file_path=f"file:{self.path}/metadata/00001-a.metadata.json",
            ordinal=1_700_000_000_000,
            written_at=WRITTEN_AT + minutes,
        )
        return replace(plain, **more)

    def sfn_file(self, identifier: str = "sales.orders", *, strict: bool = False) -> Path:
        """Where a table's SFN file lies."""
        *namespace, name = identifier.split(".")
        return self.folder / IDENTIFIER.names(Whose(tuple(namespace), name))[-1 if strict else 0]

    def write(self, identifier: str = "sales.orders", *, strict: bool = False, **more: Any) -> Path:  # noqa: ANN401
        """Write a table's SFN file."""
        file = self.sfn_file(identifier, strict=strict)
        file.write_bytes(document.render(self.document(identifier, **more)))
        return file

    def raw(self, body: bytes, identifier: str = "sales.orders") -> Path:
        """Write anything where a table's SFN file belongs."""
        file = self.sfn_file(identifier)
        file.write_bytes(body)
        return file

    def link(self, identifier: str) -> Link:
        """A link to a table's SFN file here."""
        *namespace, name = identifier.split(".")
        return Link(tuple(namespace), name, self.sfn_file(identifier).as_uri())

    def renamed(self, old: str, new: str, **more: Any) -> Path:  # noqa: ANN401
        """Write the SFN file that a rename leaves."""
        return self.write(old, state=State.RENAMED, moved_to=self.link(new), **more)
