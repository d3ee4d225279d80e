"""Figures that take longer to count than whoever asks for them waits."""

from __future__ import annotations

import anyio

from sfn.inbox.figures import Figures
from sfn.inbox.postgres.counting import Counted

FIGURES = Figures(tables={}, oldest_due={}, letters={}, tripped=frozenset())


class Slow:
    """Counts for a tenth of a second."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def count(self) -> Figures:
        self.begun += 1
        await anyio.sleep(0.1)
        self.ended += 1
        return FIGURES


async def test_what_nobody_waited_for_is_counted_all_the_same() -> None:
    slow = Slow()
    counted = Counted(slow.count, kept=10)
    with anyio.move_on_after(0.01) as gave_up:
        await counted()
    assert gave_up.cancelled_caught
    await counted.refresh()
    with anyio.fail_after(0.05):
        assert await counted() is FIGURES
    assert (slow.begun, slow.ended) == (2, 1)


async def test_what_nobody_asked_for_is_not_counted() -> None:
    slow = Slow()
    await Counted(slow.count, kept=10).refresh()
    assert slow.begun == 0
