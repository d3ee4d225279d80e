"""The choice of the name that has a table's files, if events spell the name in another way than the catalog.

Many catalogs accept names in any case. The job of a spelling that the catalog does not list has no files. It wakes the
job of the listed name. Two tables are never taken for one: the catalog must answer the same table under both names,
list one of them and not the other.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec import structs

from sfn.catalogs.spelling import may_be_same_name
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import LeasedJob, PendingChange, PublishResult, Rescheduled, Wakeup
from sfn.publish.context import PlanBuilder, PublishContext
from sfn.publish.policy import Policy
from sfn.publish.queries import Observations

RELIST_AFTER: Final = timedelta(seconds=2)
"""The delay before a failed listing is requested again; longer than the failure is cached."""


def find_listed_name(
    job: LeasedJob, observations: Observations, policy: Policy, name: TableIdentifier, table: Table, *, refresh: bool
) -> TableIdentifier | None:
    """Return the name under which the catalog lists a table.

    Args:
        job, observations, policy: the arguments of the decision.
        name: the name of the job.
        table: the catalog's answer for that name.
        refresh: a refresh is due, so the listing is requested again.

    Returns:
        The job's name, or the one other spelling that is listed and has the same table; None without either.
    """
    table_state = job.table_state
    is_known = table_state.listed_as == name and table_state.live is not None and table_state.live.uuid == table.uuid
    if policy.event_only or (is_known and job.pending.renamed_to is None and not refresh):
        return table_state.listed_as
    listed = match_listed_name(observations, policy, name, table, fresh=table_state.live is None)
    if listed is None and table_state.listed_as != name:
        return _name_by_files(job, observations, policy, name, table)
    return listed


def match_listed_name(
    observations: Observations, policy: Policy, name: TableIdentifier, table: Table, *, fresh: bool
) -> TableIdentifier | None:
    """Return the name under which the catalog lists the table that it answers for a name, see `find_listed_name`.

    Args:
        fresh: list again if the cached listing has no such name.
    """
    alike = observations.listed_spellings(name, fresh=fresh)
    if name in alike:
        return name
    same = [
        other for other in alike if policy.table_filter.covers(other) and _is_same_table(observations, other, table)
    ]
    return same[0] if len(same) == 1 else None


def recheck_failed_listing(job: LeasedJob, observations: Observations, name: TableIdentifier) -> Rescheduled | None:
    """Check a new name once more if its listing failed; otherwise two new spellings would both write files.

    The check happens only once, whatever events arrive meanwhile.
    """
    if name not in observations.failed_listings or job.table_state.has_settled or job.table_state.live is not None:
        return None
    why = "the namespace could not be listed: the name may be another spelling of one that has the SFN files"
    return Rescheduled(
        observations.answer_for(name).answered_at + RELIST_AFTER,
        why,
        job.pending,
        PublishResult(structs.replace(job.table_state, has_settled=True)),
    )


def _name_by_files(
    job: LeasedJob, observations: Observations, policy: Policy, name: TableIdentifier, table: Table
) -> TableIdentifier | None:
    """Return the name that has the table's files by the inbox, if no listing is available.

    If two names both wrote files, readers of the directory would see an older answer after a newer one. If both names
    have files, the first one in alphabetical order keeps them. If both gave way to each other, no file would remain.
    """
    live, before = job.table_state.live, job.table_state.listed_as
    has_file = live is not None and live.uuid == table.uuid
    others = observations.other_tables_with(table.uuid, name) if table.uuid is not None else []
    alike = [entry.table for entry, _ in others if may_be_same_name(entry.table, name)]
    known = [other for other in alike if not has_file or str(other) < str(name)]
    # A name that was listed once and has no file yet may give way to this one meanwhile.
    if before is not None and not has_file and (table.uuid is None or str(before) < str(name)):
        known.append(before)
    for other in known:
        if policy.table_filter.covers(other) and _is_same_table(observations, other, table):
            return other
    return None


def _is_same_table(observations: Observations, other: TableIdentifier, table: Table) -> bool:
    found = observations.answer_for(other).found
    if not isinstance(found, Table) or found.skip_reason is not None:
        return False
    if table.uuid is None and found.metadata_location != table.metadata_location:
        return False
    return (found.uuid, found.location) == (table.uuid, table.location)


def wake_listed_name(context: PublishContext, builder: PlanBuilder) -> None:
    """Wake the job of the listed name with the event of another spelling.

    The wakeup carries the catalog's metadata location from here, so that an older answer there is checked again.
    Without an event there is no wakeup, because the listed name may have woken this job. A relayed event is not sent
    back.
    """
    pending, found = context.job.pending, context.answer.found
    is_news = (
        pending != PendingChange() and not pending.is_relayed
    ) or context.job.table_state.listed_as != context.listed_as
    if context.listed_name is not None and is_news:
        floor = found.metadata_location if isinstance(found, Table) else pending.min_metadata_location
        wakeup = Wakeup(
            context.listed_name,
            min_metadata_location=floor,
            drop=pending.drop,
            purge=pending.purge,
            renamed_to=pending.renamed_to,
        )
        builder.wake([wakeup])
