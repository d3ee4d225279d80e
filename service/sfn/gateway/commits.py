"""What the inbox is told of a commit that passes: an intent before it is forwarded, what came of it afterwards.

intent put ──▶ forwarded ──▶ answered: the intent is closed, the tables are looked at now
                   │
                   └──▶ no answer, or one that leaves it open, or our own death: the inbox has the catalog asked
                        again and again until nothing can come of it any more (`sfn.inbox`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import anyio
import structlog

from sfn.errors import Broken, Scope, Transient
from sfn.gateway import outcome
from sfn.gateway.debts import Debts
from sfn.gateway.recognise import Change
from sfn.inbox import Intake
from sfn.words import Answered, CatalogName, Hint, Intent, Subject, TableName

PATIENCE: Final = 5.0
"""Seconds that a commit waits for the inbox. Once PostgreSQL has its transaction it waits for the end of that, however
long the inbox itself waits for one."""

_log = structlog.stdlib.get_logger(__name__)


class OnInboxFailure(StrEnum):
    """What becomes of a commit that the inbox can't note."""

    PASS = "pass"  # noqa: S105 - no password
    """It goes through, and its catalog is swept, again and again, once the inbox answers."""
    REFUSE = "refuse"
    """It is answered with 503, and nothing was done."""


class Counted(Protocol):
    """Told of what can't be noted."""

    def unnoted(self) -> None:
        """A commit went through that the inbox did not take."""
        ...


@dataclass(frozen=True, slots=True)
class Noted:
    """A commit on its way.

    Attributes:
        change: what is asked for.
        catalog: our name of the catalog.
        named: its tables; none where they can't be told.
        concerned: those of them that are published.
        peer: the client's address, "" where it is not known.
        intent: id of what was noted of it; None where nothing was.
    """

    change: Change
    catalog: str
    named: tuple[TableName, ...]
    concerned: tuple[TableName, ...] = ()
    peer: str = ""
    intent: str | None = None

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """What is to be looked at."""
        return self.concerned or (CatalogName(self.catalog),)


@dataclass(frozen=True, slots=True)
class Noting:
    """How commits are noted.

    Attributes:
        sender: the gateway, as whom hints are put.
        on_failure: what becomes of a commit that the inbox does not take.
        token: makes an id that nobody else has.
    """

    sender: str
    on_failure: OnInboxFailure
    token: Callable[[], str]


class Commits:
    """Notes the commits of one gateway.

    Args:
        noting: how.
        intake: the inbox.
        debts: remembers which catalogs are to be swept, where the inbox takes nothing.
        on_broken: told once the inbox can't be trusted any more.
        counted: told of what went through without.
    """

    def __init__(
        self,
        noting: Noting,
        intake: Intake,
        debts: Debts,
        on_broken: Callable[[Broken], None],
        counted: Counted,
    ) -> None:
        self._noting, self._intake, self._debts = noting, intake, debts
        self._on_broken, self._counted = on_broken, counted

    @property
    def name(self) -> str:
        """The gateway, as the settings call it."""
        return self._noting.sender

    async def before(self, commit: Noted) -> Noted:
        """Note a commit durably, before it is forwarded.

        Raises:
            Transient: scope inbox: it can't be noted, and is to be refused then.
        """
        intent = self._intent(commit)
        trouble = await self._put([intent])
        if trouble is None:
            return replace(commit, intent=intent.id)
        if self._noting.on_failure is OnInboxFailure.REFUSE:
            raise trouble
        _log.warning(
            "commit passes without a note", gateway=self._noting.sender, catalog=commit.catalog, error=str(trouble)
        )
        self._counted.unnoted()
        return commit

    async def after(self, commit: Noted, status: int | None, floor: str | None, said: bytes) -> None:
        """Note what came of a commit; what can't be noted now is found by its intent, or by a sweep.

        Args:
            commit: as `before` gave it.
            status: HTTP status of the answer, None where there was none.
            floor: metadata location in the answer.
            said: for whoever asks what was told of a table last.
        """
        known = status is not None and outcome.is_known(status)
        news: Sequence[Hint] = ()
        if status is not None and outcome.is_news(status):
            told = outcome.hints(commit.change, commit.named, commit.catalog, self._noting.sender, floor, said)
            news = [hint for hint in told if hint.subject in commit.subjects]
        notes: list[Answered | Intent] = []
        if commit.intent is not None:
            notes.append(Answered(commit.intent, known=known))
        elif not known:
            # Of what was not noted before somebody asks from now on: it may be done long after this.
            notes.append(self._intent(commit))
        trouble = await self._put([*notes, *news]) if notes or news else None
        if trouble is not None:
            _log.warning("outcome of a commit not noted", gateway=self._noting.sender, error=str(trouble))
            if commit.intent is None:
                self._debts.owe(commit.catalog, self._noting.token())

    async def undone(self, commit: Noted) -> None:
        """Note that nothing of a commit left this process."""
        if commit.intent is not None:
            trouble = await self._put([Answered(commit.intent, known=True)])
            if trouble is not None:
                _log.warning("outcome of a commit not noted", gateway=self._noting.sender, error=str(trouble))

    def _intent(self, commit: Noted) -> Intent:
        return Intent(self._noting.token(), commit.subjects, self._noting.sender, commit.peer)

    async def _put(self, notes: Sequence[Hint | Intent | Answered]) -> Transient | None:
        """Why the inbox did not take it; None if it did."""
        try:
            with anyio.fail_after(PATIENCE):
                await self._intake.put(notes)
        except Transient as trouble:
            return trouble
        except TimeoutError:
            found = f"none within {PATIENCE:g} s"
            return Transient("inbox", scope=Scope.INBOX, expected="an answer", found=found, retry_after=1.0)
        except Broken as broken:
            self._on_broken(broken)
            return Transient("inbox", scope=Scope.INBOX, expected=broken.expected, found=broken.found, retry_after=1.0)
        return None
