"""The composition root: from settings to the parts of one process. The only module that names concrete adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import structlog
from fastapi import APIRouter

from sfn.admin.app import routes
from sfn.catalog.rest import RestCatalog, RestSettings
from sfn.catalog.told import ToldCatalog
from sfn.clock import Clock, SystemChance, SystemClock
from sfn.dialects import Sender
from sfn.errors import Broken, SfnError
from sfn.inbox import Brake, Intake
from sfn.inbox.sqlite import SqliteInbox
from sfn.inbox.terms import Terms as InboxTerms
from sfn.publish.policy import Interest, OnDrop, Policy
from sfn.receiver.app import Application, application
from sfn.receiver.body import Limits
from sfn.receiver.ingest import Ingest
from sfn.receiver.readiness import Readiness
from sfn.receiver.senders import Known, Senders, anonymous
from sfn.receiver.tokens import TokenFile, Tokens
from sfn.settings import CatalogSettings, Misconfigured, Settings
from sfn.store import PointerStore, Stores
from sfn.store.local import LocalStore
from sfn.store.router import Router
from sfn.words import CatalogName, Hint, TableName
from sfn.work.logbook import Logbook
from sfn.work.retry import RetryPolicy
from sfn.work.worker import Inbox, Source, Terms, Worker

DISTRIBUTION: Final = "iceberg-sfn"

STARTING: Final = "starting"
"""Why a process is not ready at first."""

_NEVER: Final = timedelta(days=36_500)
"""From one sweep to the next where none is wanted: one that an event asked for is the only one."""

_log = structlog.stdlib.get_logger(__name__)

Adapter: TypeAlias = Callable[[PointerStore], PointerStore]
"""Puts something around a store: a test's delay."""
Asked: TypeAlias = RestCatalog | ToldCatalog


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one process, ready to run.

    Attributes:
        application: what the listener serves.
        readiness: what `/readyz` says; holds `STARTING` until somebody clears it.
        worker: turns hints into files.
        intake: takes hints of our own.
        tend: keeps the inbox small, for ever, and raises `Broken` once it can't be trusted any more.
        sweeps: what a start asks for.
    """

    application: Application
    readiness: Readiness
    worker: Worker
    intake: Intake
    tend: Callable[[], Coroutine[Any, Any, None]]
    sweeps: tuple[Hint, ...]


@asynccontextmanager
async def assembled(
    settings: Settings, on_broken: Callable[[Broken], None], through: Adapter | None = None
) -> AsyncIterator[Service]:
    """All parts, opened; closed again in the end, the inbox last.

    Args:
        on_broken: told when a request finds that the inbox can't be trusted any more.
        through: put around each store.

    Raises:
        SfnError: something can't be opened, or its setting is wrong.
    """
    clock = SystemClock()
    stores = Router({at: through(store) if through else store for at, store in _stores(settings).items()})
    catalogs = {name: _catalog(name, one, stores, clock) for name, one in settings.catalogs.items()}
    terms, limit = inbox_terms(settings), settings.listener.queue_limit
    async with (
        SqliteInbox.opened(settings.inbox.path, terms, clock, queue_limit=limit) as inbox,
        AsyncExitStack() as stack,
    ):
        for catalog in catalogs.values():
            stack.push_async_callback(catalog.close)
        readiness = Readiness(STARTING)
        yield Service(
            application=_application(settings, inbox, readiness, clock, on_broken),
            readiness=readiness,
            worker=_worker(settings, inbox, catalogs, stores, clock),
            intake=inbox,
            tend=partial(inbox.tend, settings.inbox.event_retention),
            sweeps=_first_sweeps(settings),
        )


class Reached:
    """Implements `Sources`: a catalog's policy is complete once it was reached, as the catalog says who it is.

    Nothing is published for a catalog before: its claims end as trouble of the catalog, which costs no attempt.
    """

    def __init__(self, settings: Settings, catalogs: Mapping[str, Asked]) -> None:
        self._settings, self._catalogs = settings, catalogs
        self._sources: dict[str, Source] = {}

    async def named(self, catalog: str) -> Source | None:
        source = self._sources.get(catalog)
        asked = self._catalogs.get(catalog)
        if source is not None or asked is None:
            return source
        catalog_id = await asked.identity()
        source = Source(asked, policy(self._settings, catalog, catalog_id))
        if catalog not in self._sources:
            _log.info("catalog reached", catalog=catalog, catalog_id=catalog_id)
        return self._sources.setdefault(catalog, source)


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
        allowed=ours.allowed_locations,
        swept=every is not None,
        sweep_every=_NEVER if every is None else every,
        told=ours.is_told,
        interest=_interest(ours),
        writer=f"{DISTRIBUTION} {version(DISTRIBUTION)}",
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


def check(settings: Settings) -> None:
    """Refuse settings that only an adapter can tell are wrong.

    Raises:
        Misconfigured: with everything that is wrong.
    """
    problems: list[SfnError] = []
    for name, one in settings.catalogs.items():
        try:
            if not one.is_told:
                rest_settings(name, one)
        except Misconfigured as error:
            problems.extend(error.problems)
    if problems:
        raise Misconfigured(problems)


def rest_settings(name: str, catalog: CatalogSettings) -> RestSettings:
    """How a catalog is asked.

    Raises:
        Misconfigured: it can't be; no secret is repeated.
    """
    try:
        return RestSettings(
            name=name,
            uri=catalog.uri or "",
            warehouse=catalog.warehouse,
            catalog_id=catalog.catalog_id,
            token=None if catalog.token is None else catalog.token.get_secret_value(),
            token_file=catalog.token_file,
            credential=None if catalog.credential is None else catalog.credential.get_secret_value(),
            credential_file=catalog.credential_file,
            oauth2_uri=catalog.oauth2_uri,
            scope=catalog.scope or "catalog",
            headers={header: value.get_secret_value() for header, value in catalog.headers.items()},
            ca_file=catalog.ca_file,
        )
    except ValueError as error:
        expected = "settings that a REST catalog can be asked with"
        raise Misconfigured([SfnError(f"catalogs.{name}", expected=expected, found=str(error))]) from None


def _catalog(name: str, catalog: CatalogSettings, stores: Router, clock: Clock) -> Asked:
    if catalog.is_told:
        return ToldCatalog(name, catalog.catalog_id or "", stores.part, catalog.allowed_locations)
    return RestCatalog(rest_settings(name, catalog), clock)


def _worker(
    settings: Settings, inbox: SqliteInbox, catalogs: Mapping[str, Asked], stores: Stores, clock: Clock
) -> Worker:
    return Worker(
        Inbox(inbox, inbox, inbox, inbox),
        Reached(settings, catalogs),
        stores,
        clock=clock,
        chance=SystemChance(),
        journal=Logbook(),
        terms=worker_terms(settings),
    )


def _application(
    settings: Settings,
    inbox: SqliteInbox,
    readiness: Readiness,
    clock: Clock,
    on_broken: Callable[[Broken], None],
) -> Application:
    interests = {name: _interest(one) for name, one in settings.catalogs.items()}

    def concerns(table: TableName) -> bool:
        return interests[table.catalog].covers(table)

    limits, told = Limits(settings.listener.body_limit), settings.told
    events = Ingest(
        inbox, _senders(settings), readiness, limits=limits, interest=concerns, told=told, on_broken=on_broken
    )
    return application(
        events,
        readiness,
        version=version(DISTRIBUTION),
        on_broken=on_broken,
        routers=_operators(settings, inbox, clock),
    )


def _operators(settings: Settings, brake: Brake, clock: Clock) -> list[APIRouter]:
    admin = settings.admin
    if admin.token is None and admin.token_file is None:
        return []
    named = {} if admin.token is None else {"token": admin.token.get_secret_value()}
    tokens = Tokens(named, None if admin.token_file is None else TokenFile(admin.token_file))
    return [routes(brake, clock, admit=tokens.admit, catalogs=settings.catalogs)]


def _senders(settings: Settings) -> Senders:
    if not settings.senders:
        return anonymous(settings.catalogs)
    known = []
    for name, one in settings.senders.items():
        named = {token: secret.get_secret_value() for token, secret in one.secrets.items()}
        file = None if one.secrets_file is None else TokenFile(one.secrets_file)
        known.append(Known(Sender(name, settings.catalogs_of(name)), Tokens(named, file)))
    return Senders(known)


def _first_sweeps(settings: Settings) -> tuple[Hint, ...]:
    if settings.sweep.every is None:
        return ()
    return tuple(Hint(CatalogName(name), sender="start") for name, one in settings.catalogs.items() if not one.is_told)


def _interest(catalog: CatalogSettings) -> Interest:
    return Interest(catalog.include, catalog.exclude)


def _stores(settings: Settings) -> dict[str, PointerStore]:
    return {
        one.prefix: LocalStore(one.prefix, unsafe=one.unsafe_unconditional_writes) for one in settings.stores.values()
    }
