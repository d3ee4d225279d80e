"""What a reader showed, in words that are the same on each day and machine."""

from __future__ import annotations

import json
import re
from collections import Counter

from tests.integration.readers.readers import Place, Reader, Rows

SAME = "same rows"
REFUSES = "refuses"
_LONGEST = 160
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def outcome(reader: Reader, place: Place, now: Rows, before: Rows) -> str:
    """What comes of reading a place.

    Args:
        now: the rows through the catalog; none of a table that was dropped.
        before: those that were there when this place was read last.

    Returns:
        `same rows`, `old rows` (those before), `refuses: why`, or how many rows are wrong.
    """
    try:
        found = _counted(reader.read(place))
    except Exception as error:  # noqa: BLE001 - each reader has errors of its own, and each is a refusal
        return f"{REFUSES}: {_why(error, place)}"
    if found == (wanted := _counted(now)):
        return SAME
    if found == _counted(before):
        return "old rows"
    return f"wrong rows: {(found - wanted).total()} too many, {(wanted - found).total()} missing"


def _counted(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


def _why(error: Exception, place: Place) -> str:
    """The first line of an error, without what is another in each run."""
    line = str(error).strip().partition("\n")[0]
    for path, name in ((place.file, "<file>"), (place.directory, "<directory>")):
        line = line.replace(path.as_uri(), name).replace(str(path), name)
    line = _TIME.sub("<time>", line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
