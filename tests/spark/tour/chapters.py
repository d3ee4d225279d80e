"""All chapters, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.spark.tour import creating, evolving, foldering, inserting, managing, selecting, travelling, walking
from tests.spark.tour.chapter import Chapter

_PARTS: Final = (creating, inserting, selecting, travelling, managing, evolving, walking, foldering)
CHAPTERS: Final[Sequence[Chapter]] = tuple(part.CHAPTER for part in _PARTS)
