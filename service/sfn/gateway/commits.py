"""Durable records of commits that pass a gateway: an intent before the commit is forwarded, the outcome after.

intent stored ──▶ forwarded ──▶ answered: the intent is closed, the tables are checked now
                      │
                      └──▶ no answer, an ambiguous one, or a crash of the gateway: the inbox schedules checks
                           until the commit can have no effect any more (`sfn.inbox`)
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

RETRY_INTERVAL: Final = 1.0
"""Seconds between two attempts."""
SENDER: Final = "gateway"
"""Sender of the notifications for owed sweeps."""

_log = structlog.stdlib.get_logger(__name__)


class OwedSweeps:
    """The catalogs that must be swept because the inbox did not record a commit.

    The sweeps are scheduled as soon as the inbox is available again.

    Args:
        inbox: the inbox.
    """

    def __init__(self, inbox: InboxWriter) -> None:
        self._inbox = inbox
        self._owed: dict[str, str] = {}
        self._wakeup = anyio.Event()

    def add(self, catalog: str, intent_id: str) -> None:
        """Schedule a sweep of a catalog as soon as possible, and further checks by an intent.

        The first sweep may be too early: a replica of the catalog lags, or the commit has not arrived there yet.

        Args:
            catalog: name of the catalog.
            intent_id: unique id for the intent.
        """
        # The latest id replaces earlier ones: the inbox may have stored an earlier one although its answer was lost.
        self._owed[catalog] = intent_id
        self._wakeup.set()

    async def run(self) -> None:
        """Put owed sweeps into the inbox, for ever.

        Raises:
            FatalError: the inbox can't be trusted any more.
        """
        while True:
            await self._wakeup.wait()
            # The event is replaced before `put_all`, so that a sweep that is added meanwhile wakes the loop again.
            self._wakeup = anyio.Event()
            if not await self.put_all():
                await anyio.sleep(RETRY_INTERVAL)
                self._wakeup.set()

    async def put_at_shutdown(self) -> None:
        """Try once more at the end of the process, and log the sweeps that are lost with it."""
        with suppress(FatalError), anyio.move_on_after(RETRY_INTERVAL, shield=True):
            await self.put_all()
        if self._owed:
            _log.error("owed sweeps lost", catalogs=sorted(self._owed), remedy="sfn reconcile")

    async def put_all(self) -> bool:
        """Put all owed sweeps into the inbox; return whether none is left."""
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
        # A sweep that was added meanwhile has another id and stays.
        self._owed = dict(self._owed.items() - owed.items())
        _log.info("owed sweeps scheduled", catalogs=sorted(owed))
        return not self._owed


_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def is_outcome_known(status: int) -> bool:
    """Return whether it is known from the status of an answer if the change was made."""
    return needs_check(status) or status in _REFUSED


def is_success(status: int) -> bool:
    """Return whether the change was made."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def needs_check(status: int) -> bool:
    """Return whether the tables must be checked after an answer with this status."""
    return is_success(status) or status == HTTPStatus.NOT_FOUND


def notifications_of(
    change: CatalogChange,
    tables: Sequence[TableIdentifier],
    catalog: str,
    sender: str,
    metadata_location: str | None,
    summary: bytes,
) -> list[Notification]:
    """Return the notifications for a successful change.

    Args:
        change: the requested change.
        tables: its tables, from `routes.tables_of_change`; none if unknown.
        catalog: name of the catalog.
        sender: name of the gateway.
        metadata_location: metadata location in the answer; None if it has none.
        summary: text for the last event of a table.
    """
    # Several tables of one path are alternative readings; renames and transactions name their tables in the body.
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


INBOX_TIMEOUT: Final = 5.0
"""Most seconds that a commit waits for the inbox. While PostgreSQL executes the transaction, the commit waits for its
end, even beyond this limit."""


class OnInboxFailure(StrEnum):
    """The treatment of a commit that the inbox cannot record."""

    PASS = "pass"  # noqa: S105 - no password
    """Forward it, and sweep its catalog repeatedly once the inbox is available."""
    REFUSE = "refuse"
    """Answer 503 without forwarding it."""


