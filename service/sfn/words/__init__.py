"""The domain's words: frozen, checked values without behaviour of their own."""

from sfn.words.answer import AppliedChanges, Loaded, LoadResult, NoSuchTable, NotModified, StagedCreate, UnappliedChange
from sfn.words.claim import (
    Capacity,
    ConcurrencyGroup,
    LeasedJob,
    PendingChange,
    Priority,
    PublishCache,
    PublishedPointer,
    StoredObject,
    TableState,
)
from sfn.words.grant import VendedCredential
from sfn.words.hint import MAX_STORED_BODY, Notification, PutResult, UndecodableRequest
from sfn.words.intent import Intent, IntentOutcome
from sfn.words.note import InboxMessage
from sfn.words.outcome import (
    BackwardStep,
    DeadLettered,
    DeadLetterReason,
    Done,
    FailureCause,
    Outcome,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    StepKind,
    SweepCompleted,
    Wakeup,
)
from sfn.words.roster import IndexedTable
from sfn.words.table import CatalogName, JobKey, Table, TableIdentifier, is_in_namespaces, is_uuid, normal_uuid
from sfn.words.told import EventHistory, ReportedChange, TableHistory, TableOrigin

__all__ = [
    "MAX_STORED_BODY",
    "AppliedChanges",
    "BackwardStep",
    "Capacity",
    "CatalogName",
    "ConcurrencyGroup",
    "DeadLetterReason",
    "DeadLettered",
    "Done",
    "EventHistory",
    "FailureCause",
    "InboxMessage",
    "IndexedTable",
    "Intent",
    "IntentOutcome",
    "JobKey",
    "LeasedJob",
    "LoadResult",
    "Loaded",
    "NoSuchTable",
    "NotModified",
    "Notification",
    "Outcome",
    "PendingChange",
    "Priority",
    "PublishCache",
    "PublishResult",
    "PublishedPointer",
    "PutResult",
    "ReportedChange",
    "Rescheduled",
    "Retry",
    "Returned",
    "StagedCreate",
    "StepKind",
    "StoredObject",
    "SweepCompleted",
    "Table",
    "TableHistory",
    "TableIdentifier",
    "TableOrigin",
    "TableState",
    "UnappliedChange",
    "UndecodableRequest",
    "VendedCredential",
    "Wakeup",
    "is_in_namespaces",
    "is_uuid",
    "normal_uuid",
]
