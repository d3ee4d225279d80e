"""What the service's admin routes answer. Keys that this version does not know are passed over."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Brake(Struct, frozen=True):
    """A catalog's brake: how many steps that are not forward an hour had, and how many rows wait for an operator."""

    tripped: bool
    held: int
    steps: int
    limit: int


class Tables(Struct, frozen=True):
    """How many tables of a catalog wait for what."""

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


class Difference(Struct, frozen=True):
    """A table that differs: `new`, `changed`, `absent`, `renamed`, `left-alone`, or `held` by the brake."""

    table: str
    kind: str


class Sweep(Struct, frozen=True):
    """The last walk over a catalog, or the one that runs."""

    state: str
    began_at: datetime
    ended_at: datetime | None
    tables: int
    known: int
    differed: list[Difference]
    differed_total: int
    withheld: list[str]
    failed: list[str]
    error: str | None
    withheld_reason: str | None = None
    listing_failed: list[str] = []
    missing: int = 0
    before: Sweep | None = None

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.state == "running"


class Catalog(Struct, frozen=True):
    """One configured catalog; `catalog_id` is None until it was reached, `foreign_id` what its files carry instead."""

    name: str
    type: str
    catalog_id: str | None
    foreign_id: str | None
    retired: bool
    live: int
    tables: Tables
    oldest_due_at: datetime | None
    brake: Brake
    sweep: Sweep | None
    open_intents: int = 0
    oldest_intent_at: datetime | None = None
    missing: int = 0
    missing_since: datetime | None = None

    @property
    def is_told(self) -> bool:
        """Whether nobody can ask it: it is never swept."""
        return self.type == "told"


class Breaker(Struct, frozen=True):
    """A catalog or store that is asked no more, or by one at a time, because it is in trouble: since when and why."""

    scope: str
    name: str
    state: str
    until: datetime
    slots: int
    since: datetime
    error: str


class Status(Struct, frozen=True):
    """How the service is."""

    version: str
    started_at: datetime
    ready: bool
    reasons: list[str]
    catalogs: list[Catalog]
    breakers: list[Breaker]
    dead_letters: dict[str, int]
    roles: list[str] = []


class Event(Struct, frozen=True):
    """The request that nobody understood."""

    path: str
    content_type: str | None
    size: int
    body: str


class Letter(Struct, frozen=True):
    """A dead letter; in full also with the request, and the catalog id of the file that keeps ours from its place."""

    id: int
    status: str
    reason: str
    catalog: str | None
    namespace: list[str] | None
    name: str | None
    table: str | None
    sender: str | None
    detail: str
    attempts: int
    opened_at: datetime
    changed_at: datetime
    actor: str | None
    cause: str = ""
    event: Event | None = None
    foreign_id: str | None = None


class Letters(Struct, frozen=True):
    """A page of them; `next` is the last id of a page that others follow."""

    dead_letters: list[Letter]
    next: int | None


class Cause(Struct, frozen=True):
    """Letters of one reason and one cause: how many, since when, and the id of one of them."""

    reason: str
    cause: str
    count: int
    opened_at: datetime
    example: int


class Published(Struct, frozen=True):
    """The pointer that a table's file has."""

    metadata_location: str
    table_uuid: str | None
    location: str
    written_at: datetime


class Wanted(Struct, frozen=True):
    """What was told since; `news`: something that no publish has seen through."""

    metadata_location: str | None
    drop: bool
    purge: bool
    renamed_to: str | None
    news: bool


class Last(Struct, frozen=True):
    """How the last attempt ended."""

    outcome: str
    why: str | None
    at: datetime


class LastEvent(Struct, frozen=True):
    """The last event that told of a table."""

    sender: str
    event_id: str | None
    received_at: datetime
    body: str = ""


class Table(Struct, frozen=True):
    """One table's whole story."""

    catalog: str
    namespace: list[str]
    name: str
    table: str
    state: str
    due_at: datetime
    not_before: datetime | None
    attempt: int
    failing_since: datetime | None
    reason: str | None
    held: bool
    waived: bool
    published: Published | None
    unpublished: str | None
    wanted: Wanted
    locations: list[str]
    refresh_at: datetime | None
    last: Last | None
    last_event: LastEvent | None
    dead_letters: list[Letter]
    renamed_to: str | None = None
    foreign_hint: str | None = None
    foreign_id: str | None = None
    open_intents: int = 0
    next_ask_at: datetime | None = None
    listed_as: str | None = None


class NotReplayed(Struct, frozen=True):
    """A letter that could not be replayed."""

    id: int
    why: str


class Replayed(Struct, frozen=True):
    """What came of one batch."""

    replayed: int
    failed: list[NotReplayed]
    next: int | None
    passed: list[int] = []


class Discarded(Struct, frozen=True):
    """What came of one batch."""

    discarded: int
    next: int | None
    passed: list[int] = []


class Asked(Struct, frozen=True):
    """Sweeps that will come."""

    catalogs: list[str]
    asked_at: datetime
    begins_at: dict[str, datetime] = {}


class Released(Struct, frozen=True):
    """How many tables a brake held."""

    released: int


class Affected(Struct, frozen=True):
    """How many tables an order reached."""

    tables: int


class Entry(Struct, frozen=True):
    """Who did what: `count` letters or tables."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    count: int


class Audit(Struct, frozen=True):
    """A page of what operators did, newest first."""

    entries: list[Entry]
    next: int | None


class Accepted(Struct, frozen=True):
    """What became of an event."""

    accepted: int
    duplicates: int
    ignored: int


class Problem(Struct, frozen=True):
    """A problem document (RFC 9457)."""

    title: str = ""
    status: int = 0
    detail: str = ""
