"""What the settings make of the terms that parts work by."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import Final

from sfn.inbox.terms import Terms as InboxTerms
from sfn.pointer.naming import NAMINGS
from sfn.pointer.site import Placement
from sfn.publish.policy import Interest, OnDrop, Policy
from sfn.settings import CatalogSettings, Settings
from sfn.work.retry import RetryPolicy
from sfn.work.worker import Terms

DISTRIBUTION: Final = "iceberg-sfn"
VERSION: Final = version(DISTRIBUTION)
"""Read from a file, and so at the start: a process without file descriptors can't."""
_NEVER: Final = timedelta(days=36_500)
"""From one sweep to the next where none is wanted: one that an event asked for is the only one."""


def interest(catalog: CatalogSettings) -> Interest:
    """Which of a catalog's tables get files."""
    return Interest(catalog.include, catalog.exclude)


def policy(settings: Settings, catalog: str, catalog_id: str) -> Policy:
    """How a catalog's tables are published."""
    ours = settings.catalogs[catalog]
    every = None if ours.is_told else settings.sweep.every
    return Policy(
        catalog_id=catalog_id,
        replica_lag=ours.replica_lag,
        absence_delay=ours.absence_delay,
        expire_after=ours.expire_after,
        refresh_after=ours.refresh_after,
        min_publish_interval=ours.min_publish_interval,
        on_drop=OnDrop(ours.on_drop),
        version_hint=ours.version_hint == "auto",
        naming=NAMINGS[ours.naming],
        placement=Placement(ours.placement),
        root=ours.root or "",
        branches=ours.branches,
        keep=ours.keep,
        keep_for=ours.keep_for,
        allowed=ours.allowed_locations,
        swept=every is not None,
        sweep_every=_NEVER if every is None else every,
        told=ours.is_told,
        interest=interest(ours),
        writer=f"{DISTRIBUTION} {VERSION}",
    )


def inbox_terms(settings: Settings) -> InboxTerms:
    """What the inbox is told."""
    limits = {name: one.max_drops for name, one in settings.catalogs.items() if one.max_drops is not None}
    stores = tuple(one.prefix for one in settings.stores.values())
    cap, told = settings.retry.cap, settings.told
    return InboxTerms(lease=settings.worker.lease, cap=cap, max_drops=limits, stores=stores, told=told)


def worker_terms(settings: Settings) -> Terms:
    """What the worker is told."""
    retry = settings.retry
    return Terms(
        concurrency=settings.worker.concurrency,
        lease=settings.worker.lease,
        drain=settings.listener.drain,
        retry=RetryPolicy(retry.base, retry.cap, retry.budget, retry.max_attempts),
    )
