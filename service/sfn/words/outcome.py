"""What became of a piece of work, and what settles with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias, assert_never

from sfn.words.claim import Memo, Story, Wish
from sfn.words.table import TableName


class Reason(StrEnum):
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


class Cause(StrEnum):
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


class Backward(StrEnum):
    """A step that the brake counts."""

    DROP = "drop"
    OLDER = "older"


@dataclass(frozen=True, slots=True)
class Step:
    """One step that asks the brake's leave.

    Attributes:
        kind: a drop, or an older pointer of the same table.
        uuid: the table's uuid.
        pointer: the pointer that is given up or stepped back to.
    """

    kind: Backward
    uuid: str | None
    pointer: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Another row that should look, because of what was seen here. Alone it says nothing about the table itself.

    Attributes:
        table: whose row; it is made where there is none.
        location: the text of the site where a file under that name was seen, to be remembered.
        floor: the catalog's pointer of the table, as it answered under another spelling of the name.
        drop, purge, renamed_to: an event of a drop or a rename had another spelling of the name, see `Hint`.
    """

    table: TableName
    location: str | None = None
    floor: str | None = None
    drop: bool = False
    purge: bool = False
    renamed_to: TableName | None = None

    @property
    def has_news(self) -> bool:
        """Whether it has to be followed like an event of the table."""
        return self.floor is not None or self.drop or self.renamed_to is not None


@dataclass(frozen=True, slots=True)
class Findings:
    """What a publish leaves behind, settled in one transaction with its outcome.

    Attributes:
        story: what is known now.
        memo: what to remember.
        asks: other rows that should look.
        stirs: locations whose other rows should look.
        left: those of the row's `locations` where none of our files lies any more.
        did: the files written or deleted, in order.
        not_before: no publish of the row may start earlier, whatever hints come.
    """

    story: Story = Story()
    memo: Memo = Memo()
    asks: tuple[Ask, ...] = ()
    stirs: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    did: tuple[str, ...] = ()
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """All is as it should be.

    Attributes:
        due_at: when to look again of our own accord.
        findings: what else there is to settle.
        forget: the row has nothing left to say and may go.
    """

    label: ClassVar[str] = "done"
    """Its name in logs, metrics and answers."""

    due_at: datetime
    findings: Findings = Findings()
    forget: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    """A catalog's row: one sweep is complete.

    Attributes:
        due_at: when to sweep again.
        began: when this one began.
        calm: it found no more absences than the brake allows.
        tables: how many were looked at.
        differing: how many differ from what was published or are gone; those that the brake holds as well.
        withheld: namespaces that could not be listed, dotted: for their tables, and those below, there was no sweep.
    """

    label: ClassVar[str] = "swept"

    due_at: datetime
    began: datetime
    calm: bool
    tables: int = 0
    differing: int = 0
    withheld: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Later:
    """Right as far as can be told; look again then.

    Attributes:
        at: when.
        why: what is waited for, in words.
        wish: what stays open of the wish, unless newer hints came.
        findings: what else there is to settle.
    """

    label: ClassVar[str] = "later"

    at: datetime
    why: str
    wish: Wish = Wish()
    findings: Findings = Findings()


@dataclass(frozen=True, slots=True)
class Retry:
    """The table's own trouble: the attempt counts."""

    label: ClassVar[str] = "retry"

    at: datetime
    error: str
    cause: Cause = Cause.TABLE


@dataclass(frozen=True, slots=True)
class Dead:
    """A dead letter: nothing more is tried until a new event, an operator, or `look_at`.

    Attributes:
        reason: which kind.
        detail: what happened and what to do, for a person.
        findings: what else there is to settle; None leaves what is known as it was.
        look_at: when it is looked at again all the same; None for a row that waits for an operator.
    """

    label: ClassVar[str] = "dead"

    reason: Reason
    detail: str
    findings: Findings | None = None
    look_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Given back unfinished (a lane's trouble, a shutdown): the attempt does not count."""

    label: ClassVar[str] = "released"

    at: datetime
    why: str
    cause: Cause = Cause.STOP


Outcome: TypeAlias = Done | Swept | Later | Retry | Dead | Released


def told(outcome: Outcome) -> tuple[str, str | None]:
    """An outcome's name, and why it is not simply done, in words."""
    name = outcome.label
    match outcome:
        case Done():
            return name, None
        case Swept(calm=calm):
            return name, None if calm else "more absences than the brake lets pass: they are held"
        case Later(why=why) | Released(why=why):
            return name, why
        case Retry(error=error):
            return name, error
        case Dead(detail=detail):
            return name, detail
    assert_never(outcome)
