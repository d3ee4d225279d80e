"""What our own files tell of a name in a catalog that nobody can ask, where the inbox knows nothing of it any more."""

from __future__ import annotations

from collections.abc import Iterable

from sfn.pointer.document import Document, State
from sfn.publish.facts import Seen
from sfn.publish.inventory import ours, readable
from sfn.publish.policy import Policy
from sfn.words import Claim, TableName, Told, ToldTable


def learnt(claim: Claim, name: TableName, files: Iterable[Seen], policy: Policy) -> Told:
    """What was told once, by the pointer that was published: a late event must not lead back behind it.

    Args:
        claim: the row's; its story counts where no file is left.
        files: all that was read.
    """
    found = [doc for seen in files if (doc := readable(seen.held)) is not None and ours(doc, name, policy)]
    head = max(found, key=lambda doc: (doc.live, doc.ordinal), default=None)
    live = claim.story.live
    if head is not None:
        return Told((_table(head),))
    if live is None:
        return Told()
    return Told((ToldTable(live.uuid, live.pointer, told_at=0, born_at=0),))


def _table(doc: Document) -> ToldTable:
    has_left = doc.state in {State.DROPPED, State.RENAMED}
    return ToldTable(doc.guid, doc.metadata_file_path, told_at=0, born_at=0, ended_at=0 if has_left else -1)
