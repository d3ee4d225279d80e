"""What the inbox is told of a commit that passes: an intent before it is forwarded, what came of it afterwards.

intent put ──▶ forwarded ──▶ answered: the intent is closed, the tables are looked at now
                   │
                   └──▶ no answer, or one that leaves it open, or our own death: the inbox has the catalog asked
                        again and again until nothing can come of it any more (`sfn.inbox`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol, assert_never

import anyio
import structlog

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.gateway.routes import CatalogChange, ChangeKind
from sfn.inbox import InboxWriter

# ── Owed sweeps

RETRY_INTERVAL: Final = 1.0
"""Seconds from one try to the next."""
SENDER: Final = "gateway"
"""As whom debts are paid."""

_log = structlog.stdlib.get_logger(__name__)


class OwedSweeps:
    """What is owed to an inbox, and paid once it takes something again.

    Args:
        inbox: the inbox.
    """

    def __init__(self, inbox: InboxWriter) -> None:
        self._inbox = inbox
        self._owed: dict[str, str] = {}
        self._wakeup = anyio.Event()

    def add(self, catalog: str, intent_id: str) -> None:
        """Have a catalog swept as soon as can be, and when an intent of it is asked for.

        A first sweep may come too early: a replica of the catalog lags, or the commit is still on its way there.

        Args:
            intent_id: the intent's id, which nobody else has.
        """
        # The last one's: an earlier one may have been opened by a payment of which nobody knows.
        self._owed[catalog] = intent_id
        self._wakeup.set()

    async def run(self) -> None:
        """Pay whatever comes up, for ever.

        Raises:
            FatalError: the inbox can't be trusted any more.
        """
        while True:
            await self._wakeup.wait()
            # Before looking: what is owed meanwhile rings again.
            self._wakeup = anyio.Event()
            if not await self.put_all():
                await anyio.sleep(RETRY_INTERVAL)
                self._wakeup.set()

    async def put_at_shutdown(self) -> None:
        """One more try, for a moment: the process ends, and what is owed still is forgotten with it."""
        with suppress(FatalError), anyio.move_on_after(RETRY_INTERVAL, shield=True):
            await self.put_all()
        if self._owed:
            _log.error("sweeps owed and forgotten", catalogs=sorted(self._owed), remedy="sfn reconcile")

    async def put_all(self) -> bool:
        """Return whether nothing is owed any more."""
        owed = dict(self._owed)
        if not owed:
            return True
        messages: list[InboxMessage] = []
        for catalog, intent_id in sorted(owed.items()):
            subject = CatalogName(catalog)
            messages += [Intent(intent_id, (subject,), SENDER), Notification(subject, SENDER)]
        try:
            await self._inbox.put(messages)
        except Transient:
            return False
        # What came to be owed meanwhile has a number of its own.
        self._owed = dict(self._owed.items() - owed.items())
        _log.info("sweeps made up for commits that were not noted", catalogs=sorted(owed))
        return not self._owed


# ── Outcome of a change

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def is_outcome_known(status: int) -> bool:
    """Return whether an answer says what became of the change."""
    return needs_check(status) or status in _REFUSED


def is_success(status: int) -> bool:
    """Return whether the change was made."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def needs_check(status: int) -> bool:
    """Return whether its tables are to be looked at because of it."""
    return is_success(status) or status == HTTPStatus.NOT_FOUND


def notifications_of(
    change: CatalogChange,
    tables: Sequence[TableIdentifier],
    catalog: str,
    sender: str,
    metadata_location: str | None,
    summary: bytes,
) -> list[Notification]:
    """What an answer that is news tells.

    Args:
        change: what was asked for.
        tables: its tables, as of `naming.tables`; none where they can't be told.
        catalog: our name of the catalog.
        sender: the gateway.
        metadata_location: metadata location in the answer.
        summary: for whoever asks what was told of a table last.
    """
    # Several readings of one path; the bodies of renames and transactions name tables level by level.
    is_guessed = len(tables) > 1 and change.kind not in {ChangeKind.RENAME, ChangeKind.TRANSACTION}
    if not tables:
        return [Notification(CatalogName(catalog), sender, body=summary)]
    match change.kind:
        case ChangeKind.CREATE | ChangeKind.REGISTER:
            origin = TableOrigin.CREATE if change.kind is ChangeKind.CREATE else TableOrigin.REGISTER
            return [
                Notification(
                    name,
                    sender,
                    min_metadata_location=metadata_location,
                    origin=origin,
                    is_guessed=is_guessed,
                    body=summary,
                )
                for name in tables
            ]
        case ChangeKind.DROP | ChangeKind.UNREGISTER:
            return [
                Notification(name, sender, drop=True, purge=change.purge, is_guessed=is_guessed, body=summary)
                for name in tables
            ]
        case ChangeKind.RENAME:
            old, new = tables[0], tables[-1]
            return [
                Notification(old, sender, renamed_to=new, body=summary),
                Notification(new, sender, renamed_from=old, body=summary),
            ]
        case (
            ChangeKind.COMMIT
            | ChangeKind.TRANSACTION
            | ChangeKind.NAMESPACE
            | ChangeKind.NOTIFICATION
            | ChangeKind.RESTORE
        ):
            return [
                Notification(name, sender, min_metadata_location=metadata_location, is_guessed=is_guessed, body=summary)
                for name in tables
            ]
    assert_never(change.kind)


# ── Recording commits

