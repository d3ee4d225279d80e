"""How a reader finds a table's current metadata file (specification, section 5). It never guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from sfn.errors import Ambiguous, Dropped, Malformed, NameTaken, NotFound, Stale, Unreadable
from sfn.pointer import document, naming
from sfn.pointer.document import Document
from sfn.pointer.location import canonical
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.reader.files import Files
from sfn.reader.identity import PART, table_uuid

HOPS = 8
"""How many `moved_to` are followed."""
LISTED = 10_000
"""How many files of one folder are looked at."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a table's current metadata file is.

    Attributes:
        metadata_location: the metadata file, as the catalog gave it.
        document: the SFN document that says so.
        sfn_file: the URL of that document.
        written_at: when the catalog said so.
    """

    metadata_location: str
    document: Document
    sfn_file: str

    @property
    def written_at(self) -> datetime:
        """When the catalog's answer arrived that this rests on."""
        return self.document.written_at


@dataclass(frozen=True, slots=True)
class _Found:
    key: str
    doc: Document


_Identity: TypeAlias = tuple[str | tuple[str, ...], str]
"""Which table: its uuid, or its identifier where it has none, with its catalog's id."""


async def resolve(files: Files, directory: str, table: Sequence[str] | None = None) -> Resolved:
    """The current metadata file of a table.

    Args:
        files: how to read.
        directory: canonical URL of the table's directory.
        table: namespace levels and name; None where the directory holds one table only.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    try:
        return await _resolve(files, directory, table)
    except Stale:
        return await _resolve(files, directory, table)


async def _resolve(files: Files, directory: str, table: Sequence[str] | None) -> Resolved:
    if table is not None:
        found = await _by_name(files, directory, tuple(table))
    else:
        found = await _by_directory(files, directory)
    await _check_metadata(files, found)
    return Resolved(found.doc.metadata_file_path, found.doc, found.key)


async def _by_name(files: Files, directory: str, table: tuple[str, ...]) -> _Found:
    *namespace, name = table
    looked_at = Site(directory).keys(Whose(tuple(namespace), name))
    malformed: Malformed | None = None
    for key in looked_at:
        try:
            doc = await _document(files, key)
        except Malformed as error:
            # It may be another table's: two can share the first name, and then ours has the second.
            malformed = malformed or error
            continue
        if doc is not None and (doc.namespace, doc.name) == (tuple(namespace), name):
            if doc.name_now is not None:
                raise NameTaken(
                    key,
                    expected=f"the table that was called {'.'.join(table)} here",
                    found=f"that it is now {_called(doc.moved_to)}, and that another table is {'.'.join(table)}",
                    remedy=f"name the one you mean: {_called(doc.moved_to)}, or read {doc.name_now.sfn_file_path}",
                )
            followed = await _followed(files, _Found(key, doc))
            if followed is None:
                raise Dropped(key, expected="a live table", found=_ended(doc))
            return followed
    if malformed is not None:
        raise malformed
    raise NotFound(
        " or ".join(looked_at),
        expected=f"the SFN file of {'.'.join(table)}",
        found="none",
        remedy="check the directory and the identifier",
    )


async def _by_directory(files: Files, directory: str) -> _Found:
    folder = Site(directory).folder
    ended: list[Document] = []
    broken: Unreadable | None = None
    best: dict[_Identity, _Found] = {}
    here: set[_Identity] = set()
    for key in await files.list(folder, LISTED):
        if not key.endswith(naming.EXTENSION):
            continue
        try:
            doc = await _document(files, key)
            followed = await _followed(files, _Found(key, doc)) if doc is not None else None
        except Unreadable as error:
            # One file that nobody can read does not hide a table that can be: only where none is it counts.
            broken = broken or error
            continue
        if doc is not None and followed is None:
            ended.append(doc)
        if followed is not None:
            identity = _identity(followed.doc)
            if identity not in best or followed.doc.as_of > best[identity].doc.as_of:
                best[identity] = followed
            # Of every file, not of the best: `moved_to` may lead to the same one by another spelling of this folder.
            if followed.key.startswith(folder):
                here.add(identity)
    if broken is not None and not best:
        raise broken
    # Those whose file lies here win over those that left.
    return _only(folder, [best[identity] for identity in best if identity in here] or list(best.values()), ended)


def _identity(doc: Document) -> _Identity:
    return doc.guid or (*doc.namespace, doc.name), doc.catalog_id


def _only(folder: str, found: list[_Found], ended: list[Document]) -> _Found:
    """The one table.

    Args:
        ended: documents of tables that are not there any more.
    """
    if len(found) == 1:
        return found[0]
    if found:
        raise Ambiguous(
            folder,
            expected="one table, or to be told which",
            found=", ".join(sorted(".".join((*one.doc.namespace, one.doc.name)) for one in found)),
            remedy="name the table",
        )
    if ended:
        last = max(ended, key=lambda doc: doc.as_of)
        others = ", nor is the table of any other file there live" if len(ended) > 1 else ""
        raise Dropped(folder, expected="a live table", found=f"{_ended(last)}{others}")
    raise NotFound(folder, expected="an SFN file", found="none", remedy="check the directory")


async def _followed(files: Files, start: _Found) -> _Found | None:
    """Where `moved_to` leads; None where the chain ends without a live table of the same uuid."""
    at = start
    for _ in range(HOPS + 1):
        if at.doc.live:
            return at
        link = at.doc.moved_to
        if link is None:
            return None
        key = canonical(link.sfn_file_path)
        doc = await _document(files, key)
        if doc is None or doc.guid != at.doc.guid:
            return None
        at = replace(at, key=key, doc=doc)
    raise Malformed(start.key, expected=f"at most {HOPS} `moved_to`", found="more, or a circle")


async def _document(files: Files, key: str) -> Document | None:
    body = await files.read(key, document.LIMIT + 1)
    if body is None:
        return None
    try:
        return document.parse(body)
    except Malformed as error:
        raise Malformed(key, expected=error.expected, found=error.found) from error


async def _check_metadata(files: Files, found: _Found) -> None:
    pointer, doc = found.doc.metadata_file_path, found.doc
    key = canonical(pointer)
    first = await files.read(key, PART)
    if first is None:
        raise Stale(
            pointer,
            expected=f"the metadata file that {found.key} named at {document.moment(doc.written_at)}",
            found="no such file",
            remedy="see whether the service that writes the SFN file still runs",
        )
    if doc.guid is None:
        return
    uuid = await table_uuid(files, key, first)
    if uuid != doc.guid:
        raise Stale(pointer, expected=f"table-uuid {doc.guid}, as {found.key} says", found=uuid or "none")


def _ended(doc: Document) -> str:
    """What a document says of a table that is not there any more."""
    name, at = ".".join((*doc.namespace, doc.name)), document.moment(doc.written_at)
    if doc.moved_to is None:
        return f"that {name} was dropped, as the catalog said at {at}"
    return f"that {name} left for {_called(doc.moved_to)} at {at}, and no live table is there"


def _called(link: document.Link | None) -> str:
    return ".".join((*link.namespace, link.name)) if link is not None else "gone"
