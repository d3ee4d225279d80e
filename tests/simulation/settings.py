"""The settings of a history and of the services in it, and the report of what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from sfn.publish.policy import Policy
from sfn.worker.capacity import RetryPolicy
from sfn.worker.worker import WorkerOptions
from tests.simulation.catalog import CatalogTruth
from tests.simulation.operations import OPERATIONS

Files: TypeAlias = dict[str, Any]
"""Of a `Policy` what files are called and where they lie."""

DAY = timedelta(seconds=3000)
"""As long in comparison with `refresh_after` as a day is with eight hours."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What kind of history.

    Attributes:
        names: how many identifiers; two of them collide in their plain file names where places are shared.
        places: how many locations.
        catalogs: a second one registers tables of the first.
        outage: the catalog is away for a while; "blank" answers 404 to everything; "emptied" loses all
            tables or half, at once or one by one, until its database is restored or they turn out to be dropped;
            "unlisted" lets nobody list its namespaces, in most histories.
        inbox_lost: once.
        max_drops: drops and steps back an hour that pass; None for what passes without a setting.
        crashes: leases that may run out in a row before a table counts as poison.
        any_case: the catalogs take names in any case, and events spell them in any case.
        event_only: the catalogs are event-only, and no event is lost; "by uuid" events have a table uuid and come in
            any order, "in order" they come as they happened and have no optional fields.
        gateway: clients reach the catalog through gateways, no event is sent and nothing swept; what becomes of commits
            that the inbox does not take: "pass" or "refuse".
        inbox_full: it takes nothing for a while, now and then.
        cleaned: those who delete what a table does not know come by, again and again.
        away: once no service runs for so long that they may delete its files.
        read_only: a policy denies every change to the store for a while, twice.
        slow_inbox: its disk hangs every now and then, for longer than a lease lasts.
        power_cuts: the machine loses its power now and then, and the inbox what was not synced.
        inboxes: how many services follow each catalog, each with an inbox of its own: it was installed twice.
        replicas: how many processes share an inbox in a database that all of them reach; 0 for two that share a file.
        lost: the chance that an event never comes.
        pace: so many times as often something happens.
        busy: seconds for it.
        briefly: nobody waits for refreshes and expiry.
        policies: what files are called and where they lie; of several, the service is restarted with each in turn.
    """

    operations: Mapping[str, float] = field(default_factory=lambda: OPERATIONS)
    names: int = 4
    places: int = 6
    steps: tuple[int, int] = (4, 14)
    shared: bool = False
    catalogs: int = 1
    inboxes: int = 1
    replicas: int = 0
    lost: float = 0.15
    pace: float = 1.0
    busy: float = 400.0
    briefly: bool = False
    outage: str = ""
    any_case: bool = False
    event_only: str = ""
    gateway: str = ""
    inbox_full: bool = False
    store_outage: bool = False
    read_only: bool = False
    slow_inbox: bool = False
    power_cuts: bool = False
    cleaned: bool = False
    away: bool = False
    inbox_lost: bool = False
    conditional_delete: bool = True
    max_drops: int | None = 10**6
    crashes: int = 10**6
    policies: tuple[Files, ...] = ({},)

    @property
    def strict(self) -> bool:
        """Whether a reader must never go back, not even until the next look.

        Two inboxes know nothing of each other's rows, and of a row that counts as poison nothing is known for a while.
        """
        return self.inboxes == 1 and self.crashes >= 10**6


@dataclass(slots=True)
class Report:
    """What came of a history."""

    seed: int
    bad: list[tuple[str, str]]
    stated: int
    counts: Counter[str]
    trace: list[str]


def policy_of(truth: CatalogTruth, *, event_only: bool, files: Mapping[str, Any]) -> Policy:
    """How a simulated catalog's tables are published.

    Args:
        files: what they are called and where they lie, and whatever else is to be otherwise.
    """
    usual = Policy(
        catalog_id=truth.catalog_id,
        replica_lag=timedelta(seconds=6),
        absence_delay=timedelta(seconds=30),
        expire_after=timedelta(seconds=3000),
        refresh_after=timedelta(seconds=1000),
        min_publish_interval=timedelta(seconds=1),
        sweep_every=timedelta(seconds=120),
        is_swept=not event_only,
        event_only=event_only,
        keep_commits_for=timedelta(0),
    )
    return replace(usual, **files)


UNSWEPT: Final[dict[str, Any]] = {
    "is_swept": False,
    "sweep_every": timedelta(days=36_500),
    "refresh_after": timedelta(hours=8),
    "expire_after": timedelta(days=7),
}
"""Nothing is looked at of the service's own accord: what is published was asked for because of a request."""


TERMS = WorkerOptions(
    concurrency=6,
    lease=timedelta(seconds=20),
    drain=timedelta(seconds=10),
    retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=20), max_attempts=10_000),
)
