"""Who carries a table of ours under another name (specification, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import Wakeup
from sfn.errors import LocationRefused
from sfn.publish.changes import PlanBuilder
from sfn.publish.inventory import parse_or_none
from sfn.publish.scene import PublishContext
from sfn.publish.spelled import match_listed_name
from sfn.sfnfile.document import Document, DocumentState
from sfn.sfnfile.locations import check_location


@dataclass(frozen=True, slots=True)
class RenameTarget:
    """The name that a table of ours has now.

    Attributes:
        name: the new name.
        table: what the catalog says of it.
        location: its canonical location.
    """

    name: TableIdentifier
    table: Table
    location: str


def find_rename_targets(context: PublishContext, builder: PlanBuilder) -> dict[str, RenameTarget | None]:
    """By table uuid: who carries, by the catalog's own word, a uuid that our files name and our name does not.

    None for one whose location is refused. One that was given up may have come back, or have been somewhere all along
    where nobody saw it.
    """
    rename_targets: dict[str, RenameTarget | None] = {}
    for doc in context.documents:
        uuid = doc.guid
        if uuid is None or uuid in rename_targets or not may_forward(context, doc):
            continue
        if context.table is not None and uuid == context.table.uuid:
            continue
        for candidate in _candidates(context, uuid):
            found = context.observations.answer_for(candidate.table).found
            if not isinstance(found, Table):
                # Another spelling of our name is told by `wake_listed`.
                builder.wake([candidate] if candidate.table != context.listed_name else [])
            elif found.uuid == uuid and found.skip_reason is None:
                rename_targets[uuid] = to_rename_target(context, _as_listed(context, candidate.table, found), found)
                break
    return rename_targets


def _as_listed(context: PublishContext, name: TableIdentifier, table: Table) -> TableIdentifier:
    """Return the name that has the table's file: an event may spell it in another way."""
    if name != context.job.pending.renamed_to or context.policy.event_only:
        return name
    return match_listed_name(context.observations, context.policy, name, table, fresh=True) or name


def to_rename_target(context: PublishContext, name: TableIdentifier, table: Table) -> RenameTarget | None:
    """A name with the table that the catalog says it has; None where a location of that is refused."""
    try:
        check_location(table.metadata_location, context.policy.allowed_locations)
        return RenameTarget(name, table, check_location(table.location, context.policy.allowed_locations))
    except LocationRefused:
        return None


def may_forward(context: PublishContext, doc: Document) -> bool:
    """Whether a document becomes `renamed` once its table has another name.

    One that is `renamed` already stays as it is, unless the file that it leads to is gone or another table's.
    """
    if doc.is_live or is_expired(context, doc):
        return doc.is_live
    return doc.state is DocumentState.DROPPED or (
        doc.state is DocumentState.RENAMED and _forwards_nowhere(context, doc)
    )


def _forwards_nowhere(context: PublishContext, doc: Document) -> bool:
    """Whether a document leads to a file beside it that is not the table's; of other places that is not known.

    A place that can't be read must not keep a table from being published whose name had another table before.
    """
    key = doc.moved_to.sfn_file_path if doc.moved_to is not None else ""
    if not key.startswith(tuple(table_files.layout.folder for table_files in context.existing)):
        return False
    target = parse_or_none(context.observations.file(key))
    return target is None or target.guid != doc.guid


def is_expired(context: PublishContext, doc: Document) -> bool:
    """Whether what speaks of a table that is gone has done so for long enough."""
    return doc.expires_at is not None and context.answer.answered_at >= doc.expires_at


def _candidates(context: PublishContext, uuid: str) -> list[Wakeup]:
    """Who may carry the table now. Who has a live file of it and knows is not woken: two names that were both dropped
    would wake one another without end.
    """
    renamed_to, others = context.job.pending.renamed_to, context.observations.other_tables_with(uuid, context.name)
    wakeups = [Wakeup(context.listed_name)] if context.listed_name is not None else []
    wakeups += [Wakeup(renamed_to)] if renamed_to is not None and renamed_to != context.name else []
    wakeups += [Wakeup(row.table, live.location) for row, live in others if row.table != renamed_to]
    return [wakeup for wakeup in wakeups if context.policy.table_filter.covers(wakeup.table)]
