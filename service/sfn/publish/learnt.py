"""What our own files tell of a name in a catalog that nobody can ask, where the inbox knows nothing of it any more."""

from __future__ import annotations

from collections.abc import Iterable

from sfn.pointer.document import Document, DocumentState
from sfn.publish.facts import ObservedFile
from sfn.publish.inventory import is_ours, parse_or_none
from sfn.publish.policy import Policy
from sfn.words import Claim, TableName, Told, ToldTable


def recover_history(job: Claim, name: TableName, files: Iterable[ObservedFile], policy: Policy) -> Told:
    """What was told once, by the pointer that was published: a late event must not lead back behind it.

    Args:
        job: the row's; its story counts where no file is left.
        files: all that was read.
    """
    found = [
        doc for observed in files if (doc := parse_or_none(observed.stored)) is not None and is_ours(doc, name, policy)
    ]
    head = max(found, key=lambda doc: (doc.is_live, doc.ordinal), default=None)
    live = job.story.live
    if head is not None:
        return Told((_table_history(head),))
    if live is None:
        return Told()
    return Told((ToldTable(live.uuid, live.pointer, told_at=0, born_at=0),))


def _table_history(doc: Document) -> ToldTable:
    has_left = doc.state in {DocumentState.DROPPED, DocumentState.RENAMED}
    return ToldTable(doc.guid, doc.metadata_file_path, told_at=0, born_at=0, ended_at=0 if has_left else -1)
