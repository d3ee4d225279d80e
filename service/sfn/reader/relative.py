"""Where a metadata file lies relative to the SFN file, in a copy of the bucket that the catalog knows nothing of."""

from __future__ import annotations

from sfn.errors import NotRelative, Unsafe
from sfn.reader.documents import FoundDocument
from sfn.sfnfile.locations import store_prefix


def relative_location(found: FoundDocument) -> str:
    """The metadata file's location beside a document.

    Raises:
        NotRelative: the document does not tell.
        Unsafe: it leads out of the store.
    """
    original = found.doc.metadata_file_relative
    if original is None:
        remedy = "resolve it without `relative`"
        raise NotRelative(found.key, expected="`metadata_file_relative`", found="none", remedy=remedy)
    store = store_prefix(found.key)
    path = found.folder.removeprefix(store).split("/")[1:-1]
    for segment in original.split("/"):
        if segment != "..":
            path.append(segment)
        elif path:
            path.pop()
        else:
            raise Unsafe(found.key, expected="a `metadata_file_relative` within the store", found=original)
    return "/".join((store, *path))
