"""What the settings make of the terms that parts work by."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import Final

from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.publish.policy import OnDrop, Policy, TableFilter
from sfn.settings import CatalogSettings, Settings
from sfn.sfnfile.naming import NAMINGS, Placement
from sfn.worker.retry import RetryPolicy
from sfn.worker.worker import WorkerOptions

DISTRIBUTION: Final = "iceberg-sfn"
VERSION: Final = version(DISTRIBUTION)
"""Read from a file, and so at the start: a process without file descriptors can't."""
_NO_SWEEPS: Final = timedelta(days=36_500)
"""From one sweep to the next where none is wanted: one that an event asked for is the only one."""


def table_filter(catalog: CatalogSettings) -> TableFilter:
    """Which of a catalog's tables get files."""
    return TableFilter(catalog.include, catalog.exclude)


def publish_policy(settings: Settings, catalog: str, catalog_id: str) -> Policy:
    """How a catalog's tables are published."""
    catalog_settings = settings.catalogs[catalog]
    every = None if catalog_settings.is_event_only else settings.sweep.every
    return Policy(
        catalog_id=catalog_id,
        replica_lag=catalog_settings.replica_lag,
        absence_delay=catalog_settings.absence_delay,
        expire_after=catalog_settings.expire_after,
        refresh_after=catalog_settings.refresh_after,
        min_publish_interval=catalog_settings.min_publish_interval,
        on_drop=OnDrop(catalog_settings.on_drop),
        version_hint=catalog_settings.version_hint == "auto",
        naming=NAMINGS[catalog_settings.naming],
        placement=Placement(catalog_settings.placement),
        root=catalog_settings.root or "",
        branches=catalog_settings.branches,
        keep_commits=catalog_settings.keep,
        keep_commits_for=catalog_settings.keep_for,
        allowed_locations=catalog_settings.allowed_locations,
        is_swept=every is not None,
        sweep_every=_NO_SWEEPS if every is None else every,
        event_only=catalog_settings.is_event_only,
        table_filter=table_filter(catalog_settings),
        writer=f"{DISTRIBUTION} {VERSION}",
    )


def inbox_config(settings: Settings) -> InboxTerms:
    """What the inbox is told."""
    limits = {name: one.max_drops for name, one in settings.catalogs.items() if one.max_drops is not None}
    stores = tuple(one.prefix for one in settings.stores.values())
    cap, event_only = settings.retry.cap, settings.event_only_catalogs
    return InboxTerms(
        lease=settings.worker.lease, retry_cap=cap, max_drops=limits, stores=stores, event_only_catalogs=event_only
    )


def worker_options(settings: Settings) -> WorkerOptions:
    """What the worker is told."""
    retry = settings.retry
    return WorkerOptions(
        concurrency=settings.worker.concurrency,
        lease=settings.worker.lease,
        drain=settings.listener.drain,
        retry=RetryPolicy(retry.base, retry.cap, retry.budget, retry.max_attempts),
    )
