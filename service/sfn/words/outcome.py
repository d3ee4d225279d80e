"""What became of a piece of work, and what settles with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias, assert_never

from sfn.words.claim import PendingChange, PublishCache, TableState
from sfn.words.table import TableIdentifier


class DeadLetterReason(StrEnum):
    """Why something is a dead letter.

    held-drop         the brake holds a drop or a step back
    foreign-catalog   the file belongs to the same identifier of another catalog
    foreign-file      a file that cannot be told to be ours lies in its place
    location-refused  no file may be written to its location, or point into it
    permanent         it will not work until somebody changes something
    exhausted         the budget of its attempts is spent
    poison            the process ended beside it, or failed by an error of its own, time and again
    undecodable       a request that nobody understood
    """

    HELD_DROP = "held-drop"
    FOREIGN_CATALOG = "foreign-catalog"
    FOREIGN_FILE = "foreign-file"
    LOCATION_REFUSED = "location-refused"
    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    POISON = "poison"
    UNDECODABLE = "undecodable"


class FailureCause(StrEnum):
    """Why an attempt ended that neither saw its row through nor gave it up.

    table                     the table's own trouble
    catalog, store, inbox     trouble that reaches further
    process                   this process lacks descriptors, threads or memory
    defect                    an error that nobody expected
    stop                      the service ends
    """

    TABLE = "table"
    CATALOG = "catalog"
    STORE = "store"
    INBOX = "inbox"
    PROCESS = "process"
    DEFECT = "defect"
    STOP = "stop"


class StepKind(StrEnum):
    """A step that the brake counts."""

    DROP = "drop"
    OLDER = "older"


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """One step that asks the brake's leave.

    Attributes:
        kind: a drop, or an older pointer of the same table.
        uuid: the table's uuid.
        metadata_location: the pointer that is given up or stepped back to.
    """

    kind: StepKind
    uuid: str | None
    metadata_location: str


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Another row that should look, because of what was seen here. Alone it says nothing about the table itself.

    Attributes:
        table: whose row; it is made where there is none.
        location: the text of the site where a file under that name was seen, to be remembered.
        min_metadata_location: the catalog's pointer of the table, as it answered under another spelling of the name.
        drop, purge, renamed_to: an event of a drop or a rename had another spelling of the name, see `Notification`.
    """

    table: TableIdentifier
    location: str | None = None
    min_metadata_location: str | None = None
    drop: bool = False
    purge: bool = False
    renamed_to: TableIdentifier | None = None

    @property
    def counts_as_event(self) -> bool:
        """Whether it has to be followed like an event of the table."""
        return self.min_metadata_location is not None or self.drop or self.renamed_to is not None


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What a publish leaves behind, settled in one transaction with its outcome.

    Attributes:
        table_state: what is known now.
        cache: what to remember.
        wakeups: other rows that should look.
        wake_locations: locations whose other rows should look.
        vacated: those of the row's `locations` where none of our files lies any more.
        written_keys: the files written or deleted, in order.
        not_before: no publish of the row may start earlier, whatever hints come.
    """

    table_state: TableState = TableState()
    cache: PublishCache = PublishCache()
    wakeups: tuple[Wakeup, ...] = ()
    wake_locations: frozenset[str] = frozenset()
    vacated: frozenset[str] = frozenset()
    written_keys: tuple[str, ...] = ()
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """All is as it should be.

    Attributes:
        due_at: when to look again of our own accord.
        result: what else there is to settle.
        forget: the row has nothing left to say and may go.
    """

    label: ClassVar[str] = "done"
    """Its name in logs, metrics and answers."""

    due_at: datetime
    result: PublishResult = PublishResult()
    forget: bool = False


@dataclass(frozen=True, slots=True)
class SweepCompleted:
    """A catalog's row: one sweep is complete.

    Attributes:
        due_at: when to sweep again.
        started_at: when this one began.
        within_limit: it found no more absences than the brake allows.
        tables: how many were looked at.
        differing: how many differ from what was published or are gone; those that the brake holds as well.
        unlisted_namespaces: namespaces that could not be listed, dotted: for their tables, and those below, there
            was no sweep.
    """

    label: ClassVar[str] = "swept"

    due_at: datetime
    started_at: datetime
    within_limit: bool
    tables: int = 0
    differing: int = 0
    unlisted_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """Right as far as can be told; look again then.

    Attributes:
        at: when.
        why: what is waited for, in words.
        pending: what stays open of the wish, unless newer hints came.
        result: what else there is to settle.
    """

    label: ClassVar[str] = "rescheduled"

    at: datetime
    why: str
    pending: PendingChange = PendingChange()
    result: PublishResult = PublishResult()


@dataclass(frozen=True, slots=True)
class Retry:
    """The table's own trouble: the attempt counts."""

    label: ClassVar[str] = "retry"

    at: datetime
    error: str
    cause: FailureCause = FailureCause.TABLE


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A dead letter: nothing more is tried until a new event, an operator, or `recheck_at`.

    Attributes:
        reason: which kind.
        detail: what happened and what to do, for a person.
        result: what else there is to settle; None leaves what is known as it was.
        recheck_at: when it is looked at again all the same; None for a row that waits for an operator.
    """

    label: ClassVar[str] = "dead"

    reason: DeadLetterReason
    detail: str
    result: PublishResult | None = None
    recheck_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """Given back unfinished (a lane's trouble, a shutdown): the attempt does not count."""

    label: ClassVar[str] = "returned"

    at: datetime
    why: str
    cause: FailureCause = FailureCause.STOP


Outcome: TypeAlias = Done | SweepCompleted | Rescheduled | Retry | DeadLettered | Returned


def describe(outcome: Outcome) -> tuple[str, str | None]:
    """An outcome's name, and why it is not simply done, in words."""
    name = outcome.label
    match outcome:
        case Done():
            return name, None
        case SweepCompleted(within_limit=calm):
            return name, None if calm else "more absences than the brake lets pass: they are held"
        case Rescheduled(why=why) | Returned(why=why):
            return name, why
        case Retry(error=error):
            return name, error
        case DeadLettered(detail=detail):
            return name, detail
    assert_never(outcome)
