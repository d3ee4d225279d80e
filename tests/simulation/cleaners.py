"""Who deletes the files of a table's folder that the table does not know: each rule as its makers document it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_HINT: Final = "version-hint.text"
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cleaner:
    """One rule.

    Attributes:
        name: whose.
        age: what is younger stays; as it is where nobody sets it.
        least: the shortest age that it can be set to with its safeguards on.
        spares: whether a file stays that the table does not know, by its path below the table's location.
    """

    name: str
    age: timedelta
    least: timedelta
    spares: Callable[[str], bool]

    def condemned(self, location: str, ages: Mapping[str, timedelta], known: Collection[str]) -> list[str]:
        """The keys that it deletes.

        Args:
            location: the table's, without a trailing slash.
            ages: of all files, by key.
            known: what the table's metadata names.
        """
        below = f"{location}/"
        strange = [key for key, age in ages.items() if key.startswith(below) and age > self.age and key not in known]
        return [key for key in strange if not self.spares(key.removeprefix(below))]


def _is_hint(path: str) -> bool:
    return path.rpartition("/")[2] == _HINT


def _is_hidden_or_hint(path: str) -> bool:
    return _is_hint(path) or any(part.startswith(("_", ".")) for part in path.split("/"))


def _never(_path: str) -> bool:
    return False


CLEANERS: Final = (
    # https://iceberg.apache.org/docs/latest/spark-procedures/#remove_orphan_files: an age below 24 hours is refused.
    # What begins with `_` or `.` its listing leaves out (PartitionAwareHiddenPathFilter); seen so in a dry run.
    Cleaner("Spark", 3 * _DAY, _DAY, _is_hidden_or_hint),
    # https://trino.io/docs/current/connector/iceberg.html#remove-orphan-files: `remove-orphan-files.min-retention` is 7
    # days, and an administrator's to lower. RemoveOrphanFiles keeps the hint, wherever it lies.
    Cleaner("Trino", 7 * _DAY, _DAY, _is_hint),
    # https://docs.starrocks.io/docs/data_source/catalog/iceberg/: 7 days unless `older_than` is given.
    Cleaner("StarRocks", 7 * _DAY, _DAY, _is_hint),
    # https://docs.lakekeeper.io/docs/nightly/table-maintenance/#remove-orphan-files: whatever no metadata refers to;
    # `default-older-than-ms` is 7 days and at least 24 hours. Of a hint nothing is said.
    Cleaner("Lakekeeper", 7 * _DAY, _DAY, _never),
    # https://docs.aws.amazon.com/glue/latest/dg/orphan-file-deletion.html: whatever is below the table's location and
    # no metadata tracks; `orphanFileRetentionPeriodInDays`, in whole days, is 3. Of a hint nothing is said.
    Cleaner("Glue", 3 * _DAY, _DAY, _never),
    # A script of one's own, as strict as any of them can be set to without switching its safeguards off.
    Cleaner("the strictest", _DAY, _DAY, _never),
)
