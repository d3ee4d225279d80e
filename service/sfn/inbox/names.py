"""Count tables, not names: a renamed table has files under its old and its new name for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sfn.domain.identifiers import JobKey, normal_uuid
from sfn.domain.jobs import BackwardStep, StepKind


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table under one of its names.

    Attributes:
        name: the name.
        uuid: the table's uuid in its one spelling; None or empty where it is not known.
        is_renamed: an event or a sweep reported that the table of this name has another name now.
    """

    name: JobKey
    uuid: str | None
    is_renamed: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", normal_uuid(self.uuid))


def dropped_table(subject: JobKey, step: BackwardStep, *, is_renamed: bool) -> NamedTable | None:
    """Return the table that a step drops; None for a step that drops none.

    Args:
        subject: the name whose files the step changes.
        step: the step.
        is_renamed: see `NamedTable`.
    """
    return NamedTable(subject, step.uuid, is_renamed) if step.kind is StepKind.DROP else None


def without_old_names(found: Iterable[NamedTable]) -> list[NamedTable]:
    """Leave out the names that a table left by a rename, where another name stands for that table alone.

    An equal uuid alone proves no rename: two names may be registered for one metadata file, and each of them counts.
    A name that stands for several tables, as after a swap of names, stands for none of them alone.
    """
    names = list(found)
    if not any(one.is_renamed for one in names):
        return names
    uuids: defaultdict[JobKey, set[str | None]] = defaultdict(set)
    for one in names:
        uuids[one.name].add(one.uuid)
    alone: defaultdict[str | None, list[NamedTable]] = defaultdict(list)
    for one in names:
        if one.uuid and len(uuids[one.name]) == 1:
            alone[one.uuid].append(one)
    # Of old names only, the first one stays.
    first = {uuid: min((one.is_renamed, str(one.name)) for one in there) for uuid, there in alone.items()}
    return [
        one
        for one in names
        if not one.is_renamed or one.uuid not in first or first[one.uuid] >= (one.is_renamed, str(one.name))
    ]


def is_already_counted(drop: NamedTable | None, drops: Iterable[NamedTable]) -> bool:
    """Return whether a step drops a table whose drop under another name was allowed and counted.

    Args:
        drop: the table that the step drops; None for a step that drops none.
        drops: the drops that were allowed.
    """
    if drop is None or not drop.uuid:
        return False
    others = list(drops)
    return len(without_old_names([*others, drop])) <= len(without_old_names(others))


def counted_steps(steps: int, drops: Collection[NamedTable]) -> int:
    """Return how many of the allowed steps count.

    Args:
        steps: how many steps were allowed.
        drops: those of them that drop a table.
    """
    return steps - len(drops) + len(without_old_names(drops))
