"""The domain's words: frozen, checked values without behaviour of their own."""

from sfn.words.answer import Answer, Hearing, Loaded, Missing, NotModified, Unheard, Unwritten
from sfn.words.claim import Claim, Held, Lane, Memo, Published, Slots, Story, Urgency, Wish
from sfn.words.grant import Grant
from sfn.words.hint import BODY_KEPT, Accepted, Hint, Undecodable
from sfn.words.intent import Answered, Intent
from sfn.words.note import Note
from sfn.words.outcome import (
    Ask,
    Backward,
    Cause,
    Dead,
    Done,
    Findings,
    Later,
    Outcome,
    Reason,
    Released,
    Retry,
    Step,
    Swept,
)
from sfn.words.roster import Known
from sfn.words.table import CatalogName, Subject, Table, TableName, is_uuid, lies_below, normal_uuid
from sfn.words.told import Birth, Telling, Told, ToldTable

__all__ = [
    "BODY_KEPT",
    "Accepted",
    "Answer",
    "Answered",
    "Ask",
    "Backward",
    "Birth",
    "CatalogName",
    "Cause",
    "Claim",
    "Dead",
    "Done",
    "Findings",
    "Grant",
    "Hearing",
    "Held",
    "Hint",
    "Intent",
    "Known",
    "Lane",
    "Later",
    "Loaded",
    "Memo",
    "Missing",
    "NotModified",
    "Note",
    "Outcome",
    "Published",
    "Reason",
    "Released",
    "Retry",
    "Slots",
    "Step",
    "Story",
    "Subject",
    "Swept",
    "Table",
    "TableName",
    "Telling",
    "Told",
    "ToldTable",
    "Undecodable",
    "Unheard",
    "Unwritten",
    "Urgency",
    "Wish",
    "is_uuid",
    "lies_below",
    "normal_uuid",
]
