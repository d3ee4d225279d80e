"""JSON models of the tables in the admin API: a list of them, and the state of one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sfn.admin.schemas import AdminModel, AdminRequest, DeadLetterModel, ReasonText, TableOrCatalogModel
from sfn.domain.identifiers import TableIdentifier, encode_identifier
from sfn.inbox.model import stat_state, waiting_since
from sfn.inbox.table_list import MAX_PAGE, TableOrder
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import layout_location

if TYPE_CHECKING:
    from sfn.domain.jobs import TableState
    from sfn.inbox.model import DeadLetter, Job, OutcomeRecord, TableStatus
    from sfn.inbox.model import LastEvent as Event
    from sfn.inbox.table_list import ListedTable
    from sfn.worker.catalog_now import CatalogNow


class PublishedFileModel(AdminModel):
    """The content of a table's live SFN file."""

    metadata_location: str
    table_uuid: str | None
    location: str
    written_at: datetime


class PendingChangeModel(AdminModel):
    """The change of a table that notifications report and that is not published yet."""

    min_metadata_location: str | None
    drop: bool
    purge: bool
    renamed_to: str | None
    has_unprocessed: bool = Field(description="true if a notification waits for a complete publish")


class LastResultModel(AdminModel):
    """The result of the last attempt."""

    outcome: str
    why: str | None
    at: datetime


class LastEventModel(AdminModel):
    """The newest event that is still in the log."""

    sender: str
    event_id: str | None
    received_at: datetime
    body: str = Field(description="first 4 KiB as received; empty for the service's own notifications")

    @classmethod
    def from_event(cls, event: Event) -> LastEventModel:
        body = event.body.decode(errors="replace")
        return cls(sender=event.sender, event_id=event.event_id, received_at=event.received_at, body=body)


class UnpublishedReason(StrEnum):
    """Reason why a table has no live file although nothing is left to do.

    retired     the catalog is retired
    excluded    `include` or `exclude` leaves the table out
    left-alone  the catalog has the table, and the properties of the table exclude it
    dropped     the catalog does not have the table any more, and its files say so until they expire
    spelling    the catalog lists the table under another spelling, which has the file
    missing     neither the table nor a file of it was found
    """

    RETIRED = "retired"
    EXCLUDED = "excluded"
    LEFT_ALONE = "left-alone"
    DROPPED = "dropped"
    SPELLING = "spelling"
    MISSING = "missing"

    @classmethod
    def for_table(
        cls, table: TableIdentifier, status: TableStatus, *, is_retired: bool, is_covered: bool
    ) -> UnpublishedReason | None:
        """Return the reason; None if the table has a live file, or was not checked yet.

        Args:
            table: the table.
            status: the state of its job.
            is_retired: True if the catalog is retired.
            is_covered: True if the settings of the catalog include the table.
        """
        job, table_state = status.job, status.job.table_state
        if table_state.live is not None or not (table_state.has_settled or table_state.misses):
            return None
        if is_retired:
            return cls.RETIRED
        if not is_covered:
            return cls.EXCLUDED
        if job.cache.table is not None and job.cache.table.skip_reason is not None:
            return cls.LEFT_ALONE
        if table_state.listed_as not in {None, table}:
            return cls.SPELLING
        if table_state.misses:
            return cls.MISSING
        return cls.DROPPED if job.locations else None


class OutcomeModel(AdminModel):
    """One attempt in the history of a table."""

    outcome: str
    why: str | None
    claimed_at: datetime | None = Field(description="when the attempt began")
    ended_at: datetime
    attempt: int = Field(description="attempts since the last success, with this one")
    times: int = Field(
        default=1, description="how often it came in a row; equal failures are one entry, with the last one's times"
    )
    first_ended_at: datetime | None = Field(default=None, description="when the first of them ended; null for one")

    @classmethod
    def from_record(cls, record: OutcomeRecord) -> OutcomeModel:
        return cls(
            outcome=record.outcome,
            why=record.why,
            claimed_at=record.claimed_at,
            ended_at=record.at,
            attempt=record.attempt,
            times=record.times,
            first_ended_at=record.first_at if record.times > 1 else None,
        )


def _is_dropped(job: Job) -> bool:
    """Return whether the files of a table say that it is dropped or renamed.

    A table that was given up, or that waits for its first publish, has places too, because its files may be there.
    """
    is_done = stat_state(job) == "scheduled" and job.table_state.has_settled
    return is_done and job.table_state.live is None and bool(job.locations)


