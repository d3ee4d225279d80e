"""How quick many dead letters are to page through and to replay, and what the senders of events notice of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import anyio

from sfn.clock import SystemClock
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, DeadLettered, DeadLetterReason
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite import SqliteInbox
from tests.bench import servers
from tests.bench.accept import create, event, event_sender
from tests.bench.clients import Wire, wire
from tests.bench.record import Figure, Run, Unmeasured
from tests.bench.servers import CATALOG, NAMESPACE, OPERATOR, Setting, service

LETTERS: Final = 100_000
TABLES: Final = 100
"""Tables that events tell of meanwhile, beside those of the letters."""

_ROUTE: Final = "/admin/v1/dead-letters"
_HEADERS: Final = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
_PAGE: Final = 100
_MADE_AT_ONCE: Final = 1_000

Say = Callable[[str], None]


def measure(letters: int, folder: Path, say: Say) -> list[Figure]:
    """Page through all letters and replay all of them while events are sent and published, each as fast as it goes.

    Raises:
        Unmeasured: not every letter was found once, or replayed once.
    """
    warehouse = folder / "warehouse"
    create(warehouse, *(f"t{number}" for number in range(TABLES)), *(_named(number) for number in range(letters)))
    with servers.catalog(folder / "catalog", warehouse, busy=True) as asked:
        setting = Setting(folder / "sfn", asked.uri, warehouse)
        setting.folder.mkdir(parents=True)
        fill(setting.inbox, letters)
        say(f"backlog: {letters} letters are open")
        with service(setting) as running, wire(running.url) as operator:
            alone = _meanwhile(running.url, lambda: time.sleep(min(10.0, letters / 1_000)))
            pages: list[float] = []
            paging = _meanwhile(running.url, lambda: pages.extend(_paged(operator, letters, say)))
            batches: list[float] = []
            replaying = _meanwhile(running.url, lambda: batches.extend(_replayed(operator, letters, say)))
    tenth = max(1, len(pages) // 10)
    short = letters < LETTERS
    return [
        Figure(
            name="letters_page_p50",
            unit="ms",
            runs=[Run(median(pages[-tenth:]), median(pages[:tenth]))],
            compared_with="the first tenth of the pages (it is of the last tenth)",
            short=short,
            note=f"of 100 letters each, {letters} in all",
        ),
        Figure(name="letters_replayed", unit="letters/s", runs=[Run(letters / (sum(batches) / 1e3))], short=short),
        _noticed("event_p99_while_paging", paging, alone, short=short),
        _noticed("event_p99_while_replaying", replaying, alone, short=short),
    ]


def fill(inbox: Path, letters: int) -> None:
    """Make an inbox with so many open dead letters, each by the verbs that make one."""
    anyio.run(_fill, inbox, letters)


async def _fill(path: Path, letters: int) -> None:
    now = SystemClock().now()
    dead = DeadLettered(DeadLetterReason.PERMANENT, "refused by the benchmark", recheck_at=now + timedelta(hours=8))
    async with SqliteInbox.opened(path, InboxConfig(), SystemClock()) as inbox:
        for first in range(0, letters, _MADE_AT_ONCE):
            names = [_named(number) for number in range(first, min(letters, first + _MADE_AT_ONCE))]
            await inbox.put([Notification(TableIdentifier(CATALOG, (NAMESPACE,), name), "bench") for name in names])
            claimed = await inbox.claim(Capacity(len(names), len(names), 0))
            async with anyio.create_task_group() as tasks:
                for claim in claimed.jobs:
                    tasks.start_soon(inbox.settle, claim, dead, now)


def _named(number: int) -> str:
    return f"dead{number}"


def _meanwhile(url: str, work: Callable[[], None]) -> list[float]:
    """Milliseconds that each event took, of those that one sender sent while the work went on."""
    with ThreadPoolExecutor(1) as pool, event_sender(url) as sender:
        took: list[float] = []
        working: Future[None] = pool.submit(work)
        for number in count():
            # Two at least, which a percentile is made of: the work of a short run may be over by then.
            if number > 1 and working.done():
                break
            told = event(f"t{number % TABLES}")
            began = time.perf_counter()
            sender.tell(told)
            took.append(1e3 * (time.perf_counter() - began))
        working.result()
    return took


def _paged(operator: Wire, letters: int, say: Say) -> list[float]:
    """Milliseconds of each page."""
    took, found = [], 0
    for reply, spent in _all(lambda after: ("GET", f"{_ROUTE}?limit={_PAGE}&after={after}", None), operator):
        found += len(json.loads(reply)["dead_letters"])
        took.append(spent)
        if found % 20_000 == 0:
            say(f"backlog: {found}/{letters} letters listed")
    if found != letters:
        raise Unmeasured(f"of {letters} letters {found} were listed")
    return took


def _replayed(operator: Wire, letters: int, say: Say) -> list[float]:
    """Milliseconds of each batch."""
    took, done = [], 0

    def order(after: int) -> tuple[str, str, bytes | None]:
        selection = {"filter": {"reason": "permanent"}, "after": after}
        return "POST", f"{_ROUTE}:replay", json.dumps(selection).encode()

    for reply, spent in _all(order, operator):
        done += json.loads(reply)["replayed"]
        took.append(spent)
        if done % 20_000 == 0:
            say(f"backlog: {done}/{letters} letters replayed")
    if done != letters:
        raise Unmeasured(f"of {letters} letters {done} were replayed")
    return took


def _all(request: Callable[[int], tuple[str, str, bytes | None]], operator: Wire) -> Iterator[tuple[bytes, float]]:
    """The answers to a request that is made again for each page, and their milliseconds."""
    after: int | None = 0
    while after is not None:
        method, path, body = request(after)
        began = time.perf_counter()
        reply = operator.ask(method, path, body, _HEADERS)
        yield reply.body, 1e3 * (time.perf_counter() - began)
        after = json.loads(reply.body)["next"]


def _noticed(name: str, beside: Sequence[float], alone: Sequence[float], *, short: bool) -> Figure:
    run = Run(_p99(beside), _p99(alone))
    return Figure(name=name, unit="ms", runs=[run], compared_with="the same without an operator at work", short=short)


def _p99(milliseconds: Sequence[float]) -> float:
    return quantiles(milliseconds, n=100, method="inclusive")[98]
