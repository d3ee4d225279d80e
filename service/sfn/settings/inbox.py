"""The section `inbox`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from sfn.settings import texts
from sfn.settings.kinds import File
from sfn.settings.quantities import PositiveDuration
from sfn.settings.section import Section


def _require_server(value: Path | None, info: ValidationInfo) -> Path | None:
    if value is not None and not texts.is_postgres(info.data.get("url", "postgresql://")):
        raise ValueError("no such key with an inbox in SQLite")
    return value


class InboxSettings(Section):
    """Where hints are kept.

    Attributes:
        url: `sqlite:///` and the path of a file; or a database of PostgreSQL, as libpq's URLs name it.
        password_file: a file with the password for that database, read for each new connection.
        event_retention: how long an event's id is known, and the event itself kept.
    """

    url: Annotated[str, AfterValidator(texts.validate_inbox_url)] = Field(default="sqlite:///sfn/inbox.db", repr=False)
    password_file: Annotated[File | None, AfterValidator(_require_server)] = None
    event_retention: PositiveDuration = timedelta(hours=72)

    @property
    def path(self) -> Path | None:
        """The inbox's file; None for an inbox in PostgreSQL."""
        return None if texts.is_postgres(self.url) else Path(texts.sqlite_path(self.url))
