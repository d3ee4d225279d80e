"""The simulated catalogs: what is true, since when, and what a lagging replica still believes."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sfn.catalogs import NoSuchTable, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier


@dataclass(slots=True)
class Files:
    """One object store's content, by key; `watch` is called after every change of a service's with the key."""

    now: Callable[[], datetime]
    bodies: dict[str, bytes] = field(default_factory=dict)
    modified: dict[str, datetime] = field(default_factory=dict)
    watch: Callable[[str, bytes | None, bytes | None, str], None] = lambda _key, _old, _new, _writer: None

    def put(self, key: str, body: bytes | None, writer: str) -> None:
        """Write, or delete where body is None; `writer` is the catalog id of the service that does."""
        old = self.bodies.get(key)
        if body is None:
            self.bodies.pop(key, None)
        else:
            self.lay(key, body)
        self.watch(key, old, body, writer)

    def lay(self, key: str, body: bytes) -> None:
        """Write as somebody else does."""
        self.bodies[key] = body
        self.modified[key] = self.now()

    def ages(self) -> dict[str, timedelta]:
        """How long ago each file was written, by key."""
        now = self.now()
        return {key: now - self.modified[key] for key in sorted(self.bodies)}

    def below(self, prefix: str) -> list[str]:
        """Keys directly below a prefix."""
        return sorted(key for key in self.bodies if key.startswith(prefix) and "/" not in key[len(prefix) :])


class CatalogTruth:
    """One catalog's history, as its primary knows it.

    Attributes:
        history: by name, its answers, each with since when.
        blank: spells in which it finds nothing.
        down: spells in which it does not answer.
        unlisted: spells in which nobody may list a namespace by itself.
        any_case: it takes a name in any case, and lists one spelling.
        lost: by table, the spell in which it is not found, as the catalog lost it: until its database is restored.
    """

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self.catalog_id = name * 8
        self._now = now
        self.history: dict[TableIdentifier, list[tuple[float, Table | NoSuchTable | StagedCreate]]] = defaultdict(list)
        self.blank: list[tuple[float, float]] = []
        self.down: list[tuple[float, float]] = []
        self.unlisted: list[tuple[float, float]] = []
        self.lost: dict[TableIdentifier, tuple[float, float]] = {}
        self.any_case = False

    def set(self, name: TableIdentifier, value: Table | NoSuchTable | StagedCreate) -> None:
        """The catalog's answer for a name from now on."""
        self.history[name].append((self._now(), value))

    @property
    def changes(self) -> int:
        """How many there were so far."""
        return sum(len(answers) for answers in self.history.values())

    def get(self, name: TableIdentifier, at: float | None = None) -> Table | NoSuchTable | StagedCreate:
        """What a replica that has heard all until `at` answers; the primary by default."""
        now, name = self._now(), self.listed(name)
        if any(start <= now < end for start, end in (*self.blank, self.lost.get(name, (now, now)))):
            return NoSuchTable()
        answer: Table | NoSuchTable | StagedCreate = NoSuchTable()
        for since, value in self.history.get(name, ()):
            if since <= (now if at is None else at):
                answer = value
        return answer

    def listed(self, name: TableIdentifier) -> TableIdentifier:
        """Return the name as the catalog lists it."""
        if not self.any_case or name in self.history:
            return name
        return next((one for one in self.history if one.dotted.lower() == name.dotted.lower()), name)

    def true(self, name: TableIdentifier) -> Table | NoSuchTable | StagedCreate:
        """What is so, whatever the catalog answers in a blank spell."""
        return self.history[name][-1][1] if self.history.get(name) else NoSuchTable()

    def is_down(self) -> bool:
        """Whether it answers nothing at all."""
        return any(start <= self._now() < end for start, end in self.down)

    def is_unlisted(self) -> bool:
        """Whether it lists no namespace by itself."""
        return any(start <= self._now() < end for start, end in self.unlisted)

    def there_since(self, name: TableIdentifier, is_there: Callable[[Table], bool]) -> float | None:
        """Since when all answers for a name are one table of which something is so; None if the last one is not."""
        since, uuid = None, None
        for at, value in reversed(self.history.get(name, [])):
            if not isinstance(value, Table) or not is_there(value) or uuid not in {None, value.uuid}:
                break
            since, uuid = at, value.uuid
        blank = [end for start, end in self.blank if start <= self._now()]
        _, found_at = self.lost.get(name, (0.0, 0.0))
        return None if since is None or found_at > self._now() else max([since, found_at, *blank])

    def restore(self) -> None:
        """All tables that were lost are found again."""
        self.lost = {name: (start, self._now()) for name, (start, _) in self.lost.items()}

    def live(self) -> dict[TableIdentifier, Table]:
        """All tables that truly exist."""
        return {name: value for name in sorted(self.history) if isinstance(value := self.history[name][-1][1], Table)}


