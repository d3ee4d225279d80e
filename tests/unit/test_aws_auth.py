"""AWS's keys: renewed before they end by one who asks, handed out as long as they hold, and a failure is shared."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError
from botocore.parsers import ResponseParserError
from botocore.session import Session

from sfn.aws_auth import RETRY_AFTER, AwsCredentialChain, AwsIdentity
from sfn.errors import NoCredentials
from tests.support.rest_catalog import pass_by
from tests.unit.signatures import alone

LIMIT = 1.0
"""Seconds that a look may take: so many that the half of it is more than a busy machine loses."""

MANY = 16
LATE = [timedelta(minutes=14), timedelta(minutes=5), timedelta(seconds=1)]
"""How long keys still hold for botocore that may be renewed, that must be, and that are about to end."""


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


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Source]:
    alone(monkeypatch, tmp_path)
    source = Source()
    monkeypatch.setattr(Session, "get_credentials", lambda _: source.find())
    yield source
    source.free.set()


@pytest.fixture
def chain() -> AwsCredentialChain:
    return AwsCredentialChain(AwsIdentity(), limit=LIMIT)


async def late(chain: AwsCredentialChain, source: Source, left: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have keys that hold for so long."""
    assert await used(chain) == "ID1"
    source.now += source.lasts - left
    pass_by(RETRY_AFTER + 1, monkeypatch)


async def test_many_who_ask_at_once_share_keys_and_one_renewal(
    chain: AwsCredentialChain, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {had for had, _ in await ends(*[lambda: used(chain)] * MANY)} == {"ID1"}
    pass_by(RETRY_AFTER + 1, monkeypatch)
    source.now += source.lasts - timedelta(minutes=15)
    await chain.keys()
    assert source.asked == 1
    source.now += timedelta(seconds=1)
    assert await used(chain) == "ID2"
    source.now += source.lasts + timedelta(seconds=1)
    assert {had for had, _ in await ends(*[lambda: used(chain)] * MANY)} == {"ID3"}
    assert source.asked == 3


@pytest.mark.usefixtures("source")
async def test_endless_keys_are_looked_for_once(chain: AwsCredentialChain, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Credentials("FIXED", "secret")]
    monkeypatch.setattr(Session, "get_credentials", lambda _: found.pop())
    assert await used(chain) == "FIXED"
    pass_by(10**6, monkeypatch)
    assert await used(chain) == "FIXED"


@pytest.mark.parametrize("left", LATE)
async def test_only_one_looks_while_the_old_keys_hold(
    chain: AwsCredentialChain, source: Source, left: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, left, monkeypatch)
    assert sorted(had for had, _ in await ends(*[lambda: used(chain)] * MANY)) == ["ID1"] * (MANY - 1) + ["ID2"]
    assert await used(chain) == "ID2"
    assert source.asked == 2


@pytest.mark.slow
@pytest.mark.parametrize("left", LATE)
async def test_a_renewal_that_hangs_keeps_nobody_but_who_began_it(
    chain: AwsCredentialChain, source: Source, left: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, left, monkeypatch)
    source.hangs = True
    ended = await ends(*[lambda: used(chain)] * MANY)
    assert {had for had, _ in ended} == {"ID1"}
    *others, last = [limits for _, limits in ended]
    assert max(others) < 0.9
    assert 0.9 < last < 5
    assert source.asked == 2


@pytest.mark.parametrize("left", LATE)
async def test_a_renewal_that_fails_rests_while_the_old_keys_hold(
    chain: AwsCredentialChain, source: Source, left: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, left, monkeypatch)
    source.fails = True
    for asked in (2, 3):
        pass_by(asked * (RETRY_AFTER + 1), monkeypatch)
        assert [await used(chain) for _ in range(MANY)] == ["ID1"] * MANY
        assert source.asked == asked
    source.fails = False
    pass_by(4 * (RETRY_AFTER + 1), monkeypatch)
    assert await used(chain) == "ID4"
    assert source.searched == 1, "another search may find somebody else's keys"


async def test_who_gives_up_a_renewal_spares_the_next(
    chain: AwsCredentialChain, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, LATE[1], monkeypatch)
    source.hangs = True
    with anyio.move_on_after(LIMIT / 3) as impatient:
        await chain.keys()
    assert impatient.cancelled_caught
    ((had, limits),) = await ends(lambda: used(chain))
    assert had == "ID1"
    assert limits < 0.9
    assert source.asked == 2


@pytest.mark.slow
async def test_after_a_renewal_that_hangs_the_next_does_not_wait_for_it(
    chain: AwsCredentialChain, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, LATE[1], monkeypatch)
    source.hangs = True
    assert await used(chain) == "ID1"
    source.hangs = False
    pass_by(2 * (RETRY_AFTER + 1), monkeypatch)
    assert await used(chain) == "ID3"


async def test_keys_that_last_shortly_are_not_asked_for_each_time(
    chain: AwsCredentialChain, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.lasts = timedelta(minutes=12)
    had = await used(chain)
    asked = source.asked
    assert [await used(chain) for _ in range(MANY)] == [had] * MANY
    assert source.asked == asked
    pass_by(RETRY_AFTER + 1, monkeypatch)
    assert await used(chain) == f"ID{asked + 1}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hangs", "least", "found"),
    [(True, 0.9, f"none within {LIMIT:g} s"), (False, 0.0, "CredentialRetrievalError from container-role")],
)
@pytest.mark.parametrize("had_some", [False, True])
async def test_a_failure_is_shared_by_all_who_waited_for_it(
    chain: AwsCredentialChain, source: Source, *, hangs: bool, least: float, found: str, had_some: bool
) -> None:
    if had_some:
        await used(chain)
        source.now += source.lasts + timedelta(seconds=1)
    asked, source.hangs, source.fails = source.asked, hangs, True
    ended = await ends(*[lambda: used(chain)] * MANY)
    assert {had for had, _ in ended} == {found}
    assert all(least < limits < 5 for _, limits in ended)
    assert source.asked == asked + 1
    source.hangs = source.fails = False
    assert await used(chain) == f"ID{asked + 2}", "nothing rests that has nothing"


