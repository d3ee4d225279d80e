"""What FastAPI found wrong with a request, in words that repeat no value of it: that may be a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_NAMED: Final = 3
"""Wrong fields that are named."""
_SHOWN: Final = 40
"""Most characters of a key that are repeated."""

_SAYS: Final = {
    "extra_forbidden": "no such key is known",
    "json_invalid": "should be JSON",
    "missing": "is needed, and missing",
}
"""By kind of error of pydantic's, or of FastAPI's, where its own words do not fit."""
_EXPECTATION: Final = re.compile(r"\w+ (should (?:be|have) .*)", re.DOTALL)
"""Those of pydantic's texts that name what is expected; they repeat nothing."""


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Which fields are wrong, and what was expected of each.

    Args:
        errors: as in `RequestValidationError.errors()`.
    """
    named = "; ".join(_described(error) for error in errors[:_NAMED])
    return f"{named}; and more" if len(errors) > _NAMED else named


def _described(error: Mapping[str, Any]) -> str:
    # Behind what is no JSON FastAPI puts the offset at which that turned out.
    loc = error["loc"][:1] if error["type"] == "json_invalid" else error["loc"]
    expectation = _EXPECTATION.fullmatch(error["msg"])
    says = _SAYS.get(error["type"]) or (expectation[1] if expectation is not None else "is malformed")
    return f"{' '.join(str(part)[:_SHOWN] for part in loc)}: {says}"
