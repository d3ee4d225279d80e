"""The section `telemetry`."""

from __future__ import annotations

from typing import Literal

from sfn.settings.kinds import File, Token
from sfn.settings.section import Section


class TelemetrySettings(Section):
    """What the service tells about itself.

    Attributes:
        level: the least severity that is logged.
        format: JSON lines, text for people, or whichever fits where the log goes.
        metrics_token: bearer token that opens `/metrics`, `metrics_token_file` a file with such tokens, one a line;
            without either it is open to everybody who reaches the listener.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    metrics_token: Token | None = None
    metrics_token_file: File | None = None
