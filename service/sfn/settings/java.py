"""Where this machine's Java is, if somebody said so."""

from __future__ import annotations

import os


def java_home() -> str | None:
    """The variable `JAVA_HOME`, by which whatever starts a Java finds it; None where it is not set."""
    return os.environ.get("JAVA_HOME") or None
