"""Commits that pass through a gateway: what is noted before one is forwarded, and after it was answered."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.words.table import JobKey


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit is about to be forwarded. Until its outcome is known the catalog is asked for it, time and again.

    It is a row of its own: that another commit of the same table succeeded says nothing of this one.

    Attributes:
        id: of the request, and of no other ever.
        subjects: the tables that it may change; the catalog where these can't be told.
        sender: the gateway, as whom the hints are put that come of it.
        peer: whose intents for tables that were never seen are counted together: the client's address.
    """

    id: str
    subjects: tuple[JobKey, ...]
    sender: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class IntentOutcome:
    """The commit of an intent was answered, or is known never to be.

    Attributes:
        intent_id: its id.
        is_known: the outcome is known, whatever it is: the intent is closed. Else it stays open, and the times at which
            the catalog is asked are counted from now; nothing closes it any more.
    """

    intent_id: str
    is_known: bool
