"""The composition root: from settings to the parts of one process, with what the modules beside it make of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import structlog

from sfn.admin.app import routes
from sfn.admin.operators import Followed, Operations, Operator, Process, Retirement
from sfn.body_memory import BodyMemory
from sfn.clock import Clock, SystemChance, SystemClock
from sfn.errors import Broken, Transient, Trouble
from sfn.gateway.connection import AT_ONCE
from sfn.inbox import Intake
from sfn.mounts import LOCAL_LOCKS, SHARE_LOCKS
from sfn.receiver.app import Application, application
from sfn.receiver.body import Limits
from sfn.receiver.certificate import Certificate
from sfn.receiver.ingest import Ingest
from sfn.receiver.pull.source import Source
from sfn.receiver.readiness import Readiness
from sfn.receiver.tokens import TokenFile
from sfn.settings import Settings
from sfn.settings.roles import ALL, Role
from sfn.store import PointerStore, Stores
from sfn.store.router import Router
from sfn.telemetry.metrics import Metrics
from sfn.threads import Late, Threads
from sfn.wiring import inboxes
from sfn.wiring.admission import Admission, admission, certificate
from sfn.wiring.events import concern, understood
from sfn.wiring.facades import faced
from sfn.wiring.gateways import Gates, gates
from sfn.wiring.metering import Metering
from sfn.wiring.places import local_locks, shelf
from sfn.wiring.pulls import fetched
from sfn.wiring.reached import Reached, vending
from sfn.wiring.sources import adapters
from sfn.wiring.terms import VERSION, interest, worker_terms
from sfn.words import CatalogName, Hint
from sfn.work.journal import Journals
from sfn.work.logbook import Logbook
from sfn.work.meter import Meter
from sfn.work.worker import Inbox, Worker

STARTING: Final = "starting"
"""Why a process is not ready at first."""

_FOLLOWED_EVERY: Final = 5.0
"""Seconds."""
_ASKED: Final = 10
"""How often a start asks an inbox that was opened a moment ago."""
_ASK_AGAIN: Final = 1.0
"""Seconds."""

_MOUNTS_ANSWER_WITHIN: Final = 5.0
"""Seconds."""

_log = structlog.stdlib.get_logger(__name__)

Adapter: TypeAlias = Callable[[PointerStore], PointerStore]
"""Puts something around a store: a test's delay."""


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
        certificate: what the listener shows; None without TLS.
        tokens: files of tokens, for somebody to watch.
        works: the worker is to run; else other processes turn hints into files.
        gates: the gateways.
        fetched: what events are fetched from.
    """

    application: Application
    readiness: Readiness
    worker: Worker
    intake: Intake
    tend: Callable[[], Coroutine[Any, Any, None]]
    sweeps: tuple[Hint, ...]
    certificate: Certificate | None = None
    tokens: tuple[TokenFile, ...] = ()
    works: bool = True
    gates: Gates = Gates()
    fetched: tuple[Source, ...] = ()


@asynccontextmanager
async def assembled(
    settings: Settings,
    on_broken: Callable[[Broken], None],
    through: Adapter | None = None,
    roles: frozenset[Role] = ALL,
) -> AsyncIterator[Service]:
    """All parts, opened; closed again in the end, the inbox last.

    Args:
        on_broken: told when a request finds that the inbox can't be trusted any more.
        through: put around each store.
        roles: what this process does.

    Raises:
        SfnError: something can't be opened, or its setting is wrong.
    """
    clock, shown = SystemClock(), certificate(settings)
    if inboxes.is_shared(settings) and Role.WORKER in roles:
        await _warn_of_local_locks(settings)
    admitted, receives = admission(settings, clock), Role.RECEIVER in roles
    metering = Metering(settings, VERSION, clock, settings.pull if receives else ())
    observe = metering.metrics.commits.observe
    async with (
        inboxes.opened(settings, clock, observe) as inbox,
        shelf(settings) as places,
        AsyncExitStack() as stack,
    ):
        stores = Router({at: through(store) if through else store for at, store in places.stores.items()})
        catalogs = adapters(settings, clock, stores.part)
        for catalog in catalogs.values():
            stack.push_async_callback(catalog.close)
        readiness = Readiness(STARTING)
        retirement = Retirement(await _retired(inbox))
        reached = Reached(settings, catalogs, retirement, inbox, inbox, vending(settings, stores, places, clock))
        worker = _worker(settings, inbox, reached, stores, clock, metering.metrics)
        process = Process(
            version=VERSION,
            started_at=clock.now(),
            reasons=lambda: readiness.reasons,
            identities=reached.identities,
            breakers=worker.breakers,
            sweeps=worker.sweeps,
            retirement=retirement,
            roles=frozenset() if roles == ALL else roles,
        )
        matters = concern(settings, retirement).matters
        memory = BodyMemory(_room_of_gateways(settings), metering.metrics.bodies.of("gateways"))
        gated = gates(
            settings if Role.GATEWAY in roles else None, inbox, matters, on_broken, metering.metrics.gateways, memory
        )
        for proxy in gated.proxies:
            stack.push_async_callback(proxy.close)
        before = faced(
            settings if Role.FACADE in roles else None,
            inbox,
            stores,
            admitted.readers,
            metering.metrics.readers,
            on_broken,
        )
        application = _application(settings, admitted, inbox, readiness, process, on_broken, metering)
        yield Service(
            application=gated.before(before(application)),
            readiness=readiness,
            worker=worker,
            intake=inbox,
            tend=partial(_tended, settings, inbox, retirement),
            sweeps=_first_sweeps(settings) if Role.WORKER in roles else (),
            certificate=shown,
            tokens=admitted.files,
            works=Role.WORKER in roles,
            gates=gated,
            fetched=fetched(settings, inbox, concern(settings, retirement), metering.metrics, clock)
            if receives
            else (),
        )


async def _warn_of_local_locks(settings: Settings) -> None:
    """Log mounts of stores on which the processes of other hosts do not see our locks."""
    # A mount whose server is gone may never answer, and must not keep the process from its end either.
    threads = Threads(1, _MOUNTS_ANSWER_WITHIN, only_looks=True)
    found = await threads.run("look for mounts of stores", lambda _: list(local_locks(settings)))
    for name, point, option in () if isinstance(found, Late) else found:
        _log.warning("locks of one host", store=name, found=f"{point}: {option}: {LOCAL_LOCKS}", remedy=SHARE_LOCKS)


async def _retired(inbox: inboxes.Inbox) -> frozenset[str]:
    """What operators said before the start; an answer that was lost on the way is no reason to end.

    Raises:
        SfnError: the inbox is in trouble, and stays so.
    """
    for _ in range(_ASKED - 1):
        with suppress(Transient):
            return await inbox.retired()
        await anyio.sleep(_ASK_AGAIN)
    return await inbox.retired()


async def _tended(settings: Settings, inbox: inboxes.Inbox, retirement: Retirement) -> None:
    if not inboxes.is_shared(settings):
        await inbox.tend(settings.inbox.event_retention)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inbox.tend, settings.inbox.event_retention)
        tasks.start_soon(_followed, inbox, retirement)


async def _followed(inbox: inboxes.Inbox, retirement: Retirement) -> None:
    """Learn what operators tell other processes, for ever."""
    while True:
        await anyio.sleep(_FOLLOWED_EVERY)
        with suppress(Trouble):
            retirement.names = await inbox.retired()


def _worker(
    settings: Settings, inbox: inboxes.Inbox, reached: Reached, stores: Stores, clock: Clock, metrics: Metrics
) -> Worker:
    return Worker(
        Inbox(inbox, inbox, inbox, inbox),
        reached,
        stores,
        clock=clock,
        chance=SystemChance(),
        journal=Journals(Logbook(), Meter(metrics.work, clock)),
        terms=worker_terms(settings),
    )


def _application(
    settings: Settings,
    admitted: Admission,
    inbox: inboxes.Inbox,
    readiness: Readiness,
    process: Process,
    on_broken: Callable[[Broken], None],
    metering: Metering,
) -> Application:
    catalogs, ours = settings.catalogs, concern(settings, process.retirement)
    memory = BodyMemory(_room(settings), metering.metrics.bodies.of("listener"))
    events = Ingest(
        inbox,
        admitted.senders,
        readiness,
        limits=Limits(settings.listener.body_limit),
        concern=ours,
        on_broken=on_broken,
        counted=metering.metrics.events,
        memory=memory,
    )
    operations = Operations(
        inbox=Operator(inbox, inbox, inbox, inbox, inbox, inbox),
        process=process,
        catalogs={name: Followed(one.type, not one.is_told, interest(one)) for name, one in catalogs.items()},
        understand=partial(understood, settings, ours),
        clock=SystemClock(),
    )
    roles = process.roles or ALL
    operated = admitted.operators if Role.ADMIN in roles else None
    return application(
        events if Role.RECEIVER in roles else None,
        readiness,
        version=VERSION,
        on_broken=on_broken,
        memory=memory,
        routers=[
            *([] if operated is None else [routes(operations, operated.admit)]),
            metering.routes(inbox.figures, process, admitted.scrapers),
        ],
    )


def _room(settings: Settings) -> int:
    """Bytes of bodies that are held at once: no less than one of the largest takes."""
    gateways = [one.body_limit for one in settings.gateway.values()]
    # A gateway holds one part of a body more than its limit says.
    return max(settings.listener.body_memory, settings.listener.body_limit, 2 * max(gateways, default=0))


def _room_of_gateways(settings: Settings) -> int:
    """Bytes of the bodies of all gateways: those that are held until they are answered leave the others theirs."""
    return _room(settings) + AT_ONCE * sum(one.connections for one in settings.gateway.values())


def _first_sweeps(settings: Settings) -> tuple[Hint, ...]:
    if settings.sweep.every is None:
        return ()
    return tuple(Hint(CatalogName(name), sender="start") for name, one in settings.catalogs.items() if not one.is_told)
