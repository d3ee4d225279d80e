"""Processes that tests start: `python -m tests.integration.child_processes WHAT ARGUMENT…`.

sweeping serve --config FILE     the service, which sweeps a catalog again after a second
hung files serve --config FILE   the service: the kernel never answers the store's reads, as on a mount without server
hung wait serve --config FILE    the service: a read never returns, cancelled or not, and no thread is to blame
duckdb URI STATEMENT…            DuckDB attached to a catalog; prints the rows of each statement on a line
sql_writer URI COMMITS TABLE…    another client, which commits to a SQL catalog on SQLite
"""
# ruff: noqa: PLC0415 - each process imports only what it needs

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Final

SWEEP_PAUSE: Final = timedelta(seconds=1)
"""How long two sweeps of a catalog are kept apart; the product's constant is longer than a test can wait."""
CLOSING: Final = 1.0
"""Seconds that the hung service has to close."""


def sweeping(*arguments: str) -> None:
    """Be `sfn` with these arguments and with short pauses between sweeps."""
    from sfn.cli import main
    from sfn.inbox import transitions

    assert transitions.SWEEP_PAUSE > SWEEP_PAUSE, "they are kept apart by less: this module does nothing any more"
    vars(transitions)["SWEEP_PAUSE"] = SWEEP_PAUSE
    sys.argv[1:] = arguments
    main.main()


def hung(what: str, *arguments: str) -> None:
    """Be the service in which reads never return."""
    from pathlib import Path

    import anyio
    from typing_extensions import override

    from sfn.app import service
    from sfn.domain.jobs import StoredObject
    from sfn.settings import load
    from sfn.storage import ObjectStore
    from tests.faults.stores import SlowStore
    from tests.promises.processes import Hang, Step

    class Deaf(SlowStore):
        """A store whose reads ignore cancellation."""

        @override
        async def read(self, key: str) -> StoredObject | None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
            raise AssertionError

    def deaf(inner: ObjectStore) -> ObjectStore:
        return Deaf(inner, 0)

    settings = load(Path(arguments[-1]))
    service.SHUTDOWN_TIMEOUT = CLOSING  # type: ignore[misc]
    if what == "files":
        Hang(Step("openat2"))
        raise SystemExit(service.run(settings))
    raise SystemExit(service.run(settings, wrap_store=deaf))


def duckdb(uri: str, *statements: str) -> None:
    """Print the rows of each statement, a line each."""
    import json

    from sfn.demo.lake import duckdb_for_iceberg

    with duckdb_for_iceberg("httpfs") as session:
        session.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')")
        for statement in statements:
            print(json.dumps(session.execute(statement).fetchall()))


def sql_writer(uri: str, commits: str, *tables: str) -> None:
    """Commit to each of the tables in turn."""
    from contextlib import closing

    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("prod", uri=uri)) as catalog:
        for number in range(int(commits)):
            for name in tables:
                with catalog.load_table(("sales", name)).transaction() as change:
                    change.set_properties({"number": str(number)})


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "sweeping": sweeping,
    "hung": hung,
    "duckdb": duckdb,
    "sql_writer": sql_writer,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
