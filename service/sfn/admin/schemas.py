"""What operators send and are answered, as JSON; the command line reads and writes the same records.

Times are RFC 3339, in UTC. Keys of an answer that this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sfn.domain.identifiers import JobKey, TableIdentifier, encode_identifier
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import DeadLetterStatus as LetterStatus
from sfn.sfnfile.naming import layout_location

if TYPE_CHECKING:
    from sfn.domain.events import UndecodableRequest
    from sfn.domain.jobs import TableState
    from sfn.inbox.model import AuditEntry, DeadLetter, TableStatus
    from sfn.inbox.model import LastEvent as Event
    from sfn.inbox.statistics import DropLimitState
    from sfn.worker.capacity import CircuitBreakerState
    from sfn.worker.sweep import SweepReport

MAX_BATCH: Final = 1_000
"""Letters of a page, or of a batch."""
MAX_ID: Final = 2**62
"""The largest id that is taken."""

ReasonText: TypeAlias = Annotated[DeadLetterReason | str, Field(union_mode="left_to_right")]
"""A `DeadLetterReason`, or the text of one that a newer service has."""


class AdminModel(BaseModel):
    """An object of an answer."""

    model_config = ConfigDict(frozen=True)


class TableOrCatalogModel(AdminModel):
    """A table, or a whole catalog: then without namespace and name."""

    catalog: str | None
    namespace: Sequence[str] | None
    name: str | None
    table: str | None = Field(description="levels and name, joined by dots")

    @staticmethod
    def key_fields(subject: JobKey | None) -> dict[str, object]:
        """Its values of a subject."""
        if isinstance(subject, TableIdentifier):
            parts = {"namespace": subject.namespace, "name": subject.name, "table": subject.dotted}
            return {"catalog": subject.catalog, **parts}
        catalog = subject.catalog if subject is not None else None
        return {"catalog": catalog, "namespace": None, "name": None, "table": None}


class DeadLetterModel(TableOrCatalogModel):
    """A dead letter."""

    id: int
    status: str
    reason: ReasonText
    sender: str | None
    detail: str
    cause: str = Field(description="what is wrong, without the table: letters of one outage have one cause")
    attempts: int
    opened_at: datetime
    changed_at: datetime
    actor: str | None = Field(description="who replayed or discarded it")

    @classmethod
    def from_letter(cls, letter: DeadLetter) -> DeadLetterModel:
        """The answer of a letter."""
        return cls.model_validate(_letter_fields(letter))


class UndecodableRequestModel(AdminModel):
    """A request that nobody understood."""

    path: str
    content_type: str | None
    size: int = Field(description="bytes of the whole body; at most the first 65,536 are kept")
    body: str


class DeadLetterDetails(DeadLetterModel):
    """A dead letter, with the request that it is about."""

    request: UndecodableRequestModel | None
    foreign_catalog_id: str | None = Field(
        description="the catalog_id of the file that keeps ours from the table's place now"
    )

    @classmethod
    def with_request(
        cls, letter: DeadLetter, event: UndecodableRequest | None, foreign_catalog_id: str | None
    ) -> DeadLetterDetails:
        """The answer of a letter, its request, and what its table's row knows."""
        request_model = None
        if event is not None:
            body = event.body.decode(errors="replace")
            request_model = UndecodableRequestModel(
                path=event.path, content_type=event.content_type, size=event.size, body=body
            )
        return cls.model_validate(
            {**_letter_fields(letter), "request": request_model, "foreign_catalog_id": foreign_catalog_id}
        )


class DeadLetterPage(AdminModel):
    """A page of dead letters, by id."""

    dead_letters: Sequence[DeadLetterModel]
    next: int | None = Field(description="`after` of the next page; null at the end")


class FailedReplay(AdminModel):
    """A letter that could not be replayed."""

    id: int
    why: str


