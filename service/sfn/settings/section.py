"""What every section of the settings has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
