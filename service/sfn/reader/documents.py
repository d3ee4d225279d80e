"""One SFN document after another: read, and followed where they forward to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from sfn.errors import MalformedDocument, TooManyHops
from sfn.reader.files import FileReader
from sfn.reader.trust import AllowedLocations
from sfn.sfnfile import document
from sfn.sfnfile.document import Document, Link

MAX_HOPS: Final = 8
"""How many `moved_to` are followed."""

TableIdentity: TypeAlias = tuple[str | tuple[str, ...], str]
"""A table's uuid, or its identifier where it has none, with its catalog's id."""


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document.

    Attributes:
        key: its canonical URL.
        doc: what it says.
        via: URLs of the documents that forwarded to it, in order.
        previous_documents: what these say.
    """

    key: str
    doc: Document
    via: tuple[str, ...] = ()
    previous_documents: tuple[Document, ...] = ()

    @property
    def identity(self) -> TableIdentity:
        """Which table it speaks of."""
        return self.doc.guid or (*self.doc.namespace, self.doc.name), self.doc.catalog_id

    @property
    def folder(self) -> str:
        """Where it lies, with a trailing slash."""
        return self.key.rpartition("/")[0] + "/"


async def read_document(files: FileReader, key: str) -> FoundDocument | None:
    """The document at a key; None where there is no file.

    Raises:
        Malformed: the file is none.
        UnknownVersion: it is one of another version.
    """
    body = await files.read(key, document.MAX_DOCUMENT_BYTES + 1)
    if body is None:
        return None
    try:
        return FoundDocument(key, document.parse(body))
    except MalformedDocument as error:
        raise type(error)(key, expected=error.expected, found=error.found, remedy=error.remedy) from error


async def follow_links(files: FileReader, allowed_locations: AllowedLocations, start: FoundDocument) -> FoundDocument:
    """Where `moved_to` leads: a live document of the same table, or else the last one on the way to nowhere.

    Raises:
        TooManyHops: it leads further than `MAX_HOPS`, or in a circle.
        Unsafe: it leads where nobody is followed to.
        Malformed: to a file that is none.
    """
    at = start
    for _ in range(MAX_HOPS + 1):
        link = at.doc.moved_to
        if at.doc.is_live or link is None:
            return at
        following = await read_document(files, allowed_locations.check_link(link.sfn_file_path, at.key))
        if following is None or not _is_successor(following.doc, link, at.doc):
            return at
        if following.key in (*at.via, at.key):
            raise TooManyHops(start.key, expected="a `moved_to` that leads to an end", found="a circle")
        at = replace(following, via=(*at.via, at.key), previous_documents=(*at.previous_documents, at.doc))
    raise TooManyHops(start.key, expected=f"at most {MAX_HOPS} `moved_to`", found="more, or a circle")


def _is_successor(doc: Document, link: Link, before: Document) -> bool:
    """Whether a document that was forwarded to speaks of the same table; one without a uuid is known by its name."""
    if before.guid is not None:
        return doc.guid == before.guid
    is_named = (doc.namespace, doc.name) == (link.namespace, link.name)
    return doc.guid is None and is_named and doc.catalog_id == before.catalog_id


def describe_end(doc: Document) -> str:
    """What a document says of a table that is not there any more."""
    at = document.format_time(doc.written_at)
    if doc.moved_to is None:
        return f"that {identifier_text(doc)} was dropped, as the catalog said at {at}"
    return f"that {identifier_text(doc)} left for {link_text(doc.moved_to)} at {at}, and no live table is there"


def identifier_text(doc: Document) -> str:
    """The identifier that a document has, for people."""
    return ".".join((*doc.namespace, doc.name))


def link_text(link: Link | None) -> str:
    """The identifier that a link has, for people."""
    return ".".join((*link.namespace, link.name)) if link is not None else "gone"