class ReplayResult(AdminModel):
    """What became of a batch of replays."""

    replayed: int
    failed: Sequence[FailedReplay]
    skipped: Sequence[int] = Field(description="of the ids that were named, those that are no open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class DiscardResult(AdminModel):
    """What became of a batch of letters."""

    discarded: int
    skipped: Sequence[int] = Field(description="of the ids that were named, those that are no open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class AuditEntryModel(AdminModel):
    """An order that was carried out."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    count: int

    @classmethod
    def from_entry(cls, entry: AuditEntry) -> AuditEntryModel:
        """The answer of an entry."""
        return cls(
            id=entry.id, at=entry.at, actor=entry.actor, action=entry.action, target=entry.target, count=entry.count
        )


class AuditPage(AdminModel):
    """A page of the audit log, the newest first."""

    entries: Sequence[AuditEntryModel]
    next: int | None = Field(description="`before` of the next page; null at the end")


class DropLimitModel(AdminModel):
    """A catalog's brake."""

    limit_reached: bool = Field(description="it is on: it holds tables, or would hold the next that is dropped")
    on_hold: int = Field(description="tables that it holds")
    steps: int = Field(description="drops and steps back within the last hour")
    limit: int = Field(description="how many tables may be dropped within an hour")

    @classmethod
    def from_state(cls, state: DropLimitState, on_hold: int) -> DropLimitModel:
        """The answer of a brake."""
        return cls(limit_reached=state.limit_reached, on_hold=on_hold, steps=state.steps, limit=state.limit)


class DifferingTable(AdminModel):
    """A table that a sweep found to differ."""

    table: str
    kind: str


class SweepModel(AdminModel):
    """The sweep that runs, or the last one of this process."""

    state: str
    started_at: datetime
    ended_at: datetime | None
    tables: int = Field(description="looked at so far")
    known_tables: int = Field(description="known before: about as many as there are to look at")
    differences: Sequence[DifferingTable] = Field(description="the first 1,000")
    differences_total: int
    unlisted_namespaces: Sequence[str] = Field(
        description="namespaces that could not be listed: nothing in them counts as gone"
    )
    unlisted_reason: str | None = Field(description="why the first of them could not be listed")
    listing_failed: Sequence[str] = Field(
        description="those of them with a listing that failed; the others are forbidden"
    )
    failed_tables: Sequence[str] = Field(description="the first 1,000 tables that could not be looked at")
    error: str | None
    missing_tables: int = Field(
        default=0, description="tables with a live file that the catalog does not show any more"
    )
    previous: SweepModel | None = Field(default=None, description="while it runs, the sweep before it")

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.state == "running"

    @classmethod
    def from_report(cls, report: SweepReport) -> SweepModel:
        """The answer of a report."""
        return cls(
            state=report.phase.value,
            started_at=report.started_at,
            ended_at=report.ended_at,
            tables=report.tables,
            known_tables=report.known_tables,
            differences=[DifferingTable(table=table.dotted, kind=how.value) for table, how in report.differences],
            differences_total=report.difference_count,
            unlisted_namespaces=report.unlisted_namespaces,
            unlisted_reason=report.unlisted_reason,
            listing_failed=report.listing_failed,
            failed_tables=[table.dotted for table in report.failed_tables],
            error=report.error,
            missing_tables=report.missing_tables,
            previous=cls.from_report(report.previous) if report.previous is not None else None,
        )


class TableCountsModel(AdminModel):
    """How many rows of a catalog are in which state."""

    due: int
    scheduled: int
    retrying: int
    leased: int
    dead: int
    held: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.due + self.scheduled + self.retrying + self.leased + self.dead + self.held


class CatalogModel(AdminModel):
    """A catalog as a whole."""

    name: str
    type: str
    catalog_id: str | None = Field(description="null until the catalog was reached")
    foreign_catalog_id: str | None = Field(
        description="the catalog_id that its files were written for, where it is another: adopt them"
    )
    retired: bool
    live_tables: int = Field(description="tables that have a file which readers follow")
    tables: TableCountsModel
    oldest_due_at: datetime | None = Field(description="since when the table waits that has waited longest")
    drop_limit: DropLimitModel
    sweep: SweepModel | None
    open_intents: int = Field(description="commits through a gateway whose outcome is not known")
    oldest_intent_at: datetime | None = Field(description="when the oldest of them was made, or left unanswered")
    missing_tables: int = Field(
        default=0, description="tables with a live file that the catalog does not show, under whatever name"
    )
    missing_since: datetime | None = Field(default=None, description="when the first of them was first seen missing")

    @property
    def is_event_only(self) -> bool:
        """Whether nobody can ask it: it is never swept."""
        return self.type == "events"


class CircuitBreakerModel(AdminModel):
    """A breaker that is not closed."""

    scope: str
    name: str
    state: str
    open_until: datetime
    allowed_probes: int
    failing_since: datetime = Field(description="since when nothing has succeeded")
    error: str = Field(description="the last trouble")

    @classmethod
    def from_state(cls, breaker: CircuitBreakerState) -> CircuitBreakerModel:
        """The answer of a breaker."""
        state = "half-open" if breaker.allowed_probes else "open"
        return cls(
            scope=breaker.scope.value,
            name=breaker.name,
            state=state,
            open_until=breaker.open_until,
            allowed_probes=breaker.allowed_probes,
            failing_since=breaker.failing_since,
            error=breaker.error,
        )


class ServiceStatus(AdminModel):
    """The service as a whole."""

    version: str
    started_at: datetime
    ready: bool
    not_ready_reasons: Sequence[str]
    catalogs: Sequence[CatalogModel]
    breakers: Sequence[CircuitBreakerModel]
    dead_letters: dict[str, int] = Field(description="open ones by reason")
    roles: Sequence[str] = Field(default=(), description="what this process does of the service; empty for all of it")


class PublishedFileModel(AdminModel):
    """What a table's live file says."""

    metadata_location: str
    table_uuid: str | None
    location: str
    written_at: datetime


class PendingChangeModel(AdminModel):
    """What was told of a table and is not done with."""

    min_metadata_location: str | None
    drop: bool
    purge: bool
    renamed_to: str | None
    has_unprocessed: bool = Field(description="something was told that no publish has seen through")


class LastResultModel(AdminModel):
    """How the last look ended."""

    outcome: str
    why: str | None
    at: datetime


class LastEventModel(AdminModel):
    """The newest event that is still in the log."""

    sender: str
    event_id: str | None
    received_at: datetime
    body: str = Field(description="as it was received, its first 4 KiB; empty for one of the service's own")

    @classmethod
    def from_event(cls, event: Event) -> LastEventModel:
        """The answer of an event."""
        body = event.body.decode(errors="replace")
        return cls(sender=event.sender, event_id=event.event_id, received_at=event.received_at, body=body)


class UnpublishedReason(StrEnum):
    """Why a table has no live file, though nothing more is to be done for it.

    retired     its catalog retired
    excluded    `include` or `exclude` leaves it out
    left-alone  the catalog has it, and its own properties say that it gets no file
    dropped     the catalog has it no more, and its files say so until they expire
    spelling    the catalog lists the table under another spelling, which has the file
    missing     neither a table nor a file of it was found
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
        """Why; None where it has one, or was not looked at yet.

        Args:
            table: whose row it is.
            status: the table's row.
            is_retired: its catalog retired.
            is_covered: the catalog's settings do not leave it out.
        """
        table_state = status.table_state
        if table_state.live is not None or not (table_state.has_settled or table_state.misses):
            return None
        if is_retired:
            return cls.RETIRED
        if not is_covered:
            return cls.EXCLUDED
        if status.skip_reason is not None:
            return cls.LEFT_ALONE
        if table_state.listed_as not in {None, table}:
            return cls.SPELLING
        if table_state.misses:
            return cls.MISSING
        return cls.DROPPED if status.locations else None


class TableModel(AdminModel):
    """One table's whole story."""

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
    unpublished: UnpublishedReason | None = Field(description="why it has no live file, where that is as it should be")
    renamed_to: str | None = Field(description="the name that the table went on under, as its file says")
    listed_as: str | None = Field(
        default=None, description="the name that has the table's file, where this one is another spelling of that"
    )
    foreign_version_hint: str | None = Field(description="what a version hint says that is not ours and is left alone")
    foreign_catalog_id: str | None = Field(
        description="the catalog_id of the file that keeps ours from the table's place"
    )
    pending: PendingChangeModel
    locations: Sequence[str] = Field(description="where files of this name may lie")
    refresh_at: datetime | None
    last_result: LastResultModel | None
    last_event: LastEventModel | None
    dead_letters: Sequence[DeadLetterModel] = Field(description="the newest first")
    open_intents: int = Field(description="commits through a gateway whose outcome is not known")
    next_check_at: datetime | None = Field(description="when the catalog is asked for the next of them")

    @classmethod
    def from_status(
        cls, table: TableIdentifier, status: TableStatus, why: UnpublishedReason | None, letters: Sequence[DeadLetter]
    ) -> TableModel:
        """The answer of a table's row and its dead letters."""
        table_state, pending, last_result, last_event = (
            status.table_state,
            status.pending,
            status.last_result,
            status.last_event,
        )
        live = table_state.live
        return cls.model_validate(
            {
                **TableOrCatalogModel.key_fields(table),
                "state": status.state,
                "due_at": status.due_at,
                "not_before": status.not_before,
                "attempt": status.attempt,
                "failing_since": status.failing_since,
                "reason": status.reason,
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
                "locations": sorted({layout_location(site) for site in status.locations}),
                "refresh_at": table_state.refresh_at,
                "last_result": last_result
                and LastResultModel(outcome=last_result.outcome, why=last_result.why, at=last_result.at),
                "last_event": last_event and LastEventModel.from_event(last_event),
                "dead_letters": [DeadLetterModel.from_letter(letter) for letter in letters],
                "open_intents": status.open_intents.count if status.open_intents is not None else 0,
                "next_check_at": status.open_intents and status.open_intents.due_at,
            }
        )


class AdminRequest(BaseModel):
    """An order."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DeadLetterCriteria(AdminRequest):
    """Which letters are meant; what is missing does not matter. Times are RFC 3339 with an offset."""

    catalog: str | None = None
    table: str | None = Field(default=None, description="levels and name, joined by dots; %2E is a dot in one of them")
    reason: DeadLetterReason | None = None
    sender: str | None = Field(default=None, description="who sent the request that nobody understood")
    before: AwareDatetime | None = Field(default=None, description="opened earlier than this")
    since: AwareDatetime | None = Field(default=None, description="opened at this time or later")


class DeadLetterSearch(DeadLetterCriteria):
    """Which letters are listed."""

    status: LetterStatus | Literal["all"] = LetterStatus.OPEN
    after: int = Field(default=0, ge=0, le=MAX_ID, description="`next` of the page before")
    limit: int = Field(default=100, ge=1, le=MAX_BATCH)


class DeadLetterSelection(AdminRequest):
    """Which open letters are dealt with: those of these ids, or a batch of those that a filter leaves."""

    ids: Sequence[Annotated[int, Field(ge=0, le=MAX_ID)]] | None = Field(default=None, max_length=MAX_BATCH)
    filter: DeadLetterCriteria | None = None
    after: int = Field(default=0, ge=0, le=MAX_ID, description="`next` of the batch before; with a filter")
    limit: int = Field(default=MAX_BATCH, ge=1, le=MAX_BATCH)


class SweepRequest(AdminRequest):
    """Which catalogs are to be swept."""

    catalogs: Sequence[str] = Field(default=(), max_length=1_000, description="all, where none is named")


class RetireRequest(AdminRequest):
    """Whether a catalog retires, or comes back."""

    undo: bool = False


class AdoptRequest(AdminRequest):
    """Whose files are taken over."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    from_: Annotated[str, Field(alias="from", min_length=1, max_length=512)]
    tables: Sequence[str] | None = Field(
        default=None,
        max_length=1_000,
        description="identifiers such as a.b, a dot in a part as %2E; all tables of the catalog, without any",
    )
    force: bool = Field(default=False, description="also where the files are known to carry another catalog_id")


class SweepAccepted(AdminModel):
    """Sweeps that were asked for."""

    catalogs: Sequence[str]
    requested_at: datetime
    starts_at: dict[str, datetime] = Field(
        description="by catalog, when its sweep begins at the earliest; of one that is swept just now it is not known"
    )


class ReleasedTables(AdminModel):
    """How many tables a brake held."""

    released: int


class AffectedTables(AdminModel):
    """How many tables are looked at because of an order."""

    tables: int


def _letter_fields(letter: DeadLetter) -> dict[str, object]:
    return {
        **TableOrCatalogModel.key_fields(letter.subject),
        "id": letter.id,
        "status": letter.status.value,
        "reason": letter.reason,
        "sender": letter.sender,
        "detail": letter.detail,
        "cause": letter.cause,
        "attempts": letter.attempts,
        "opened_at": letter.opened_at,
        "changed_at": letter.changed_at,
        "actor": letter.actor,
    }


def _other_spelling(table: TableIdentifier, table_state: TableState) -> str | None:
    other = table_state.listed_as
    return encode_identifier(other.namespace, other.name) if other is not None and other != table else None
