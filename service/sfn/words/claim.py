"""One piece of work, as the inbox hands it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sfn.words.table import Subject, Table, TableName, normal_uuid
from sfn.words.told import Telling, Told


class Urgency(StrEnum):
    """What a row is claimed for."""

    SHORT_LIVED = "short-lived"
    """Something told of a change of a table whose metadata files are soon deleted: it goes before all others."""
    LIVE = "live"
    """Something told of a change."""
    CHORE = "chore"
    """Refresh, expiry and other looks that only time asked for."""
    SWEEP = "sweep"
    """The row of a whole catalog."""


_TOLD = frozenset({Urgency.SHORT_LIVED, Urgency.LIVE})


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """What shares a breaker and a number of slots.

    Attributes:
        catalog: the catalog's configured name.
        store: scheme and authority of the table's location; "" until one is remembered.
        urgency: what the rows of this lane are claimed for.
    """

    catalog: str
    store: str
    urgency: Urgency

    @property
    def is_told(self) -> bool:
        """Whether something told of a change of its rows."""
        return self.urgency in _TOLD


@dataclass(frozen=True, slots=True)
class Slots:
    """How many rows may still be claimed.

    Attributes:
        total: tables, over all lanes.
        live: tables that something told of, less than `total` so that chores always have room.
        sweeps: catalogs.
        named: tables of one lane, where a breaker says less.
        catalogs: tables of one catalog, where others must have room beside it.
        first: tables in short-lived lanes, less than `live` so that they never hold up all others; None: as many.
    """

    total: int
    live: int
    sweeps: int
    named: Mapping[Lane, int] = field(default_factory=dict)
    catalogs: Mapping[str, int] = field(default_factory=dict)
    first: int | None = None

    @property
    def by_urgency(self) -> Mapping[Urgency, int]:
        """The free slots of all lanes of an urgency; of one that goes first, within those of live lanes."""
        first = self.live if self.first is None else min(self.first, self.live)
        return {
            Urgency.SHORT_LIVED: first,
            Urgency.LIVE: self.live,
            Urgency.CHORE: self.total,
            Urgency.SWEEP: self.sweeps,
        }

    def of(self, lane: Lane) -> int:
        """The free slots of a lane."""
        most = self.by_urgency[lane.urgency]
        if lane.urgency is not Urgency.SWEEP:
            most = min(most, self.total, self.catalogs.get(lane.catalog, self.total))
        return max(0, min(most, self.named.get(lane, self.total + self.sweeps)))


@dataclass(frozen=True, slots=True)
class Held:
    """A file as it was read or written.

    Attributes:
        body: its content.
        tag: the store's word for exactly this content (an entity tag, a generation, a digest).
    """

    body: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Memo:
    """What the last publish saw: a cache, dropped on any failure and never needed.

    Attributes:
        table: what the catalog last answered, with its `etag`.
        tags: files by key, None for one that was not there.
    """

    table: Table | None = None
    etag: str | None = None
    tags: Mapping[str, Held | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the hints since the last settled publish said, coalesced.

    Attributes:
        floor: the highest metadata location told of.
        renamed_to: the last new name told of.
        drop: a drop was told of.
        purge: its files were to be deleted.
        vague: some hint said no more than "look".
        looked_again: the one more look that a hint gets which the answer does not show was taken.
        anew: nothing remembered may be trusted.
        adopts: files of that `catalog_id` under the row's identifier count as the row's own.
        guessed: every hint was `Hint.guessed`.
        relayed: every hint came from another spelling of the name, which must not have it back.
        tellings: of a catalog that can't be asked: what the events said, at most `sfn.inbox.tellings.KEPT`.
    """

    floor: str | None = None
    renamed_to: TableName | None = None
    drop: bool = False
    purge: bool = False
    vague: bool = False
    looked_again: bool = False
    anew: bool = False
    adopts: str | None = None
    guessed: bool = False
    relayed: bool = False
    tellings: tuple[Telling, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The pointer that a row's live file last got.

    Attributes:
        pointer: metadata location.
        uuid: table uuid, as `normal_uuid` spells it.
        location: normalised table location where the file lies.
        written_at: the document's `written_at`.
        catalog_id: the document's; None for one of which it was not noted.
    """

    pointer: str
    uuid: str | None
    location: str
    written_at: datetime
    catalog_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", normal_uuid(self.uuid))


@dataclass(frozen=True, slots=True)
class Story:
    """What is durably known about a row's table, beside its locations.

    Attributes:
        live: the pointer last published that is still live; None before the first and after the end.
        visited: a publish has settled before.
        absent: when each table uuid of ours was first seen missing from the catalog.
        held: absence and backward steps wait for an operator.
        waived: an operator let the next such step pass.
        hints: contents of the version hint that we wrote, by location.
        foreign_hint: the beginning of the version hint at the table's place, where it is somebody else's and says
            something else than ours would: it is left alone.
        renamed_to: the name that the table went on under, where its file says so.
        refresh_at: when all of it is looked at anew.
        misses: looks in a row that found neither a table nor a file.
        told: of a catalog that can't be asked: what is known of the name's tables.
        foreign_id: the `catalog_id` of the file that lies where the table's own would; None where none does.
        short_lived: its metadata files are soon deleted (`sfn.pointer.retention`).
        listed_as: the name under which the catalog listed the table when that was last asked: the row's own, or another
            spelling of that. None where it is not known.
        older_at: texts of sites where other rows had older files of what the row is to replace or to drop; those go
            first, also once their rows have published another table elsewhere.
    """

    live: Published | None = None
    visited: bool = False
    absent: Mapping[str, datetime] = field(default_factory=dict)
    held: bool = False
    waived: bool = False
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign_hint: str | None = None
    renamed_to: TableName | None = None
    refresh_at: datetime | None = None
    misses: int = 0
    told: Told | None = None
    foreign_id: str | None = None
    short_lived: bool = False
    listed_as: TableName | None = None
    older_at: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """A row leased to this worker.

    Attributes:
        subject: the table, or the catalog to sweep.
        lane: the lane that it was claimed from.
        token: fences the lease: a later claim of the row has another one.
        seq: number of the newest hint that the row had when it was claimed.
        attempt: which attempt this is, from 1; counted durably when it started.
        since: when the row first failed in a row of failures, or when it was claimed.
        wish: what the hints said.
        locations: every place where files of this name may lie, each as the text of a `sfn.pointer.site.FileLayout`.
        story: what is durably known.
        memo: what is remembered.
        swept_at: when the last complete sweep of the catalog began; None where it could not list the table's namespace.
    """

    subject: Subject
    lane: Lane
    token: int
    seq: int
    attempt: int
    since: datetime
    wish: Wish = Wish()
    locations: frozenset[str] = frozenset()
    story: Story = Story()
    memo: Memo = Memo()
    swept_at: datetime | None = None
