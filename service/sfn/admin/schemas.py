"""JSON models of the admin API, shared with the command line.

Times are RFC 3339, in UTC. Unknown keys of an answer are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sfn.domain.identifiers import JobKey, TableIdentifier, encode_identifier
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import DeadLetterStatus as LetterStatus

if TYPE_CHECKING:
    from sfn.domain.events import UndecodableRequest
    from sfn.http.recent_requests import SenderActivity
    from sfn.inbox import DropLimitState
    from sfn.inbox.model import AuditEntry, DeadLetter
    from sfn.worker.capacity import CircuitBreakerState
    from sfn.worker.lag import LagSummary
    from sfn.worker.sweep import SweepReport

MAX_BATCH: Final = 1_000
"""Most letters of a page or a batch."""
MAX_ID: Final = 2**62
"""Largest accepted id."""

ReasonText: TypeAlias = Annotated[DeadLetterReason | str, Field(union_mode="left_to_right")]
"""A `DeadLetterReason`, or the text of a reason that a newer service has."""


class AdminModel(BaseModel):
    """Base class of answers."""

    model_config = ConfigDict(frozen=True)


class TableOrCatalogModel(AdminModel):
    """A table, or a whole catalog, which has no namespace and name."""

    catalog: str | None
    namespace: Sequence[str] | None
    name: str | None
    table: str | None = Field(description="levels and name, joined by dots")

    @staticmethod
    def key_fields(subject: JobKey | None) -> dict[str, object]:
        """Return the values of these fields for a subject."""
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
    cause: str = Field(description="the problem without the table's name: letters of one outage share it")
    attempts: int
    opened_at: datetime
    changed_at: datetime
    actor: str | None = Field(description="operator who replayed or discarded the letter")

    @classmethod
    def from_letter(cls, letter: DeadLetter) -> DeadLetterModel:
        return cls.model_validate(_letter_fields(letter))


class UndecodableRequestModel(AdminModel):
    """An undecodable request."""

    path: str
    content_type: str | None
    size: int = Field(description="bytes of the whole body; at most the first 65,536 are stored")
    body: str


class DeadLetterDetails(DeadLetterModel):
    """A dead letter with its undecodable request."""

    request: UndecodableRequestModel | None
    foreign_catalog_id: str | None = Field(description="catalog_id of the foreign file in the table's place now")

    @classmethod
    def with_request(
        cls, letter: DeadLetter, event: UndecodableRequest | None, foreign_catalog_id: str | None
    ) -> DeadLetterDetails:
        """Return the model of a letter, its request, and the owner of the file in its table's place."""
        request_model = None
        if event is not None:
            body = event.body.decode(errors="replace")
            request_model = UndecodableRequestModel(
                path=event.path, content_type=event.content_type, size=event.size, body=body
            )
        return cls.model_validate(
            {**_letter_fields(letter), "request": request_model, "foreign_catalog_id": foreign_catalog_id}
        )


class DeadLetterGroup(AdminModel):
    """Open dead letters with the same reason."""

    reason: ReasonText
    count: int
    since: datetime = Field(description="when the oldest of them was opened")
    cause: str = Field(description="the cause of the newest of them")
    newest: int | None = Field(default=None, description="id of the newest of them")
    table: str | None = Field(default=None, description="its table, as `catalog:table`; null if it is not about one")
    detail: str | None = Field(default=None, description="its detail")


class DeadLetterCause(AdminModel):
    """The dead letters with one reason and one cause."""

    reason: ReasonText
    cause: str
    count: int
    opened_at: datetime = Field(description="when the oldest of them was opened")
    newest_at: datetime = Field(description="when the newest of them was opened")
    example: int = Field(description="id of the oldest of them")
    about: str | None = Field(description="the table or catalog of the example, or the sender of its request")
    remedy: str = Field(description="what to do about the example")


