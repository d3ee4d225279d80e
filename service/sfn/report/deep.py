"""Whether all that the current snapshot needs is there: manifests, data and delete files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sfn.clock import SystemClock
from sfn.pointer.document import Document
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader.files import Requests
from sfn.reader.lookup import How
from sfn.reader.opening import Opening
from sfn.reader.resolve import Resolved
from sfn.reader.trust import Trust
from sfn.reader.verify import verify
from sfn.words import Table, TableName

_SHOWN: Final = 500


def missing(name: TableName, table: Table, allowed: tuple[str, ...], options: Mapping[str, Any]) -> tuple[str, str]:
    """What is wrong with the files of a table's current snapshot, by the catalog's own pointer; empty for nothing.

    Blocks. The second text says what could not be looked at, and why; empty for nothing.

    Args:
        allowed: canonical prefixes that files may lie below, beside the table's own bucket or file system.
        options: what fsspec's driver is given.
    """
    opening = Opening(canonical(table.location), options)
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
        how=How.NAME,
        via=(),
        lost=0,
        requests=Requests(0, 0),
        age=timedelta(),
        trust=Trust(opening.url, allowed),
        opening=opening,
    )
    _, findings = verify(lambda: found, deep=True, moved=lambda _done, _total: None)
    wrong = [finding for finding in findings if not finding.ok]
    return (
        _first([finding.text for finding in wrong if finding.was_looked_at]),
        _first([finding.text for finding in wrong if not finding.was_looked_at]),
    )


def _first(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f"{texts[0]}{f'; and {len(texts) - 1:,} more' if len(texts) > 1 else ''}"[:_SHOWN]