class GatewayCommitMetrics(Protocol):
    """Metrics of recorded commits."""

    def count_unrecorded(self) -> None:
        """Count a commit that was forwarded without a record."""
        ...


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit that passes the gateway.

    Attributes:
        change: the requested change.
        catalog: name of the catalog.
        tables: its tables; none if unknown.
        published_tables: the published ones of `tables`.
        peer: the client's address; "" if unknown.
        intent_id: id of the recorded intent; None if none was recorded.
    """

    change: CatalogChange
    catalog: str
    tables: tuple[TableIdentifier, ...]
    published_tables: tuple[TableIdentifier, ...] = ()
    peer: str = ""
    intent_id: str | None = None

    @property
    def subjects(self) -> tuple[JobKey, ...]:
        """The published tables, or the whole catalog if the tables are unknown."""
        return self.published_tables or (CatalogName(self.catalog),)


@dataclass(frozen=True, slots=True)
class IntentOptions:
    """Options for recording commits.

    Attributes:
        sender: name of the gateway, as sender of the notifications.
        on_failure: treatment of a commit that the inbox cannot record.
        new_id: function that returns a unique id.
    """

    sender: str
    on_failure: OnInboxFailure
    new_id: Callable[[], str]


class CommitRecorder:
    """The recorder of one gateway's commits.

    Args:
        options: options of the gateway.
        inbox: the inbox.
        owed_sweeps: catalogs to sweep once the inbox is available again.
        on_fatal: callback for an inbox that can't be trusted any more.
        metrics: counters of commits without a record.
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
        """The gateway's name, as its section in the settings."""
        return self._options.sender

    async def record_intent(self, commit: PendingCommit) -> PendingCommit:
        """Record an intent durably, before the commit is forwarded.

        Raises:
            Transient: scope inbox; the inbox is unavailable and the commit must be refused.
        """
        intent = self._intent(commit)
        error = await self._put([intent])
        if error is None:
            return replace(commit, intent_id=intent.id)
        if self._options.on_failure is OnInboxFailure.REFUSE:
            raise error
        _log.warning(
            "commit forwarded without an intent", gateway=self._options.sender, catalog=commit.catalog, error=str(error)
        )
        self._metrics.count_unrecorded()
        return commit

    async def record_outcome(
        self, commit: PendingCommit, status: int | None, metadata_location: str | None, summary: bytes
    ) -> None:
        """Record the outcome of a commit. If that fails, its intent or a sweep finds the outcome later.

        Args:
            commit: result of `record_intent`.
            status: HTTP status of the answer; None without an answer.
            metadata_location: metadata location in the answer; None if it has none.
            summary: text for the last event of a table.
        """
        is_known = status is not None and is_outcome_known(status)
        relevant: Sequence[Notification] = ()
        if status is not None and needs_check(status):
            notifications = notifications_of(
                commit.change, commit.tables, commit.catalog, self._options.sender, metadata_location, summary
            )
            relevant = [notification for notification in notifications if notification.subject in commit.subjects]
        messages: list[IntentOutcome | Intent] = []
        if commit.intent_id is not None:
            messages.append(IntentOutcome(commit.intent_id, is_known=is_known))
        elif not is_known:
            # Without an intent from before, checks start now: the commit may take effect long after this.
            messages.append(self._intent(commit))
        error = await self._put([*messages, *relevant]) if messages or relevant else None
        if error is not None:
            _log.warning("outcome of a commit not recorded", gateway=self._options.sender, error=str(error))
            if commit.intent_id is None:
                self._owed_sweeps.add(commit.catalog, self._options.new_id())

    async def record_not_sent(self, commit: PendingCommit) -> None:
        """Record that nothing of a commit was sent to the catalog."""
        if commit.intent_id is not None:
            error = await self._put([IntentOutcome(commit.intent_id, is_known=True)])
            if error is not None:
                _log.warning("outcome of a commit not recorded", gateway=self._options.sender, error=str(error))

    def _intent(self, commit: PendingCommit) -> Intent:
        return Intent(self._options.new_id(), commit.subjects, self._options.sender, commit.peer)

    async def _put(self, messages: Sequence[Notification | Intent | IntentOutcome]) -> Transient | None:
        """Put messages into the inbox; return the error, or None on success."""
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
