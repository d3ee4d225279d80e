"""What operators send and are answered, as JSON; the command line reads and writes the same records.

Times are RFC 3339, in UTC. Keys of an answer that this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sfn.inbox.letters import Status as LetterStatus
from sfn.pointer.site import layout_location
from sfn.words import Reason, Subject, TableName
from sfn.words.table import spelled

if TYPE_CHECKING:
    from sfn.inbox.figures import BrakeState
    from sfn.inbox.letters import Audited, DeadLetter
    from sfn.inbox.standing import LastEvent as Event
    from sfn.inbox.standing import Standing
    from sfn.words import Story, Undecodable
    from sfn.work.lanes import BreakerState
    from sfn.work.report import SweepReport

MOST: Final = 1_000
"""Letters of a page, or of a batch."""
LARGEST: Final = 2**62
"""The largest id that is taken."""

KnownReason: TypeAlias = Annotated[Reason | str, Field(union_mode="left_to_right")]
"""A `Reason`, or the text of one that a newer service has."""


class Answer(BaseModel):
    """An object of an answer."""

    model_config = ConfigDict(frozen=True)


class Identified(Answer):
    """A table, or a whole catalog: then without namespace and name."""

    catalog: str | None
    namespace: Sequence[str] | None
    name: str | None
    table: str | None = Field(description="levels and name, joined by dots")

    @staticmethod
    def fields(subject: Subject | None) -> dict[str, object]:
        """Its values of a subject."""
        if isinstance(subject, TableName):
            parts = {"namespace": subject.namespace, "name": subject.name, "table": subject.identifier}
            return {"catalog": subject.catalog, **parts}
        catalog = subject.catalog if subject is not None else None
        return {"catalog": catalog, "namespace": None, "name": None, "table": None}


class Letter(Identified):
    """A dead letter."""

    id: int
    status: str
    reason: KnownReason
    sender: str | None
    detail: str
    cause: str = Field(description="what is wrong, without the table: letters of one outage have one cause")
    attempts: int
    opened_at: datetime
    changed_at: datetime
    actor: str | None = Field(description="who replayed or discarded it")

    @classmethod
    def of(cls, letter: DeadLetter) -> Letter:
        """The answer of a letter."""
        return cls.model_validate(_letter(letter))


class Request(Answer):
    """A request that nobody understood."""

    path: str
    content_type: str | None
    size: int = Field(description="bytes of the whole body; at most the first 65,536 are kept")
    body: str


class LetterInFull(Letter):
    """A dead letter, with the request that it is about."""

    event: Request | None
    foreign_id: str | None = Field(description="the catalog_id of the file that keeps ours from the table's place now")

    @classmethod
    def with_event(cls, letter: DeadLetter, event: Undecodable | None, foreign_id: str | None) -> LetterInFull:
        """The answer of a letter, its request, and what its table's row knows."""
        request = None
        if event is not None:
            body = event.body.decode(errors="replace")
            request = Request(path=event.path, content_type=event.content_type, size=event.size, body=body)
        return cls.model_validate({**_letter(letter), "event": request, "foreign_id": foreign_id})


class Letters(Answer):
    """A page of dead letters, by id."""

    dead_letters: Sequence[Letter]
    next: int | None = Field(description="`after` of the next page; null at the end")


class Unreplayed(Answer):
    """A letter that could not be replayed."""

    id: int
    why: str


