"""The section `inbox`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from sfn.settings import texts
from sfn.settings.quantities import PositiveDuration
from sfn.settings.section import Section


class InboxSettings(Section):
    """Where hints are kept.

    Attributes:
        url: `sqlite:///` and the path of a file.
        event_retention: how long an event's id is known, and the event itself kept.
    """

    url: Annotated[str, AfterValidator(texts.sqlite_url)] = "sqlite:///sfn/inbox.db"
    event_retention: PositiveDuration = timedelta(hours=72)

    @property
    def path(self) -> Path:
        """The inbox's file."""
        return Path(texts.sqlite_path(self.url))
