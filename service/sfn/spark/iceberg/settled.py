"""Which metadata file has a table's state, and what of it Iceberg's runtime is asked for.

Nothing of a table that only that runtime understands is looked into.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sfn.errors import NotSupported
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader import metadata
from sfn.reader import resolve as reading
from sfn.reader.documents import Found
from sfn.reader.files import finish
from sfn.reader.metadata import Metadata
from sfn.reader.resolve import Pointer, Resolved
from sfn.reader.timeline import Then
from sfn.spark.asked import Asked, Moment, Ordinal, Ref, SnapshotId, State
from sfn.spark.moments import check_known, current_at

_NUMBER: Final = re.compile(r"[+-]?\d+")
"""What Java's `Long.parseLong` may take, which Iceberg asks first."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A table in one state.

    Attributes:
        pointer: its metadata file, and the document that names it.
        name: its identifier, for people.
        version: a snapshot's id, a branch or a tag, as Iceberg's option `versionAsOf` takes it; None: as it is there.
    """

    pointer: Pointer
    name: str
    version: str | None


def settled(asked: Asked) -> Settled:
    """The state that is asked for, looked up now.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        NotSupported: a branch that Iceberg would take for a snapshot's id.
    """
    storage = asked.opening.storage()
    found = finish(reading.answer(storage, asked.question, asked.opening))
    key = canonical(found.metadata_location)
    if isinstance(asked.state, Ordinal) or asked.state == Ref(MAIN_BRANCH):
        return _settled(found, key, None)
    contents = finish(metadata.contents(storage, key))
    if contents is None:
        raise metadata.gone(key, found.document, found.sfn_file, found.document.written_at + found.age)
    return _settled(found, key, version(asked.state, contents, found.metadata_location))


def version(state: State, contents: Metadata, where: str) -> str | None:
    """What Iceberg's option `versionAsOf` is given for a state of a table: a snapshot's id, a branch or a tag.

    Args:
        state: as which it is read, of its own history.
        contents: what stands in its metadata file, with all snapshots that a state is looked for among.
        where: that file.

    Returns:
        None for the table as it is there.

    Raises:
        RefNotFound, CommitNotFound: it has no such branch, tag or snapshot.
        NotSupported: a branch that Iceberg would take for a snapshot's id.
    """
    known = contents.snapshot_ids
    match state:
        case Ref(name) if name != MAIN_BRANCH:
            return _named(name, contents, where)
        case Ref() | Ordinal():
            return None
        case SnapshotId(number):
            check_known(number, known, where)
            return f"{number}"
        case Moment(milliseconds):
            number = current_at(contents.became(where), milliseconds, where)
            check_known(number, known, where)
            return f"{number}"


def _named(name: str, contents: Metadata, where: str) -> str:
    """A branch has the table's schema, a tag that of its snapshot: Iceberg tells them by the name."""
    contents.head(name, where)
    ref = (contents.refs or {})[name]
    if _NUMBER.fullmatch(name) is None:
        return name
    schemas = {one.snapshot_id: one.schema_id for one in contents.snapshots or ()}
    if ref.type == "branch" and schemas.get(ref.snapshot_id) != contents.current_schema_id:
        raise NotSupported(
            where,
            expected="a branch that can be told from a snapshot's id",
            found=f"branch {name}, with another schema than its snapshot",
            remedy="use engine='files' or engine='sfn'",
        )
    return f"{ref.snapshot_id}"


def _settled(found: Resolved, key: str, version: str | None) -> Settled:
    name = ".".join((*found.document.namespace, found.document.name))
    return Settled(Pointer(key, Then(Found(found.sfn_file, found.document))), name, version)
