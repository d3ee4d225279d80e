"""`python -m tests.integration.sql_writer URI COMMITS TABLE…`: somebody else who commits to a SQL catalog on SQLite."""

from __future__ import annotations

import sys
from contextlib import closing

from pyiceberg.catalog.sql import SqlCatalog


def main(uri: str, commits: int, *tables: str) -> None:
    with closing(SqlCatalog("prod", uri=uri)) as catalog:
        for number in range(commits):
            for name in tables:
                with catalog.load_table(("sales", name)).transaction() as change:
                    change.set_properties({"number": str(number)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