@dataclass(slots=True)
class Ranks:
    """In which order each catalog had each pointer of each table, and everything the checker must know of the past.

    Attributes:
        order: by (catalog id, table uuid): pointer → its ranks.
        rolled_back: by table uuid: when it stepped back.
        names: by (catalog id, identifier): the uuids that it ever had.
        under: by (catalog id, identifier): pointer → its ranks under that name.
        places: by table uuid: the locations that it ever had.
        owner: metadata file → table uuid.
        heads: metadata file → the head snapshot of each branch.
        ended: uuids of tables that were once nowhere, be it that they came back.
    """

    order: dict[tuple[str, str | None], dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    rolled_back: dict[str | None, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    names: dict[tuple[str, tuple[str, ...]], set[str | None]] = field(default_factory=lambda: defaultdict(set))
    under: dict[tuple[str, tuple[str, ...]], dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    places: dict[str | None, set[str]] = field(default_factory=lambda: defaultdict(set))
    owner: dict[str, str | None] = field(default_factory=dict)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: set[str | None] = field(default_factory=set)
    last: int = 0

    def note(self, catalog_id: str, name: TableIdentifier, table: Table, places: Iterable[str]) -> None:
        """The catalog now has this pointer under this name, for which files may lie at these places."""
        self.last += 1
        self.order[catalog_id, table.uuid].setdefault(table.metadata_location, []).append(self.last)
        identifier = (*name.namespace, name.name)
        self.under[catalog_id, identifier].setdefault(table.metadata_location, []).append(self.last)
        self.names[catalog_id, identifier].add(table.uuid)
        self.places[table.uuid].update(places)
        self.owner[table.metadata_location] = table.uuid
        self.heads[table.metadata_location] = {"main": table.snapshot_id, **dict(table.branches)}

    def of(self, uuid: str | None, pointer: str) -> list[int]:
        """The ranks that a table's pointer had, in any catalog."""
        return [rank for (_, owner), had in self.order.items() if owner == uuid for rank in had.get(pointer, ())]


def version_of(table: Table) -> int:
    """Which of its versions this is, from 0, as its metadata file's name says; Hadoop's begin with a `v`."""
    name = table.metadata_location.rsplit("/", 1)[-1]
    match = re.match(r"v?(\d+)", name)
    if match is None:
        raise ValueError(name)
    return int(match[1])


def metadata_file(table: Table) -> bytes:
    """What a table's metadata file says."""
    times = dict(zip(table.metadata_log, table.log_times, strict=False))
    content = {
        "format-version": 2,
        "table-uuid": table.uuid,
        "location": table.location,
        "last-updated-ms": max(0, table.last_updated_ms),
        "current-snapshot-id": table.snapshot_id,
        "metadata-log": [{"metadata-file": one, "timestamp-ms": times.get(one, 0)} for one in table.metadata_log],
        "refs": {ref: {"snapshot-id": head, "type": "branch"} for ref, head in table.branches},
        "properties": {"sfn.enabled": "false"} if table.skip_reason is not None else {},
    }
    return json.dumps(content).encode()


def new_uuid(rng: random.Random) -> str:
    """A uuid in its usual form."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def first_version(rng: random.Random, location: str, now: float) -> Table:
    """A table that was just created."""
    pointer = f"{location}/metadata/00000-{new_uuid(rng)}.metadata.json"
    return Table(new_uuid(rng), location, pointer, (), int(now * 1000), None)


def next_version(
    rng: random.Random, table: Table, now: float, *, location: str | None = None, metadata_at: str | None = None
) -> Table:
    """The table after one more commit; its log keeps three entries, its clock may run backwards."""
    number = version_of(table) + 1
    place = location or table.location
    pointer = f"{metadata_at or place}/metadata/{number:05d}-{new_uuid(rng)}.metadata.json"
    return replace(
        table,
        location=place,
        metadata_location=pointer,
        metadata_log=(*table.metadata_log, table.metadata_location)[-3:],
        log_times=(*table.log_times, max(0, table.last_updated_ms))[-3:],
        last_updated_ms=int(now * 1000) + rng.randint(-2000, 2000),
        snapshot_id=rng.getrandbits(40),
    )