class Replayed(Answer):
    """What became of a batch of replays."""

    replayed: int
    failed: Sequence[Unreplayed]
    passed: Sequence[int] = Field(description="of the ids that were named, those that are no open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class Discarded(Answer):
    """What became of a batch of letters."""

    discarded: int
    passed: Sequence[int] = Field(description="of the ids that were named, those that are no open dead letters")
    next: int | None = Field(description="`after` of the next batch; null at the end")


class Entry(Answer):
    """An order that was carried out."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    count: int

    @classmethod
    def of(cls, entry: Audited) -> Entry:
        """The answer of an entry."""
        return cls(
            id=entry.id, at=entry.at, actor=entry.actor, action=entry.action, subject=entry.about, count=entry.count
        )


class Audit(Answer):
    """A page of the audit log, the newest first."""

    entries: Sequence[Entry]
    next: int | None = Field(description="`before` of the next page; null at the end")


class Brake(Answer):
    """A catalog's brake."""

    tripped: bool = Field(description="it is on: it holds tables, or would hold the next that is dropped")
    held: int = Field(description="tables that it holds")
    steps: int = Field(description="drops and steps back within the last hour")
    limit: int = Field(description="how many tables may be dropped within an hour")

    @classmethod
    def of(cls, brake: BrakeState, held: int) -> Brake:
        """The answer of a brake."""
        return cls(tripped=brake.tripped, held=held, steps=brake.steps, limit=brake.limit)


class Differing(Answer):
    """A table that a sweep found to differ."""

    table: str
    kind: str


class Sweep(Answer):
    """The sweep that runs, or the last one of this process."""

    state: str
    began_at: datetime
    ended_at: datetime | None
    tables: int = Field(description="looked at so far")
    known: int = Field(description="known before: about as many as there are to look at")
    differed: Sequence[Differing] = Field(description="the first 1,000")
    differed_total: int
    withheld: Sequence[str] = Field(description="namespaces that could not be listed: nothing in them counts as gone")
    withheld_reason: str | None = Field(description="why the first of them could not be listed")
    listing_failed: Sequence[str] = Field(
        description="those of them with a listing that failed; the others are forbidden"
    )
    failed: Sequence[str] = Field(description="the first 1,000 tables that could not be looked at")
    error: str | None
    missing: int = Field(default=0, description="tables with a live file that the catalog does not show any more")
    before: Sweep | None = Field(default=None, description="while it runs, the sweep before it")

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.state == "running"

    @classmethod
    def of(cls, report: SweepReport) -> Sweep:
        """The answer of a report."""
        return cls(
            state=report.course.value,
            began_at=report.began_at,
            ended_at=report.ended_at,
            tables=report.tables,
            known=report.known,
            differed=[Differing(table=table.identifier, kind=how.value) for table, how in report.differed],
            differed_total=report.differed_count,
            withheld=report.withheld,
            withheld_reason=report.withheld_reason,
            listing_failed=report.listing_failed,
            failed=[table.identifier for table in report.failed],
            error=report.error,
            missing=report.missing,
            before=cls.of(report.before) if report.before is not None else None,
        )


class TableCounts(Answer):
    """How many rows of a catalog are in which state."""

    due: int
    scheduled: int
    retrying: int
    leased: int
    dead: int
    held: int

    @property
    def known(self) -> int:
        """All of them."""
        return self.due + self.scheduled + self.retrying + self.leased + self.dead + self.held


class Catalog(Answer):
    """A catalog as a whole."""

    name: str
    type: str
    catalog_id: str | None = Field(description="null until the catalog was reached")
    foreign_id: str | None = Field(
        description="the catalog_id that its files were written for, where it is another: adopt them"
    )
    retired: bool
    live: int = Field(description="tables that have a file which readers follow")
    tables: TableCounts
    oldest_due_at: datetime | None = Field(description="since when the table waits that has waited longest")
    brake: Brake
    sweep: Sweep | None
    open_intents: int = Field(description="commits through a gateway whose outcome is not known")
    oldest_intent_at: datetime | None = Field(description="when the oldest of them was made, or left unanswered")
    missing: int = Field(
        default=0, description="tables with a live file that the catalog does not show, under whatever name"
    )
    missing_since: datetime | None = Field(default=None, description="when the first of them was first seen missing")

    @property
    def is_told(self) -> bool:
        """Whether nobody can ask it: it is never swept."""
        return self.type == "told"


class Breaker(Answer):
    """A breaker that is not closed."""

    scope: str
    name: str
    state: str
    until: datetime
    slots: int
    since: datetime = Field(description="since when nothing has succeeded")
    error: str = Field(description="the last trouble")

    @classmethod
    def of(cls, breaker: BreakerState) -> Breaker:
        """The answer of a breaker."""
        state = "half-open" if breaker.slots else "open"
        return cls(
            scope=breaker.scope.value,
            name=breaker.name,
            state=state,
            until=breaker.until,
            slots=breaker.slots,
            since=breaker.since,
            error=breaker.error,
        )


class Status(Answer):
    """The service as a whole."""

    version: str
    started_at: datetime
    ready: bool
    reasons: Sequence[str]
    catalogs: Sequence[Catalog]
    breakers: Sequence[Breaker]
    dead_letters: dict[str, int] = Field(description="open ones by reason")
    roles: Sequence[str] = Field(default=(), description="what this process does of the service; empty for all of it")


class Published(Answer):
    """What a table's live file says."""

    metadata_location: str
    table_uuid: str | None
    location: str
    written_at: datetime


class Wanted(Answer):
    """What was told of a table and is not done with."""

    metadata_location: str | None
    drop: bool
    purge: bool
    renamed_to: str | None
    news: bool = Field(description="something was told that no publish has seen through")


class Last(Answer):
    """How the last look ended."""

    outcome: str
    why: str | None
    at: datetime


class LastEvent(Answer):
    """The newest event that is still in the log."""

    sender: str
    event_id: str | None
    received_at: datetime
    body: str = Field(description="as it was received, its first 4 KiB; empty for one of the service's own")

    @classmethod
    def of(cls, event: Event) -> LastEvent:
        """The answer of an event."""
        body = event.body.decode(errors="replace")
        return cls(sender=event.sender, event_id=event.event_id, received_at=event.received_at, body=body)


class Unpublished(StrEnum):
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
    def of(cls, table: TableName, standing: Standing, *, retired: bool, covered: bool) -> Unpublished | None:
        """Why; None where it has one, or was not looked at yet.

        Args:
            table: whose row it is.
            standing: the table's row.
            retired: its catalog retired.
            covered: the catalog's settings do not leave it out.
        """
        story = standing.story
        if story.live is not None or not (story.visited or story.misses):
            return None
        if retired:
            return cls.RETIRED
        if not covered:
            return cls.EXCLUDED
        if standing.left_alone is not None:
            return cls.LEFT_ALONE
        if story.listed_as not in {None, table}:
            return cls.SPELLING
        if story.misses:
            return cls.MISSING
        return cls.DROPPED if standing.locations else None


class Table(Answer):
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
    reason: KnownReason | None
    held: bool
    waived: bool
    published: Published | None
    unpublished: Unpublished | None = Field(description="why it has no live file, where that is as it should be")
    renamed_to: str | None = Field(description="the name that the table went on under, as its file says")
    listed_as: str | None = Field(
        default=None, description="the name that has the table's file, where this one is another spelling of that"
    )
    foreign_hint: str | None = Field(description="what a version hint says that is not ours and is left alone")
    foreign_id: str | None = Field(description="the catalog_id of the file that keeps ours from the table's place")
    wanted: Wanted
    locations: Sequence[str] = Field(description="where files of this name may lie")
    refresh_at: datetime | None
    last: Last | None
    last_event: LastEvent | None
    dead_letters: Sequence[Letter] = Field(description="the newest first")
    open_intents: int = Field(description="commits through a gateway whose outcome is not known")
    next_ask_at: datetime | None = Field(description="when the catalog is asked for the next of them")

    @classmethod
    def of(cls, table: TableName, standing: Standing, why: Unpublished | None, letters: Sequence[DeadLetter]) -> Table:
        """The answer of a table's row and its dead letters."""
        story, wish, said, event = standing.story, standing.wish, standing.said, standing.event
        live = story.live
        return cls.model_validate(
            {
                **Identified.fields(table),
                "state": standing.state,
                "due_at": standing.due_at,
                "not_before": standing.not_before,
                "attempt": standing.attempt,
                "failing_since": standing.failing_since,
                "reason": standing.reason,
                "held": story.held,
                "waived": story.waived,
                "published": live
                and Published(
                    metadata_location=live.pointer,
                    table_uuid=live.uuid,
                    location=live.location,
                    written_at=live.written_at,
                ),
                "unpublished": why,
                "renamed_to": story.renamed_to.identifier if story.renamed_to is not None else None,
                "listed_as": _listed_as(table, story),
                "foreign_hint": story.foreign_hint,
                "foreign_id": story.foreign_id,
                "wanted": Wanted(
                    metadata_location=wish.floor,
                    drop=wish.drop,
                    purge=wish.purge,
                    renamed_to=wish.renamed_to.identifier if wish.renamed_to is not None else None,
                    news=standing.news,
                ),
                "locations": sorted({layout_location(site) for site in standing.locations}),
                "refresh_at": story.refresh_at,
                "last": said and Last(outcome=said.outcome, why=said.why, at=said.at),
                "last_event": event and LastEvent.of(event),
                "dead_letters": [Letter.of(letter) for letter in letters],
                "open_intents": standing.intents.count if standing.intents is not None else 0,
                "next_ask_at": standing.intents and standing.intents.due_at,
            }
        )


class Said(BaseModel):
    """An order."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Filter(Said):
    """Which letters are meant; what is missing does not matter. Times are RFC 3339 with an offset."""

    catalog: str | None = None
    table: str | None = Field(default=None, description="levels and name, joined by dots; %2E is a dot in one of them")
    reason: Reason | None = None
    sender: str | None = Field(default=None, description="who sent the request that nobody understood")
    before: AwareDatetime | None = Field(default=None, description="opened earlier than this")
    since: AwareDatetime | None = Field(default=None, description="opened at this time or later")


class Search(Filter):
    """Which letters are listed."""

    status: LetterStatus | Literal["all"] = LetterStatus.OPEN
    after: int = Field(default=0, ge=0, le=LARGEST, description="`next` of the page before")
    limit: int = Field(default=100, ge=1, le=MOST)


class Selection(Said):
    """Which open letters are dealt with: those of these ids, or a batch of those that a filter leaves."""

    ids: Sequence[Annotated[int, Field(ge=0, le=LARGEST)]] | None = Field(default=None, max_length=MOST)
    filter: Filter | None = None
    after: int = Field(default=0, ge=0, le=LARGEST, description="`next` of the batch before; with a filter")
    limit: int = Field(default=MOST, ge=1, le=MOST)


class Reconcile(Said):
    """Which catalogs are to be swept."""

    catalogs: Sequence[str] = Field(default=(), max_length=1_000, description="all, where none is named")


class Retire(Said):
    """Whether a catalog retires, or comes back."""

    undo: bool = False


class Adopt(Said):
    """Whose files are taken over."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    from_: Annotated[str, Field(alias="from", min_length=1, max_length=512)]
    tables: Sequence[str] | None = Field(
        default=None,
        max_length=1_000,
        description="identifiers such as a.b, a dot in a part as %2E; all tables of the catalog, without any",
    )
    force: bool = Field(default=False, description="also where the files are known to carry another catalog_id")


class Asked(Answer):
    """Sweeps that were asked for."""

    catalogs: Sequence[str]
    asked_at: datetime
    begins_at: dict[str, datetime] = Field(
        description="by catalog, when its sweep begins at the earliest; of one that is swept just now it is not known"
    )


class Released(Answer):
    """How many tables a brake held."""

    released: int


class Concerned(Answer):
    """How many tables are looked at because of an order."""

    tables: int


def _letter(letter: DeadLetter) -> dict[str, object]:
    return {
        **Identified.fields(letter.subject),
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


def _listed_as(table: TableName, story: Story) -> str | None:
    other = story.listed_as
    return spelled(other.namespace, other.name) if other is not None and other != table else None
