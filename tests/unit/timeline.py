"""A table whose commits have a file each, for the tests of what is decided."""

from __future__ import annotations

import json
from typing import Any

from sfn.domain.identifiers import Table
from sfn.publish.policy import Policy
from sfn.sfnfile.naming import ORDINAL, FileLayout, FileOwner, commit_ordinal
from tests.unit.publishing import AT, LAG, A, Line

SITE = FileLayout(AT, ORDINAL)
HEAD = SITE.keys(FileOwner(A.namespace, A.name))[0]


class Timeline(Line):
    """A line that keeps commits; metadata files that were written are there until they are deleted."""

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - any setting
        usual: dict[str, Any] = {"replica_lag": LAG, "keep_commits_for": LAG}
        super().__init__(Policy("c1", is_swept=False, naming=ORDINAL, **usual | more))

    def commit(self, times: int = 1) -> Table:
        """So many commits; the first creates the table."""
        table = self.catalog.current(A)
        for _ in range(times):
            table = self.catalog.commit(A) if table is not None else self.catalog.create(A)
            self.store.files[table.metadata_location] = b"{}"
        assert table is not None
        return table

    @property
    def head(self) -> dict[str, Any]:
        """The head."""
        return self.read(HEAD)

    def read(self, key: str) -> dict[str, Any]:
        """A document."""
        body: dict[str, Any] = json.loads(self.store.files[key])
        return body

    @property
    def commits(self) -> list[dict[str, Any]]:
        """The documents of commits, the oldest first; each at the place that its Ordinal names."""
        keys = sorted(key for key in self.store.files if commit_ordinal(key) is not None)
        found = [self.read(key) for key in keys]
        assert keys == [f"{SITE.folder}n_a_{body['Ordinal']}.ver" for body in found]
        return found

    @property
    def pointers(self) -> list[str]:
        """What they name."""
        return [body["metadata_file_path"] for body in self.commits]
