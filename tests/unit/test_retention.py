"""How long a superseded metadata file is there, as far as the log of a table tells."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sfn.domain.identifiers import Table
from sfn.sfnfile.version_hint import SHORT_LIFETIME, is_short_lived, metadata_lifetime

NOW = 1_700_000_000_000
MINUTE = 60_000


def table(kept: int | None, commits: int, every: int = MINUTE, *, now: int = NOW) -> Table:
    """One with so many entries in its log, the last of them a commit ago."""
    times = tuple(NOW - every * ago for ago in range(commits, 0, -1))
    log = tuple(f"s3://lake/t/metadata/{number}.metadata.json" for number in range(commits))
    return Table(
        "u1",
        "s3://lake/t",
        "s3://lake/t/metadata/x.metadata.json",
        log,
        now,
        log_times=times,
        previous_versions_max=kept,
    )


@pytest.mark.parametrize(
    ("kept", "commits", "minutes"),
    [(20, 20, 20), (20, 100, 20), (1, 1, 1), (3, 3, 3), (100, 10, 100), (100, 50, 100)],
)
def test_it_is_as_long_as_so_many_commits_take(kept: int, commits: int, minutes: int) -> None:
    assert metadata_lifetime(table(kept, commits)) == timedelta(minutes=minutes)


def test_a_log_that_is_longer_tells_by_its_newest_entries() -> None:
    slow = tuple(NOW - 100 * MINUTE * ago for ago in range(20, 10, -1))
    quick = table(10, 10)
    longer = Table(
        "u1", "s3://t", "x", last_updated_ms=NOW, log_times=(*slow, *quick.log_times), previous_versions_max=10
    )
    assert metadata_lifetime(longer) == timedelta(minutes=10)


@pytest.mark.parametrize(
    "unknown",
    [
        table(None, 100),
        table(100, 0),
        table(100, 9),
        table(3, 2),
        table(10, 10, every=0),
        table(10, 10, now=NOW - 3600 * MINUTE),
        table(10, 10, every=NOW // 10 + 1),
    ],
)
def test_nothing_is_told_where_nothing_is_deleted_or_too_little_known(unknown: Table) -> None:
    assert metadata_lifetime(unknown) is None
    assert not is_short_lived(unknown)


def test_what_is_soon_deleted_is_short_lived() -> None:
    minutes = SHORT_LIFETIME // timedelta(minutes=1)
    assert is_short_lived(table(minutes - 1, 100))
    assert not is_short_lived(table(minutes, 100))
