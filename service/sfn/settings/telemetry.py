"""The section `telemetry`."""

from __future__ import annotations

from typing import Literal

from sfn.settings.section import Section


class TelemetrySettings(Section):
    """What the service tells about itself.

    Attributes:
        level: the least severity that is logged.
        format: JSON lines, text for people, or whichever fits where the log goes.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