class ListedTableModel(AdminModel):
    """A table in a list."""

    catalog: str
    namespace: Sequence[str]
    name: str
    table: str = Field(description="levels and name, joined by dots")
    state: str = Field(description="due, scheduled, retrying, leased, dead or held")
    late: bool = Field(description="true if it waits longer than `telemetry.late_after`")
    waiting_since: datetime | None = Field(
        description="since when its files may be behind the catalog; null if they are not known to be"
    )
    cause: str | None = Field(description="why it waits, fails, or was given up; null if all is well")
    next_attempt_at: datetime | None = Field(description="null for a table that waits for an operator or an event")
    attempt: int
    file: Literal["live", "dropped", "none"] = Field(
        default="live", description="live: readers follow it; dropped: it says that the table is dropped or renamed"
    )
    metadata_location: str | None = Field(description="the metadata location in its file; null without a live file")
    written_at: datetime | None
    dead_letter: int | None = Field(description="id of its open dead letter")

    @classmethod
    def from_listed(cls, one: ListedTable, now: datetime, late_after: timedelta, cause: str | None) -> ListedTableModel:
        """Return the model of a listed table; `cause` says why it waits."""
        job, since = one.job, waiting_since(one.job)
        live = job.table_state.live
        return cls.model_validate(
            {
                **TableOrCatalogModel.key_fields(job.subject),
                "state": stat_state(job),
                "late": since is not None and since <= now - late_after,
                "waiting_since": since,
                "cause": cause,
                "next_attempt_at": job.due_at if job.state == "queued" else None,
                "attempt": job.attempt,
                "file": "live" if live is not None else "dropped" if _is_dropped(job) else "none",
                "metadata_location": live.metadata_location if live is not None else None,
                "written_at": live.written_at if live is not None else None,
                "dead_letter": one.letter.id if one.letter is not None else None,
            }
        )


class CatalogNowModel(AdminModel):
    """The answer of the catalog, at the time of the request."""

    state: Literal["found", "not-found", "staged", "unanswered", "event-only"] = Field(
        description="found: with a metadata file; staged: the table has no metadata file yet; unanswered: see `error`"
    )
    metadata_location: str | None
    table_uuid: str | None
    answered_at: datetime | None
    agrees: bool | None = Field(
        description="true if the SFN file names the same metadata file, or if there is neither; null without an answer"
    )
    error: str | None = Field(description="why there is no answer")

    @classmethod
    def from_answer(cls, answer: CatalogNow, published: str | None) -> CatalogNowModel:
        """Return the model of an answer; `published` is the metadata location in the table's SFN file, if any."""
        location, is_answered = answer.metadata_location, answer.answered_at is not None
        is_same = (location and canonical(location)) == (published and canonical(published))
        return cls.model_validate(
            {
                "state": answer.state.value,
                "metadata_location": location,
                "table_uuid": answer.table_uuid,
                "answered_at": answer.answered_at,
                "agrees": is_same if is_answered else None,
                "error": answer.error or None,
            }
        )