INBOX_TIMEOUT: Final = 5.0
"""Seconds that a commit waits for the inbox. Once PostgreSQL has its transaction it waits for the end of that, however
long the inbox itself waits for one."""


class OnInboxFailure(StrEnum):
    """What becomes of a commit that the inbox can't note."""

    PASS = "pass"  # noqa: S105 - no password
    """It goes through, and its catalog is swept, again and again, once the inbox answers."""
    REFUSE = "refuse"
    """It is answered with 503, and nothing was done."""


class GatewayCommitMetrics(Protocol):
    """Told of what can't be noted."""

    def count_unrecorded(self) -> None:
        """Return a commit went through that the inbox did not take."""
        ...


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit on its way.

    Attributes:
        change: what is asked for.
        catalog: our name of the catalog.
        tables: its tables; none where they can't be told.
        published_tables: those of them that are published.
        peer: the client's address, "" where it is not known.
        intent_id: id of what was noted of it; None where nothing was.
    """

    change: CatalogChange
    catalog: str
    tables: tuple[TableIdentifier, ...]
    published_tables: tuple[TableIdentifier, ...] = ()
    peer: str = ""
    intent_id: str | None = None

    @property
    def subjects(self) -> tuple[JobKey, ...]:
        """What is to be looked at."""
        return self.published_tables or (CatalogName(self.catalog),)


@dataclass(frozen=True, slots=True)
class IntentOptions:
    """How commits are noted.

    Attributes:
        sender: the gateway, as whom hints are put.
        on_failure: what becomes of a commit that the inbox does not take.
        new_id: makes an id that nobody else has.
    """

    sender: str
    on_failure: OnInboxFailure
    new_id: Callable[[], str]


class CommitRecorder:
    """Notes the commits of one gateway.

    Args:
        options: how.
        inbox: the inbox.
        owed_sweeps: remembers which catalogs are to be swept, where the inbox takes nothing.
        on_fatal: told once the inbox can't be trusted any more.
        metrics: told of what went through without.
    """

    def __init__(
        self,
        options: IntentOptions,
        inbox: InboxWriter,
        owed_sweeps: OwedSweeps,
        on_fatal: Callable[[FatalError], None],
        metrics: GatewayCommitMetrics,
    ) -> None:
        self._options, self._inbox, self._owed_sweeps = options, inbox, owed_sweeps
        self._on_fatal, self._metrics = on_fatal, metrics

    @property
    def name(self) -> str:
        """The gateway, as the settings call it."""
        return self._options.sender

    async def record_intent(self, commit: PendingCommit) -> PendingCommit:
        """Note a commit durably, before it is forwarded.

        Raises:
            Transient: scope inbox: it can't be noted, and is to be refused then.
        """
        intent = self._intent(commit)
        error = await self._put([intent])
        if error is None:
            return replace(commit, intent_id=intent.id)
        if self._options.on_failure is OnInboxFailure.REFUSE:
            raise error
        _log.warning(
            "commit passes without a note", gateway=self._options.sender, catalog=commit.catalog, error=str(error)
        )
        self._metrics.count_unrecorded()
        return commit

    async def record_outcome(
        self, commit: PendingCommit, status: int | None, metadata_location: str | None, summary: bytes
    ) -> None:
        """Note what came of a commit; what can't be noted now is found by its intent, or by a sweep.

        Args:
            commit: as `before` gave it.
            status: HTTP status of the answer, None where there was none.
            metadata_location: metadata location in the answer.
            summary: for whoever asks what was told of a table last.
        """
        known = status is not None and is_outcome_known(status)
        news: Sequence[Notification] = ()
        if status is not None and needs_check(status):
            notifications = notifications_of(
                commit.change, commit.tables, commit.catalog, self._options.sender, metadata_location, summary
            )
            news = [notification for notification in notifications if notification.subject in commit.subjects]
        messages: list[IntentOutcome | Intent] = []
        if commit.intent_id is not None:
            messages.append(IntentOutcome(commit.intent_id, is_known=known))
        elif not known:
            # Of what was not noted before somebody asks from now on: it may be done long after this.
            messages.append(self._intent(commit))
        error = await self._put([*messages, *news]) if messages or news else None
        if error is not None:
            _log.warning("outcome of a commit not noted", gateway=self._options.sender, error=str(error))
            if commit.intent_id is None:
                self._owed_sweeps.add(commit.catalog, self._options.new_id())

    async def record_not_sent(self, commit: PendingCommit) -> None:
        """Note that nothing of a commit left this process."""
        if commit.intent_id is not None:
            error = await self._put([IntentOutcome(commit.intent_id, is_known=True)])
            if error is not None:
                _log.warning("outcome of a commit not noted", gateway=self._options.sender, error=str(error))

    def _intent(self, commit: PendingCommit) -> Intent:
        return Intent(self._options.new_id(), commit.subjects, self._options.sender, commit.peer)

    async def _put(self, messages: Sequence[Notification | Intent | IntentOutcome]) -> Transient | None:
        """Why the inbox did not take it; None if it did."""
        try:
            with anyio.fail_after(INBOX_TIMEOUT):
                await self._inbox.put(messages)
        except Transient as trouble:
            return trouble
        except TimeoutError:
            found = f"none within {INBOX_TIMEOUT:g} s"
            return Transient("inbox", scope=ErrorScope.INBOX, expected="an answer", found=found, retry_after=1.0)
        except FatalError as broken:
            self._on_fatal(broken)
            return Transient(
                "inbox", scope=ErrorScope.INBOX, expected=broken.expected, found=broken.found, retry_after=1.0
            )
        return None
