"""What may be put into the inbox."""

from __future__ import annotations

from typing import TypeAlias

from sfn.words.hint import Notification, UndecodableRequest
from sfn.words.intent import Intent, IntentOutcome

InboxMessage: TypeAlias = Notification | UndecodableRequest | Intent | IntentOutcome