class DeadLetterCauses(AdminModel):
    """Dead letters by cause, the most frequent cause first."""

    causes: Sequence[DeadLetterCause]
    letters: int = Field(description="number of counted letters")
    has_more: bool = Field(description="true if older letters match, too: only the newest 20,000 are read")


class DeadLetterPage(AdminModel):
    """A page of dead letters, by id; with a cause in the search it may be short, and even empty, before the end."""

    dead_letters: Sequence[DeadLetterModel]
    next: int | None = Field(description="`after` of the next page; null at the end")


class FailedReplay(AdminModel):
    """A letter that could not be replayed."""

    id: int
    why: str


class ReplayResult(AdminModel):
    """The result of a batch of replays."""

    replayed: int
    failed: Sequence[FailedReplay]
    skipped: Sequence[int] = Field(description="requested ids that are not open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class DiscardResult(AdminModel):
    """The result of a batch of discarded letters."""

    discarded: int
    skipped: Sequence[int] = Field(description="requested ids that are not open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class AuditEntryModel(AdminModel):
    """A command of an operator that was carried out."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    count: int

    @classmethod
    def from_entry(cls, entry: AuditEntry) -> AuditEntryModel:
        return cls(
            id=entry.id, at=entry.at, actor=entry.actor, action=entry.action, target=entry.target, count=entry.count
        )


class AuditPage(AdminModel):
    """A page of the audit log, newest first."""

    entries: Sequence[AuditEntryModel]
    next: int | None = Field(description="`before` of the next page; null at the end")


class DropLimitModel(AdminModel):
    """The drop limit of a catalog."""

    limit_reached: bool = Field(description="true if the limit holds tables, or would hold the next dropped table")
    on_hold: int = Field(description="held tables")
    held_since: datetime | None = Field(default=None, description="when the first of them was held")
    steps: int = Field(description="drops and rollbacks within the last hour")
    limit: int = Field(description="tables that may be dropped within an hour")

    @classmethod
    def from_state(cls, state: DropLimitState, on_hold: int, held_since: datetime | None) -> DropLimitModel:
        return cls(
            limit_reached=state.limit_reached,
            on_hold=on_hold,
            held_since=held_since,
            steps=state.steps,
            limit=state.limit,
        )


class PassedStepModel(AdminModel):
    """A drop or a rollback that the drop limit let pass."""

    table: str
    at: datetime
    kind: Literal["drop", "rollback"]


class DropLimitDetails(AdminModel):
    """What a drop limit let pass within the last hour, and what it holds."""

    passed: Sequence[PassedStepModel] = Field(description="oldest first, at most 1,000")
    passed_total: int
    held: int = Field(description="tables that it holds: `/tables?state=held` lists them")
    held_since: datetime | None = Field(description="when the first of them was held")
    limit: int = Field(description="tables that may be dropped within an hour")


class DifferingTable(AdminModel):
    """A table that differs from its published state."""

    table: str = Field(description="levels and name, joined by dots, with %2E for a dot in a part")
    kind: str = Field(description="missing, behind, ahead, other, hint-behind, …, absent or renamed")
    detail: str = Field(default="", description="what differs, for people")
    held: bool = Field(default=False, description="true if the drop limit holds the table")


class SweepModel(AdminModel):
    """The running sweep of a catalog, or the last one of this process."""

    state: str
    started_at: datetime
    ended_at: datetime | None
    thorough: bool | None = Field(
        default=None, description="true if the sweep reads the SFN files, as `reconcile` does; false: it does not"
    )
    tables: int = Field(description="tables checked so far")
    known_tables: int = Field(description="tables known before the sweep, about as many as there are to check")
    differences: Sequence[DifferingTable] = Field(description="the first 1,000")
    differences_total: int
    unlisted_namespaces: Sequence[str] = Field(
        description="namespaces that could not be listed: no table in them counts as missing"
    )
    unlisted_reason: str | None = Field(description="why the first of them could not be listed")
    listing_failed: Sequence[str] = Field(
        description="unlisted namespaces with a failed listing; for the others the permission is missing"
    )
    failed_tables: Sequence[str] = Field(description="the first 1,000 tables that could not be checked")
    failed_reason: str | None = Field(default=None, description="why the first of them could not be checked")
    error: str | None
    missing_tables: int = Field(
        default=0, description="tables with a live file that the catalog does not show any more"
    )
    previous: SweepModel | None = Field(default=None, description="the sweep before, while this one runs")

    @property
    def is_running(self) -> bool:
        """True while the sweep runs."""
        return self.state == "running"

    @classmethod
    def from_report(cls, report: SweepReport) -> SweepModel:
        return cls(
            state=report.phase.value,
            started_at=report.started_at,
            ended_at=report.ended_at,
            thorough=report.is_thorough,
            tables=report.tables,
            known_tables=report.known_tables,
            differences=[
                DifferingTable(
                    table=encode_identifier(one.table.namespace, one.table.name),
                    kind=one.kind.value,
                    detail=one.detail,
                    held=one.table in report.held,
                )
                for one in report.differences
            ],
            differences_total=report.difference_count,
            unlisted_namespaces=report.unlisted_namespaces,
            unlisted_reason=report.unlisted_reason,
            listing_failed=report.listing_failed,
            failed_tables=[table.dotted for table in report.failed_tables],
            failed_reason=report.failed_reason,
            error=report.error,
            missing_tables=report.missing_tables,
            previous=cls.from_report(report.previous) if report.previous is not None else None,
        )


class TableCountsModel(AdminModel):
    """Number of tables of a catalog, by the state of their jobs."""

    due: int
    scheduled: int
    retrying: int
    leased: int
    dead: int
    held: int

    @property
    def total(self) -> int:
        """The number of all tables."""
        return self.due + self.scheduled + self.retrying + self.leased + self.dead + self.held


class LagModel(AdminModel):
    """How long after their commits changes were published, over the last hour, by this process. In seconds."""

    count: int = Field(description="number of publishes")
    p50: float
    p95: float
    worst: float

    @classmethod
    def from_summary(cls, lag: LagSummary) -> LagModel:
        return cls(count=lag.count, p50=round(lag.p50, 3), p95=round(lag.p95, 3), worst=round(lag.worst, 3))


class CatalogModel(AdminModel):
    """The state of a catalog."""

    name: str
    type: str
    catalog_id: str | None = Field(description="null until the catalog was reached")
    foreign_catalog_id: str | None = Field(
        description="other catalog_id for which the files were written; adopt the files"
    )
    answered_at: datetime | None = Field(
        default=None, description="last answer to this process; null before the first, and for an event-only catalog"
    )
    unanswered_since: datetime | None = Field(
        default=None, description="since when it has not answered this process; null if it answers"
    )
    error: str | None = Field(default=None, description="why its last answer failed")
    retired: bool
    live_tables: int = Field(description="tables with an SFN file that readers follow")
    tables: TableCountsModel
    lag: LagModel | None = Field(default=None, description="null if this process published nothing within the hour")
    late_tables: int = Field(
        default=0, description="tables that wait longer than `telemetry.late_after`; held drops are not among them"
    )
    oldest_due_at: datetime | None = Field(description="start of the longest wait of a table")
    drop_limit: DropLimitModel
    sweep: SweepModel | None
    open_intents: int = Field(description="gateway commits with an unknown outcome")
    oldest_intent_at: datetime | None = Field(description="when the oldest of them was made, or became unresolved")
    missing_tables: int = Field(
        default=0, description="tables with a live file that the catalog does not show under any name"
    )
    missing_since: datetime | None = Field(default=None, description="when the first of them was found missing")
    first_sweep_pending: bool = Field(
        default=False, description="true until a sweep has ended: tables of the catalog may not be known yet"
    )

    @property
    def is_event_only(self) -> bool:
        """True if the catalog cannot be queried and is never swept."""
        return self.type == "events"


class CircuitBreakerModel(AdminModel):
    """A circuit breaker that is not closed."""

    scope: str
    name: str
    state: str
    open_until: datetime
    allowed_probes: int
    failing: bool = Field(description="true until an attempt succeeds; a half-open breaker may be over its outage")
    failing_since: datetime = Field(description="start of the outage")
    error: str = Field(description="the last error")

    @classmethod
    def from_state(cls, breaker: CircuitBreakerState) -> CircuitBreakerModel:
        state = "half-open" if breaker.allowed_probes else "open"
        return cls(
            scope=breaker.scope.value,
            name=breaker.name,
            state=state,
            open_until=breaker.open_until,
            allowed_probes=breaker.allowed_probes,
            failing=breaker.is_failing,
            failing_since=breaker.failing_since,
            error=breaker.error,
        )


class StoreModel(AdminModel):
    """A configured store."""

    name: str
    prefix: str
    failing_since: datetime | None = Field(default=None, description="start of its outage; null if it has none")
    error: str | None = None


class GatewayModel(AdminModel):
    """A configured gateway."""

    name: str
    catalogs: Sequence[str] = Field(description="the catalogs behind it")
    open_intents: int = Field(default=0, description="commits through it with an unknown outcome")


class PullSourceModel(AdminModel):
    """A configured pull source, as its process sees it."""

    name: str
    connected: bool
    unavailable_since: datetime | None = Field(default=None, description="start of its outage; null if it has none")
    error: str | None = None


class ProcessModel(AdminModel):
    """A process that shares the inbox."""

    id: str = Field(description="another one after each start")
    host: str
    pid: int
    version: str
    roles: Sequence[str] = Field(description="empty for all roles")
    started_at: datetime
    seen_at: datetime = Field(description="its last report, by its own clock")
    ready: bool
    alive: bool = Field(default=True, description="false if it has reported nothing for 30 seconds")

    @property
    def name(self) -> str:
        """Host and process id."""
        return f"{self.host}:{self.pid}"

    def has_role(self, role: str) -> bool:
        """Return whether the process has a role."""
        return not self.roles or role in self.roles


class SenderModel(AdminModel):
    """The last requests of a sender."""

    name: str
    accepted_at: datetime | None = Field(description="last accepted request since the start of a process")
    client: str | None = Field(description="address of that request")
    refused_at: datetime | None = Field(description="last refused request after which it was identified")
    status: int | None = Field(description="HTTP status of that refusal")
    reason: str | None = Field(description="reason of that refusal")

    @classmethod
    def from_activity(cls, name: str, activity: SenderActivity) -> SenderModel:
        accepted, refused = activity.accepted, activity.refused
        return cls(
            name=name,
            accepted_at=accepted.at if accepted is not None else None,
            client=accepted.client if accepted is not None else None,
            refused_at=refused.at if refused is not None else None,
            status=refused.status if refused is not None else None,
            reason=refused.reason if refused is not None else None,
        )


class UnauthorizedClientModel(AdminModel):
    """An address with repeated requests that were answered with 401, the last within the last 10 minutes."""

    client: str | None
    count: int
    since: datetime
    last_at: datetime
    senders: Sequence[str] = Field(description="senders with their last accepted request from this address")
    reason: str = Field(default="", description="why the last of them was refused")


class ServiceStatus(AdminModel):
    """The state of the service."""

    version: str
    started_at: datetime
    ready: bool
    not_ready_reasons: Sequence[str]
    catalogs: Sequence[CatalogModel]
    breakers: Sequence[CircuitBreakerModel]
    dead_letters: dict[str, int] = Field(description="open dead letters, by reason")
    roles: Sequence[str] = Field(default=[], description="roles of this process; empty for all roles")
    stores: Sequence[StoreModel] = []
    gateways: Sequence[GatewayModel] = []
    pull_sources: Sequence[PullSourceModel] = Field(default=[], description="those of all processes")
    processes: Sequence[ProcessModel] = Field(
        default=[], description="this process first, then the others that share its inbox"
    )
    senders: Sequence[SenderModel] = Field(default=[], description="senders and pull sources")
    unauthorized: Sequence[UnauthorizedClientModel] = Field(
        default=[], description="clients that are refused, because their tokens or signatures are wrong"
    )


class AdminRequest(BaseModel):
    """Base class of request bodies."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DeadLetterCriteria(AdminRequest):
    """A filter of dead letters; missing keys match everything. Times are RFC 3339 with an offset."""

    catalog: str | None = None
    table: str | None = Field(default=None, description="levels and name, joined by dots, with %2E for a dot in a part")
    reason: DeadLetterReason | None = None
    sender: str | None = Field(default=None, description="sender of the undecodable request")
    before: AwareDatetime | None = Field(default=None, description="opened earlier than this")
    since: AwareDatetime | None = Field(default=None, description="opened at this time or later")
    cause: str | None = Field(default=None, description="the whole `cause` of the letters")
    cause_contains: str | None = Field(default=None, description="a part of their cause, in upper or lower case")

    @property
    def names_cause(self) -> bool:
        """True if it selects letters by their cause."""
        return self.cause is not None or self.cause_contains is not None

    def matches_cause(self, cause: str) -> bool:
        """Return whether letters with a cause match; the inbox checks everything else."""
        is_whole = self.cause is None or cause == self.cause
        return is_whole and (self.cause_contains is None or self.cause_contains.casefold() in cause.casefold())


class DeadLetterCauseSearch(DeadLetterCriteria):
    """The dead letters that are counted by cause."""

    status: LetterStatus | Literal["all"] = LetterStatus.OPEN


class DeadLetterSearch(DeadLetterCauseSearch):
    """A page of a search for dead letters."""

    after: int = Field(default=0, ge=0, le=MAX_ID, description="`next` of the page before")
    limit: int = Field(default=100, ge=1, le=MAX_BATCH)


class DeadLetterSelection(AdminRequest):
    """A selection of open letters: by id, or a batch of those that match a filter."""

    ids: Sequence[Annotated[int, Field(ge=0, le=MAX_ID)]] | None = Field(default=None, max_length=MAX_BATCH)
    filter: DeadLetterCriteria | None = None
    after: int = Field(default=0, ge=0, le=MAX_ID, description="`next` of the batch before; with a filter")
    limit: int = Field(default=MAX_BATCH, ge=1, le=MAX_BATCH)


class SweepRequest(AdminRequest):
    """A request to sweep catalogs."""

    catalogs: Sequence[str] = Field(default=(), max_length=1_000, description="names of catalogs; empty for all")


class RetireRequest(AdminRequest):
    """A request to retire a catalog, or to undo that."""

    undo: bool = False


class AdoptRequest(AdminRequest):
    """A request to adopt files of another `catalog_id`."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    from_: Annotated[str, Field(alias="from", min_length=1, max_length=512)]
    tables: Sequence[str] | None = Field(
        default=None,
        max_length=1_000,
        description="identifiers such as a.b, with %2E for a dot in a part; null for all tables of the catalog",
    )
    force: bool = Field(default=False, description="adopt also files that are known to carry another catalog_id")


class SweepAccepted(AdminModel):
    """Scheduled sweeps."""

    catalogs: Sequence[str]
    requested_at: datetime
    starts_at: dict[str, datetime] = Field(
        description="by catalog, the earliest start of its sweep; without the catalogs that are being swept now"
    )


class ReleasedTables(AdminModel):
    """Number of tables that a release affects."""

    released: int


class AffectedTables(AdminModel):
    """Number of tables that are queued because of a command."""

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
