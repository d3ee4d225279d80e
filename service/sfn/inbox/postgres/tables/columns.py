"""The columns of a row in PostgreSQL, and the statements that write several rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sfn.domain.identifiers import JobKey
from sfn.inbox.codec import JOB_COLUMNS, encode_changes, encode_column, encode_strings, to_micros_or_none
from sfn.inbox.model import Job, is_renamed, table_missing_since
from sfn.inbox.postgres.tables.values import address, text, text_or_none

LOCATIONS: Final = "locations"
TYPES: Final = {
    **dict.fromkeys(JOB_COLUMNS.split(", "), "bigint"),
    **dict.fromkeys(("state", "reason", "live_uuid", "live_location"), "text"),
    **dict.fromkeys(("said", "wish", "story", LOCATIONS), "bytea"),
    **dict.fromkeys(("attempt", "crashes", "lane"), "int"),
    "missing_since": "bigint",
    "renamed": "boolean",
}
"""Every column but a row's key, name and catalog."""
_ORDER: Final = {name: number for number, name in enumerate(TYPES)}

_WHOLE: Final = {"key": "text", "name": "text", "catalog": "text", **TYPES}
INSERT: Final = (
    f"INSERT INTO sfn.subject({', '.join(_WHOLE)}) SELECT * FROM "
    f"unnest({', '.join(f'${number}::{kind}[]' for number, kind in enumerate(_WHOLE.values(), start=1))}) "
    f'AS new({", ".join(_WHOLE)}) ORDER BY key COLLATE "C" ON CONFLICT (key) DO NOTHING'
)
"""Makes rows that are not there; takes what `whole` gives."""


@cache
def update(names: tuple[str, ...]) -> str:
    """Changes these columns of several rows; takes what `changed` gives."""
    values = ", ".join(f"${number}::{TYPES[name]}[]" for number, name in enumerate(names, start=2))
    return (
        f"UPDATE sfn.subject AS row SET {', '.join(map(_assigned, names))} "
        f"FROM unnest($1::text[], {values}) AS new(key, {', '.join(names)}) WHERE row.key = new.key"
    )


def whole(rows: Sequence[Job], lanes: Mapping[JobKey, int]) -> list[Sequence[object]]:
    """The values of new rows, column by column."""
    named = [address(row.subject) for row in rows]
    keys, names = [key for key, _ in named], [name for _, name in named]
    return [
        keys,
        names,
        [row.subject.catalog for row in rows],
        *([_value(row, name, lanes) for row in rows] for name in TYPES),
    ]


def changed(
    pairs: Sequence[tuple[Job, Job]], lanes: Mapping[JobKey, int]
) -> tuple[tuple[str, ...], list[Sequence[object]]]:
    """In which columns rows differ from what they were; and the rows' addresses, and their values column by column.

    Args:
        lanes: those of rows that go into another one.
    """
    differing = [(after, _differences(before, after, lanes)) for before, after in pairs]
    differing = [(row, values) for row, values in differing if values]
    names = tuple(sorted({name for _, values in differing for name in values}, key=_ORDER.__getitem__))
    # One statement writes the same columns of all its rows: what a row does not differ in is written as it is.
    columns = [
        [values[name] if name in values else _value(row, name, lanes) for row, values in differing] for name in names
    ]
    return names, [[address(row.subject)[0] for row, _ in differing], *columns]


def _differences(before: Job, after: Job, lanes: Mapping[JobKey, int]) -> dict[str, Any]:
    values = encode_changes(after, before)
    if "live_uuid" in values:
        values |= {name: text_or_none(values[name]) for name in ("live_uuid", "live_location")}
    if after.locations is not before.locations:
        values[LOCATIONS] = encode_strings(after.locations)
    if after.subject in lanes:
        values["lane"] = lanes[after.subject]
    return values


def _value(row: Job, name: str, lanes: Mapping[JobKey, int]) -> object:
    live = row.table_state.live
    match name:
        case "lane":
            return lanes.get(row.subject)
        case "locations":
            return encode_strings(row.locations)
        case "missing_since":
            return to_micros_or_none(table_missing_since(row.table_state))
        case "renamed":
            return is_renamed(row) or None
        case "live_uuid":
            return text_or_none(live.uuid) if live is not None else None
        case "live_location":
            return text(live.location) if live is not None else None
        case _:
            return encode_column(row, name)


def _assigned(name: str) -> str:
    return "lane = coalesce(new.lane, row.lane)" if name == "lane" else f"{name} = new.{name}"
