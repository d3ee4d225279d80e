"""An object store that fails now and then, in every way that is known: each write is known for what it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.faults.fleet import ROUNDS, fleet
from tests.faults.hurried_service import ANSWERED_WITHIN
from tests.faults.on_s3 import refusal, shelved
from tests.faults.proxy import Asked, Break, Cut, Fault, Lose, Pass, Proxy
from tests.faults.service import eventually
from tests.servers.object_stores import S3
from tests.servers.postgres import Postgres

OFTEN = 0.1
"""Of all requests that a fault is for."""
LATE = 1.5 * ANSWERED_WITHIN
EACH = 2 * ROUNDS
WRITES = frozenset({"PUT"})
ALL = frozenset({"GET", "PUT", "DELETE"})
FAULTS: dict[str, tuple[frozenset[str], Fault]] = {
    "the answer to a write that was done comes too late": (WRITES, Lose(LATE)),
    "the answer to a write that was done is lost": (WRITES, Lose()),
    "a connection breaks": (ALL, Break()),
    "an answer breaks off": (frozenset({"GET"}), Cut()),
    "500": (ALL, refusal(500, "InternalError")),
    "503": (ALL, refusal(503, "SlowDown")),
    "409": (WRITES, refusal(409, "ConditionalRequestConflict")),
    "412": (WRITES, refusal(412, "PreconditionFailed")),
    "expired credentials": (ALL, refusal(400, "ExpiredToken")),
    "a clock that is wrong": (ALL, refusal(403, "RequestTimeTooSkewed")),
}
Record = Callable[[str, object], None]


class Faulty:
    """A proxy's rule: one fault at a time, now and then.

    Attributes:
        fault: the name of the one that is injected now.
        injected: how often each was.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.fault = next(iter(FAULTS))
        self.injected: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Fault:
        methods, fault = FAULTS[self.fault]
        if asked.method not in methods or self._chance.random() >= OFTEN:
            return Pass()
        self.injected[self.fault] += 1
        return fault


async def test_a_store_that_fails_now_and_then_loses_nothing_and_no_file_goes_back(
    s3: S3, proxy: Proxy, postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    """Two replicas: what one of them is not answered, the other one may have written over."""
    dsn, faulty = postgres.dsn(database), Faulty(random.Random(1))
    module = "tests.faults.hurried_service"
    async with fleet(tmp_path, dsn, dsn, module=module, shelf=shelved(s3, proxy)) as running:
        proxy.rule = faulty
        for faulty.fault in FAULTS:
            await eventually(lambda: faulty.injected[faulty.fault] >= EACH, within=10 * EACH)
        proxy.rule = lambda _: Pass()
        figures = await running.ended_well(**faulty.injected)
    record_property("store faults", asdict(figures))
    assert figures.attempts == 1
