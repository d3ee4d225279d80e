"""The rules of several replicas: who may have a row when, and who takes it back from the dead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.inbox.model import Job, JobState
from sfn.inbox.postgres.job_queue import POLLED
from tests.simulation.database.server import Server
from tests.simulation.database.session import Session

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service

SKEW: Final = timedelta(seconds=1)
"""Between the clocks of two processes, at most."""
LOOK: Final = timedelta(seconds=2)
"""For the look that finds a lease which ran out, once it is time for it."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A claim that was made.

    Attributes:
        node: by which process; None for none of the service's.
        at: seconds since the world began.
    """

    node: Node | None
    at: float


class Rules:
    """Looks at each transaction as it ends well, and at each sweep as it begins.

    Args:
        service: whose inbox it is.
        server: where it is.
    """

    def __init__(self, service: Service, server: Server) -> None:
        self._service, self._server = service, server
        self._granted: dict[tuple[JobKey, int], Granted] = {}
        self._taken_back: set[tuple[JobKey, int]] = set()
        server.committing = self.committing

    def committing(self, session: Session) -> None:
        """A transaction is about to be seen: no row that somebody has is taken from him, no claim is made twice."""
        rows = self._server.tables.rows
        for subject, stored in session.changes.of(rows).items():
            then, after = rows.committed.get(subject), stored.row if stored is not None else None
            before = then.row if then is not None else None
            if before is not None and before.state is JobState.LEASED and _changes_hands(before, after):
                self._see_it_may(session, before)
            if (
                after is not None
                and after.state is JobState.LEASED
                and (before is None or before.fencing_token != after.fencing_token)
            ):
                if (subject, after.fencing_token) in self._granted:
                    self._server.blame("a claim that was made before", f"{subject} {after.fencing_token}")
                self._granted[subject, after.fencing_token] = Granted(session.node, self._server.loop.time())

    def claims(self, subject: JobKey) -> list[Granted]:
        """The claims of a row that were made, in order."""
        return [granted for (other, _), granted in self._granted.items() if other == subject]

    def sweeping(self, node: Node) -> None:
        """A process begins to list its catalog: for a claim that it was given, which nobody else has."""
        name = CatalogName(self._service.truth.name)
        (claim,) = (one for one in node.worker._leases.running() if one.subject == name)
        granted = self._granted.get((name, claim.fencing_token))
        if granted is None or granted.node is not node:
            self._server.blame("a sweep out of turn", f"claim {claim.fencing_token} of {name} is not on disk")

    def look(self) -> None:
        """See that no lease has run out for longer than somebody who lives needs to find it."""
        now = self._server.loop.now()
        for stored in self._server.tables.rows.committed.values():
            row = stored.row
            late = row.lease_until is not None and row.lease_until + POLLED + LOOK < now
            if row.state is JobState.LEASED and late and (row.subject, row.fencing_token) not in self._taken_back:
                self._taken_back.add((row.subject, row.fencing_token))
                self._server.blame("a lease that nobody takes back", f"{row.subject} until {row.lease_until}")

    def wrong(self, swept_since: datetime | None) -> list[tuple[str, str]]:
        """What is wrong when nothing happens.

        Args:
            swept_since: when the catalog was swept last at the earliest; None for one that is not.
        """
        newest: dict[JobKey, int] = {}
        for entry in self._server.tables.events.committed.values():
            newest[entry.notification.subject] = max(entry.seq, newest.get(entry.notification.subject, 0))
        rows = {subject: stored.row for subject, stored in self._server.tables.rows.committed.items()}
        behind = [subject for subject in rows if rows[subject].notified_seq < newest.get(subject, 0)]
        found = [("behind its events", str(subject)) for subject in behind if isinstance(subject, TableIdentifier)]
        found += [("changed without a lock", what) for what in self._server.breaches]
        swept = self._server.tables.catalogs.committed.get(self._service.truth.name)
        swept_at = swept.sweep.started_at if swept is not None and swept.sweep is not None else None
        if swept_since is not None and (swept_at is None or swept_at < swept_since):
            found.append(("nobody sweeps", f"since {swept_at}"))
        return found

    def _see_it_may(self, session: Session, before: Job) -> None:
        """Who has it ends or prolongs it, or it ran out, or an operator wants it."""
        granted = self._granted.get((before.subject, before.fencing_token))
        is_its_own = granted is not None and granted.node is session.node
        ran_out = before.lease_until is None or before.lease_until <= self._server.loop.now() + SKEW
        if not is_its_own and not ran_out and not session.is_ordered:
            self._server.blame("a lease of another one was changed", f"{before.subject} until {before.lease_until}")


def _changes_hands(before: Job, after: Job | None) -> bool:
    """Whether a lease ends, or lasts longer than it did."""
    if after is None or after.state is not JobState.LEASED or after.fencing_token != before.fencing_token:
        return True
    return after.lease_until != before.lease_until
