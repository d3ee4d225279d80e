"""Other names of one place: by a link, a mount or another scheme two locations lead to the same directory.

Two names of one place look like two places with equal copies, until one of the two is written. So two files
that have the same bytes under two names are taken for one file, and only one of its names is written. Each document
carries the time of the catalog's answer, so what is written differs from what was there: when the plan is carried out
the protocol reads the other name (`ReadPlan.aliases`). It shows the same bytes if both names are of one place. If it
shows the old bytes it is a copy, the plan is decided again, and the two differ from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sfn.domain.jobs import LeasedJob
from sfn.publish.changes import FileChange, Put
from sfn.publish.facts import Observations
from sfn.publish.own import TableFiles
from sfn.sfnfile.naming import FileLayout


@dataclass(frozen=True, slots=True)
class Alias:
    """One file under two names.

    Attributes:
        key: by the name that is written.
        other: by the other one.
        layout: where the file belongs, by the name that is written.
    """

    key: str
    other: str
    layout: FileLayout


def find_aliases(
    job: LeasedJob, layout: FileLayout | None, existing: Sequence[TableFiles], observations: Observations
) -> dict[FileLayout, Alias]:
    """The sites of our files that are, as far as can be told, other names of one of the other sites.

    The name that is written is the table's, or else the one that was published last, or the first one.

    Args:
        layout: where the table's files belong.
    """
    live = job.table_state.live
    home = layout.location if layout is not None else live.location if live is not None else None
    known: dict[FileLayout, None] = {} if layout is None else {layout: None}
    found: dict[FileLayout, Alias] = {}
    for table_files in sorted(
        existing, key=lambda table_files: (table_files.layout.location != home, table_files.layout.encoded)
    ):
        main_file = table_files.main_file
        if main_file is None or table_files.layout in found:
            continue
        for other in known:
            # A location below a root is no directory of a table's.
            if (
                other.location == table_files.layout.location
                or other.has_version_hint is not table_files.layout.has_version_hint
            ):
                continue
            key = key_at_location(table_files, main_file.key, other.location)
            stored = observations.file(key)
            if stored is not None and stored.body == main_file.stored.body:
                found[table_files.layout] = Alias(
                    key, main_file.key, replace(table_files.layout, location=other.location)
                )
                break
        else:
            known[table_files.layout] = None
    return found


def key_at_location(table_files: TableFiles, key: str, location: str) -> str:
    """The key of one of our files if its site were at another location."""
    return replace(table_files.layout, location=location).folder + key.removeprefix(table_files.layout.folder)


def is_same_file(one: TableFiles, other: TableFiles) -> bool:
    """Whether the leading files of two sites are, as far as can be told, one file."""
    if one.key == other.key:
        return True
    are_called_alike = one.key.rpartition("/")[2] == other.key.rpartition("/")[2]
    held = one.stored
    return are_called_alike and held is not None and other.stored is not None and held.body == other.stored.body


def tested_aliases(aliases: Mapping[FileLayout, Alias], changes: Iterable[FileChange]) -> dict[FileLayout, Alias]:
    """The aliases that these changes prove or refute: a file that has other bytes afterwards."""
    changed = {
        change.key
        for change in changes
        if not isinstance(change, Put) or change.replacing is None or change.body != change.replacing.body
    }
    return {layout: alias for layout, alias in aliases.items() if alias.key in changed}


def duplicate_layouts(
    job: LeasedJob, layout: FileLayout | None, proven: Mapping[FileLayout, Alias], vacated: AbstractSet[str]
) -> set[str]:
    """The row's texts of sites that the row knows by another name, or in another spelling, as well.

    Args:
        layout: where the table's files belong; the row knows it by now.
        proven: aliases that hold once the plan is carried out.
        vacated: texts of sites where no file of ours lies any more.
    """
    known = job.locations | vacated | ({layout.encoded} if layout is not None else set())
    parsed = {key: FileLayout.parse(key) for key in job.locations}
    return {
        key
        for key, one in parsed.items()
        if (one in proven and proven[one].layout.encoded in known) or (key != one.encoded and one.encoded in known)
    }