async def test_each_has_a_failure_of_its_own(chain: AwsCredentialChain, source: Source) -> None:
    source.fails, failed = True, list[NoCredentials]()

    async def ask() -> None:
        with pytest.raises(NoCredentials) as caught:
            await chain.keys()
        failed.append(caught.value)

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(ask)
    assert (len(set(map(id, failed))), source.asked) == (MANY, 1)
    assert "s3cret" not in str(failed[0])


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("error", "found"),
    [
        (None, "none in the environment, the shared files, a container or an instance"),
        (KeyError("s3cret"), "KeyError"),
        (ResponseParserError("s3cret"), "ResponseParserError"),
        (TimeoutError("s3cret"), "TimeoutError"),
        (RuntimeError("s3cret"), "RuntimeError"),
    ],
)
async def test_whatever_a_source_does_is_a_failure(
    chain: AwsCredentialChain, error: Exception | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: Session) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(Session, "get_credentials", find)
    assert await used(chain) == found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_keys_that_are_over_are_never_handed_out(
    chain: AwsCredentialChain, source: Source, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, LATE[2], monkeypatch)
    setattr(source, how, True)
    assert await used(chain) == "ID1"
    source.now += LATE[2]
    assert await used(chain) == "ID1", "to the very end"
    source.now += timedelta(microseconds=1)
    assert "ID" not in await used(chain)


@pytest.mark.slow
async def test_what_comes_after_it_was_given_up_lends_old_keys_no_time(
    chain: AwsCredentialChain, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    await late(chain, source, LATE[1], monkeypatch)
    source.hangs = True
    assert await used(chain) == "ID1"
    source.free.set()
    await anyio.sleep(LIMIT / 2)
    source.now += LATE[1] + timedelta(seconds=1)
    source.fails = True
    assert await used(chain) == "CredentialRetrievalError from container-role"


@pytest.mark.parametrize("had_some", [False, True])
async def test_keys_that_have_ended_when_they_come_are_none(
    chain: AwsCredentialChain, source: Source, *, had_some: bool
) -> None:
    if had_some:
        await used(chain)
        source.now += source.lasts + timedelta(seconds=1)
    source.lasts = timedelta(seconds=-1)
    assert await used(chain) == "keys that were expired on arrival: check this machine's clock"


async def test_whoever_is_cancelled_breaks_no_other(chain: AwsCredentialChain, source: Source) -> None:
    source.hangs = True

    async def impatient() -> str:
        with anyio.move_on_after(LIMIT / 3):
            return await used(chain)
        source.hangs = False
        return "gave up"

    ended = await ends(impatient, *[lambda: used(chain)] * MANY)
    assert [had for had, _ in ended] == ["gave up"] + ["ID2"] * MANY
    assert source.asked == 2


@pytest.mark.slow
async def test_nobody_waits_for_more_than_two_limits_whoever_is_cancelled(
    chain: AwsCredentialChain, source: Source
) -> None:
    source.hangs = True

    def impatient(limits: float) -> Callable[[], Awaitable[str]]:
        async def ask() -> str:
            with anyio.move_on_after(LIMIT * limits):
                return await used(chain)
            return "gave up"

        return ask

    # Each is cancelled shortly before its look would end.
    ended = await ends(*[impatient(0.8 * (one + 1)) for one in range(4)], lambda: used(chain))
    assert sorted(had for had, _ in ended)[:2] == ["gave up"] * 2
    assert max(limits for _, limits in ended) < 3.9
