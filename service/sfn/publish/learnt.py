"""What our own files tell of a name in a catalog that nobody can ask, where the inbox knows nothing of it any more."""

from __future__ import annotations

from collections.abc import Iterable

from sfn.domain.events import EventHistory, TableHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import LeasedJob
from sfn.publish.facts import ObservedFile
from sfn.publish.inventory import is_ours, parse_or_none
from sfn.publish.policy import Policy
from sfn.sfnfile.document import Document, DocumentState


def recover_history(
    job: LeasedJob, name: TableIdentifier, files: Iterable[ObservedFile], policy: Policy
) -> EventHistory:
    """What was told once, by the pointer that was published: a late event must not lead back behind it.

    Args:
        job: the row's; its story counts where no file is left.
        files: all that was read.
    """
    found = [
        doc for observed in files if (doc := parse_or_none(observed.stored)) is not None and is_ours(doc, name, policy)
    ]
    head = max(found, key=lambda doc: (doc.is_live, doc.ordinal), default=None)
    live = job.table_state.live
    if head is not None:
        return EventHistory((_table_history(head),))
    if live is None:
        return EventHistory()
    return EventHistory((TableHistory(live.uuid, live.metadata_location, changed_seq=0, created_seq=0),))


def _table_history(doc: Document) -> TableHistory:
    has_left = doc.state in {DocumentState.DROPPED, DocumentState.RENAMED}
    return TableHistory(doc.guid, doc.metadata_file_path, changed_seq=0, created_seq=0, ended_seq=0 if has_left else -1)
