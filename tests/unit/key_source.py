"""A source of AWS keys that are botocore's own, and who asks a chain for them."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import anyio
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError

from sfn.aws_auth import AwsCredentialChain
from sfn.errors import NoCredentials

LIMIT = 1.0
"""Seconds that a look may take: so many that the half of it is more than a busy machine loses."""


class Source:
    """Gives the keys ID1, ID2, … as what botocore found and renews, by a clock of its own.

    Attributes:
        asked: how often.
        searched: how often for what to ask.
        now: by its clock.
        lasts: how long keys are good.
        fails, hangs: instead of an answer; a hanging question is answered after `free` is set.
    """

    def __init__(self) -> None:
        self.asked = self.searched = 0
        self.now, self.lasts = datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1)
        self.fails = self.hangs = False
        self.free = threading.Event()

    def find(self) -> RefreshableCredentials:
        self.searched += 1
        made = self.give()
        end = datetime.fromisoformat(made.pop("expiry_time"))
        return RefreshableCredentials(
            *made.values(), end, refresh_using=self.give, method="container-role", time_fetcher=lambda: self.now
        )

    def give(self) -> dict[str, str]:
        self.asked += 1
        number = self.asked
        if self.hangs:
            assert self.free.wait(10)
        if self.fails:
            raise CredentialRetrievalError(provider="container-role", error_msg="s3cret")
        end = (self.now + self.lasts).isoformat()
        return {"access_key": f"ID{number}", "secret_key": "secret", "token": "token", "expiry_time": end}


async def used(chain: AwsCredentialChain) -> str:
    """The id of the keys, or why there are none."""
    try:
        return (await chain.keys()).id
    except NoCredentials as error:
        return error.found


async def ends(*asking: Callable[[], Awaitable[str]]) -> list[tuple[str, float]]:
    """What each had and after how many limits, in the order in which they had it."""
    began, ended = anyio.current_time(), list[tuple[str, float]]()

    async def ask(one: Callable[[], Awaitable[str]]) -> None:
        had = await one()
        ended.append((had, (anyio.current_time() - began) / LIMIT))

    async with anyio.create_task_group() as group:
        for one in asking:
            group.start_soon(ask, one)
    return ended
