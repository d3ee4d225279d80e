"""Whether all that the current snapshot needs is there: manifests, data and delete files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sfn.clock import SystemClock
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.reader.files import FileSystemOptions, RequestCounts
from sfn.reader.lookup import FoundBy
from sfn.reader.metadata import AllowedLocations
from sfn.reader.resolve import Resolved
from sfn.reader.verify import verify
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH

_MAX_DETAIL: Final = 500


def find_missing_files(
    name: TableIdentifier, table: Table, allowed: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[str, str]:
    """What is wrong with the files of a table's current snapshot, by the catalog's own pointer; empty for nothing.

    Blocks. The second text says what could not be looked at, and why; empty for nothing.

    Args:
        allowed: canonical prefixes that files may lie below, beside the table's own bucket or file system.
        options: what fsspec's driver is given.
    """
    opening = FileSystemOptions(canonical(table.location), options)
    now = SystemClock().now()
    said = Document(
        catalog_id="",
        namespace=name.namespace,
        name=name.name,
        guid=table.uuid,
        metadata_file_path=table.metadata_location,
        ordinal=0,
        written_at=now,
    )
    found = Resolved(
        metadata_location=table.metadata_location,
        document=said,
        sfn_file=f"the catalog's answer for {name}",
        ref=MAIN_BRANCH,
        snapshot_id=None,
        found_by=FoundBy.NAME,
        via=(),
        missing_commits=0,
        requests=RequestCounts(0, 0),
        age=timedelta(),
        allowed_locations=AllowedLocations(opening.url, allowed),
        file_system_options=opening,
    )
    _, findings = verify(lambda: found, deep=True, on_progress=lambda _done, _total: None)
    wrong = [finding for finding in findings if not finding.ok]
    return (
        _first_texts([finding.text for finding in wrong if finding.was_checked]),
        _first_texts([finding.text for finding in wrong if not finding.was_checked]),
    )


def _first_texts(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f"{texts[0]}{f'; and {len(texts) - 1:,} more' if len(texts) > 1 else ''}"[:_MAX_DETAIL]