class TableModel(AdminModel):
    """The state of a table."""

    catalog: str
    namespace: Sequence[str]
    name: str
    table: str = Field(description="levels and name, joined by dots")
    state: str
    due_at: datetime
    not_before: datetime | None
    attempt: int
    failing_since: datetime | None
    reason: ReasonText | None
    on_hold: bool
    limit_overridden: bool
    published: PublishedFileModel | None
    unpublished: UnpublishedReason | None = Field(
        description="why the table has no live file although nothing is left to do"
    )
    renamed_to: str | None = Field(description="the table's new name, by its file")
    listed_as: str | None = Field(
        default=None, description="the spelling of this name that the catalog lists, and that has the table's file"
    )
    foreign_version_hint: str | None = Field(
        description="content of a version hint that the listener did not write and does not change"
    )
    foreign_catalog_id: str | None = Field(description="catalog_id of the foreign file in the table's place")
    pending: PendingChangeModel
    locations: Sequence[str] = Field(description="locations where files of this name may exist")
    refresh_at: datetime | None
    last_result: LastResultModel | None
    last_event: LastEventModel | None
    unapplied_events: int = Field(
        default=0, description="accepted events of the table that are not part of this state yet: at most for a second"
    )
    dead_letters: Sequence[DeadLetterModel] = Field(description="newest first")
    late: bool = Field(default=False, description="true if it waits longer than `telemetry.late_after`")
    waiting_since: datetime | None = Field(
        default=None, description="since when its files may be behind the catalog; null if they are not known to be"
    )
    cause: str | None = Field(default=None, description="why it waits, fails, or was given up; null if all is well")
    outcomes: Sequence[OutcomeModel] = Field(default=[], description="the last attempts, newest first")
    open_intents: int = Field(description="gateway commits with an unknown outcome")
    next_check_at: datetime | None = Field(description="when the catalog is queried about the next of them")
    catalog_now: CatalogNowModel | None = Field(
        default=None, description="what the catalog answers now; null unless `ask_catalog` is true"
    )

    @classmethod
    def from_status(
        cls,
        table: TableIdentifier,
        status: TableStatus,
        why: UnpublishedReason | None,
        letters: Sequence[DeadLetter],
        listed: ListedTableModel,
        outcomes: Sequence[OutcomeRecord] = (),
    ) -> TableModel:
        """Return the model of a table with its dead letters, its entry in a list and its last outcomes."""
        job, last_event = status.job, status.last_event
        table_state, pending, last_result = job.table_state, job.pending, job.last_result
        live = table_state.live
        return cls.model_validate(
            {
                **TableOrCatalogModel.key_fields(table),
                "state": job.state.value,
                "due_at": job.due_at,
                "not_before": job.not_before,
                "attempt": job.attempt,
                "failing_since": job.failing_since,
                "reason": job.reason,
                "on_hold": table_state.on_hold,
                "limit_overridden": table_state.limit_overridden,
                "published": live
                and PublishedFileModel(
                    metadata_location=live.metadata_location,
                    table_uuid=live.uuid,
                    location=live.location,
                    written_at=live.written_at,
                ),
                "unpublished": why,
                "renamed_to": table_state.renamed_to.dotted if table_state.renamed_to is not None else None,
                "listed_as": _other_spelling(table, table_state),
                "foreign_version_hint": table_state.foreign_version_hint,
                "foreign_catalog_id": table_state.foreign_catalog_id,
                "pending": PendingChangeModel(
                    min_metadata_location=pending.min_metadata_location,
                    drop=pending.drop,
                    purge=pending.purge,
                    renamed_to=pending.renamed_to.dotted if pending.renamed_to is not None else None,
                    has_unprocessed=status.has_unprocessed,
                ),
                "locations": sorted({layout_location(site) for site in job.locations}),
                "refresh_at": table_state.refresh_at,
                "last_result": last_result
                and LastResultModel(outcome=last_result.outcome, why=last_result.why, at=last_result.at),
                "last_event": last_event and LastEventModel.from_event(last_event),
                "unapplied_events": status.unapplied,
                "dead_letters": [DeadLetterModel.from_letter(letter) for letter in letters],
                "late": listed.late,
                "waiting_since": listed.waiting_since,
                "cause": listed.cause,
                "outcomes": [OutcomeModel.from_record(one) for one in outcomes],
                "open_intents": status.open_intents.count if status.open_intents is not None else 0,
                "next_check_at": status.open_intents and status.open_intents.due_at,
            }
        )


class TableSearch(AdminRequest):
    """Which tables a list has. In a glob `*` matches within a level and `**` across levels."""

    catalog: Sequence[str] = Field(default=(), description="only of these catalogs; none for all")
    namespace: str | None = Field(default=None, description="glob of namespaces, such as `sales` or `sales.*`")
    table: str | None = Field(default=None, description="glob of levels and name, such as `sales.*_raw`")
    state: Sequence[Literal["due", "scheduled", "retrying", "leased", "dead", "held"]] = Field(
        default=(), description="only in these states"
    )
    late: bool = Field(default=False, description="only those that wait too long, the longest wait first")
    sort: TableOrder = Field(default=TableOrder.NAME, description="by `lag`: only tables that wait, the longest first")
    limit: int = Field(default=100, ge=1, le=MAX_PAGE)
    after: str | None = Field(default=None, max_length=8_000, description="`next` of the page before")


class CheckAccepted(AdminModel):
    """A check of a table that is queued."""

    table: str = Field(description="levels and name, joined by dots")
    requested_at: datetime


class TableListPage(AdminModel):
    """A page of a list of tables."""

    tables: Sequence[ListedTableModel]
    next: str | None = Field(
        description="`after` of the next page; null at the end. A page may have fewer tables than its limit, even none"
    )


def _other_spelling(table: TableIdentifier, table_state: TableState) -> str | None:
    other = table_state.listed_as
    return encode_identifier(other.namespace, other.name) if other is not None and other != table else None
