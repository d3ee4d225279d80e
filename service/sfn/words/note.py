"""What may be put into the inbox."""

from __future__ import annotations

from typing import TypeAlias

from sfn.words.hint import Hint, Undecodable
from sfn.words.intent import Answered, Intent

Note: TypeAlias = Hint | Undecodable | Intent | Answered
