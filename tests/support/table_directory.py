"""A table's directory with SFN files and metadata files in it, as a reader meets it, and names of metadata files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from typing_extensions import override

from sfn.reader.files import LocalFileSystem
from sfn.sfnfile import document
from sfn.sfnfile.document import Document, DocumentState, Link
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, FileOwner, Naming

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
OTHER_UUID = "00000000-03fe-4693-9a96-a0705ddf69c1"
FIRST_ORDINAL = 1_700_000_000_000
WRITTEN_AT = datetime(2026, 8, 21, 12, tzinfo=UTC)

SUFFIX: Final = ".metadata.json"
_ID: Final = "9c12d441-03fe-4693-9a96-a0705ddf69c1"

UNUSUAL: Final = (
    *("v3", "v0", "v03", "v00003", "v3.gz", "v3-a", f"v3-{_ID}", "v1700000000000", "vv3", "V3", "v", "v3.5", "v-3"),
    *("3", "0", "00003", "3.gz", "-3", "+3", "3.5", "1e3", "v1e3", "1_000", "inf", "nan", "3-", "0x3"),
    *("\N{ARABIC-INDIC DIGIT THREE}", "v\N{ARABIC-INDIC DIGIT THREE}", "\N{VULGAR FRACTION ONE HALF}", "\u4e09"),
    *(" 3", "3 ", " v3", "v3 ", "a b", " a", "a ", "a%20b", "a%2Fb", "a#b", "a?b", "a+b", "\u00e4"),
    *(f"00003-{_ID}", f"v00003-{_ID}", f"00003-{_ID}.gz", _ID, f"v{_ID}", _ID.replace("-", ""), "3-a", "abc", "abc.gz"),
    *("sfn-withdrawn-1", ".a", "_a", "-"),
)
"""Names without the suffix."""

_BESIDE: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "with a v": lambda stem: f"v{stem}",
        "without its v": lambda stem: stem.removeprefix("v"),
        "trimmed": lambda stem: stem.strip(),
        "without zeros": lambda stem: f"v{stem.removeprefix('v').lstrip('0') or '0'}",
        "the number": lambda _stem: "v3",
        "the next number": lambda _stem: "v4",
        "compressed": lambda stem: f"{stem}.gz",
        "its digits": lambda stem: "".join(sign for sign in stem if sign.isdigit()) or "3",
    }
)
NEIGHBOURS: Final = ("none", *_BESIDE, "all")
"""What may lie beside a file of such a name, in words."""


def replaced(file: Path, body: bytes) -> Path:
    """Write a file as the service does: a reader sees the old content or the new one, and never a part."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(body)
    return new.replace(file)


class Directory:
    """One directory.

    Args:
        folder: where its SFN files lie, below it.
        naming: what they are called.
    """

    def __init__(self, path: Path, folder: str = "metadata/_sfn", naming: Naming = IDENTIFIER) -> None:
        self.path, self.naming = path, naming
        self.folder = path / folder
        self.folder.mkdir(parents=True, exist_ok=True)
        (path / "metadata").mkdir(exist_ok=True)

    def metadata(
        self,
        name: str = "00001-a.metadata.json",
        body: bytes | None = None,
        uuid: str | None = UUID,
        **more: Any,  # noqa: ANN401 - any JSON
    ) -> Path:
        """Write a metadata file; its other keys have `_` for `-`."""
        file = self.path / "metadata" / name
        keys: dict[str, Any] = {"format-version": 2, "table-uuid": uuid, "last-updated-ms": FIRST_ORDINAL}
        keys |= {key.replace("_", "-"): value for key, value in more.items()}
        if "snapshots" not in more:
            # Whatever a branch or tag names is there.
            refs: dict[str, Any] = more.get("refs") or {}
            named: set[Any] = {more.get("current_snapshot_id"), *(ref["snapshot-id"] for ref in refs.values())}
            keys["snapshots"] = [{"snapshot-id": number} for number in sorted(named - {None, -1})]
        file.write_bytes(json.dumps(keys).encode() if body is None else body)
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
            ordinal=FIRST_ORDINAL,
            written_at=WRITTEN_AT + minutes,
        )
        return replace(plain, **more)

    def sfn_file(
        self, identifier: str = "sales.orders", *, strict: bool = False, ref: str | None = None, guid: str | None = UUID
    ) -> Path:
        """Where a table's SFN file lies."""
        *namespace, name = identifier.split(".")
        return self.folder / self.naming.file_names(FileOwner(tuple(namespace), name, guid), ref)[-1 if strict else 0]

    def write(self, identifier: str = "sales.orders", *, strict: bool = False, **more: Any) -> Path:  # noqa: ANN401
        """Write a table's SFN file."""
        file = self.sfn_file(identifier, strict=strict, ref=more.get("ref"), guid=more.get("guid", UUID))
        return replaced(file, document.render(self.document(identifier, **more)))

    def commit(self, minutes: int, identifier: str = "sales.orders", **more: Any) -> Path:  # noqa: ANN401
        """Write the file of one commit, and its metadata file."""
        *namespace, name = identifier.split(".")
        metadata = self.metadata(f"{minutes:05d}-a.metadata.json", uuid=more.get("guid", UUID))
        ordinal = FIRST_ORDINAL + 60_000 * minutes
        doc = self.document(identifier, minutes=minutes, ordinal=ordinal, metadata_file_path=f"file:{metadata}", **more)
        file = self.folder / ORDINAL.commit_file_names(FileOwner(tuple(namespace), name), ordinal)[0]
        return replaced(file, document.render(doc))

    def raw(self, body: bytes, identifier: str = "sales.orders") -> Path:
        """Write anything where a table's SFN file belongs."""
        return replaced(self.sfn_file(identifier), body)

    def link(self, identifier: str) -> Link:
        """A link to a table's SFN file here."""
        *namespace, name = identifier.split(".")
        return Link(tuple(namespace), name, self.sfn_file(identifier).as_uri())

    def renamed(self, old: str, new: str, **more: Any) -> Path:  # noqa: ANN401
        """Write the SFN file that a rename leaves."""
        return self.write(old, state=DocumentState.RENAMED, moved_to=self.link(new), **more)


def neighbours(stem: str, which: str) -> list[str]:
    """Names of other metadata files, in order; at least one with `all`."""
    if which == "none":
        return []
    made = {beside(stem) for word, beside in _BESIDE.items() if which in {word, "all"}}
    return sorted(f"{name}{SUFFIX}" for name in made if name and name != stem)


class RewrittenFiles(LocalFileSystem):
    """A file system with a writer, which replaces one file right after each read of it.

    Args:
        file: the one.
        successor: its next content.
    """

    def __init__(self, file: Path, successor: Document) -> None:
        super().__init__()
        self._file, self._successor = file, successor

    @override
    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        body = await super().read(key, most, start)
        if key.endswith(self._file.name):
            replaced(self._file, document.render(self._successor))
        return body
