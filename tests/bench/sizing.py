"""What an installation needs: processor time, memory and disk, by its tables, commits and events.

The catalog is another process, and its time does not count. Tables lie in a folder of this machine, except where S3 is
named. `docs/operate/sizing.md` has the figures of one machine.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import psutil
import pytest

from tests.bench import many, servers
from tests.bench.accept import cpu_seconds, create, event, event_sender, lasting_postgres, made, sfn_file
from tests.bench.many import Many
from tests.bench.publish import says, until
from tests.bench.record import Figure, Run, Unmeasured
from tests.bench.servers import Service, Setting, records, service
from tests.bench.stores import IN_FLIGHT, WARM, published
from tests.servers.object_stores import S3

TABLES: Final = (1_000, 10_000)
"""Tables of the catalogs that are swept."""
COMMITS: Final = 3
"""Commits of each table."""
BUSY: Final = 1_000
"""Tables that have commits."""
SNAPSHOTS: Final = (0, 100, 1_000)
"""Older snapshots in the metadata that the catalog answers."""
LARGE: Final = 100
"""Tables that have commits, where metadata is large: then the catalog of the benchmark is slow."""
ROUNDS: Final = 20
"""Commits of each table on S3."""
EVERY: Final = "5s"
SWEEPS: Final = 2
"""Sweeps that find nothing."""

_PATIENCE: Final = 900.0
_PER: Final = 1_000
_wait = partial(until, within=_PATIENCE, every=0.1)
_KB, _MB = 1_000, 1_000_000
_SIZE: Final = """SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                  WHERE relkind = 'r' AND relnamespace = 'sfn'::regnamespace"""
_WHOLE: Final = "SELECT pg_database_size(current_database())"
_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"

Say = Callable[[str], None]


def measure(tables: Sequence[int], folder: Path, say: Say) -> list[Figure]:
    """Measure all of it.

    Args:
        tables: of each catalog that is swept.

    Raises:
        Unmeasured: a server is missing, or a file was not written in time.
    """
    figures = [figure for count in tables for figure in swept(count, folder / f"swept-{count}", say)]
    for snapshots in SNAPSHOTS:
        figures += committed(snapshots, LARGE if snapshots else BUSY, folder / f"committed-{snapshots}", say)
    figures.append(_on_s3(folder / "s3", say))
    return [*figures, *_in_postgres(BUSY, folder / "postgres", say)]


class _Meter:
    """What a process has used since the meter was made."""

    def __init__(self, running: Service) -> None:
        self._running = running
        self._began, self._cpu, self._log = time.monotonic(), cpu_seconds(running), self._log_bytes()

    @property
    def seconds(self) -> float:
        """The time that has passed."""
        return time.monotonic() - self._began

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        return cpu_seconds(self._running) - self._cpu

    @property
    def log(self) -> int:
        """Bytes that were logged."""
        return self._log_bytes() - self._log

    def _log_bytes(self) -> int:
        return self._running.log.stat().st_size


def swept(count: int, folder: Path, say: Say) -> Iterator[Figure]:
    """Publish every table of a catalog for the first time, then sweep it while nothing changes."""
    tables = Many(made(folder), count)
    waiting = [tables.warehouse / namespace / name / "metadata" for namespace, name in tables.all()]
    for metadata in waiting:
        metadata.mkdir(parents=True)
    with many.running(folder / "catalog", tables) as catalog:
        setting = Setting(folder / "sfn", catalog.uri, tables.warehouse, sweep="1h")
        with service(setting) as running:
            meter = _Meter(running)
            while waiting:
                _wait((waiting[-1] / "version-hint.text").exists, f"{waiting[-1]} was not published")
                waiting.pop()
            say(f"sizing: {count:,} tables published in {meter.seconds:.0f} s, {meter.cpu:.1f} s of CPU")
            yield _figure(f"first_sweep_cpu_{count}", "CPU s per 1,000 tables", meter.cpu * _PER / count)
            yield _figure(f"first_sweep_time_{count}", "s", meter.seconds)
            yield _figure(f"first_sweep_memory_{count}", "MB", _most(running.process) / _MB, "the most that it had")
            yield _figure(f"log_per_table_{count}", "KB", meter.log / count / _KB)
        yield _figure(f"inbox_per_table_{count}", "KB", _inbox_bytes(setting) / count / _KB)
        setting = replace(setting, sweep=EVERY)
        with service(setting) as running:
            _wait(lambda: _sweeps(running) > 0, "no sweep ended")
            asked, meter = catalog.asked(), _Meter(running)
            _wait(lambda: _sweeps(running) > SWEEPS, "no more sweeps ended")
            loaded, same = ((catalog.asked()[name] - asked[name]) / SWEEPS for name in ("loads", "unchanged"))
            note = f"{loaded:,.0f} tables loaded a sweep, {same:,.0f} of them unchanged"
            yield _figure(f"sweep_cpu_{count}", "CPU s per 1,000 tables", meter.cpu / SWEEPS * _PER / count, note)
            yield _figure(f"memory_{count}", "MB", running.process.memory_info().rss / _MB)
        say(f"sizing: {count:,} tables swept")


def committed(snapshots: int, busy: int, folder: Path, say: Say) -> Iterator[Figure]:
    """Commit to many tables, and send an event with an id for each commit."""
    warehouse, names = folder / "warehouse", [f"t{number}" for number in range(busy)]
    create(warehouse, *names)
    with servers.catalog(folder / "catalog", warehouse, snapshots=snapshots) as catalog:
        setting = Setting(folder / "sfn", catalog.uri, warehouse, interval="0s")
        with service(setting) as running:
            _commit(catalog, running, warehouse, names)
            size = catalog.size(names[0])
            before, meter = _inbox_bytes(setting), _Meter(running)
            for _ in range(COMMITS):
                _commit(catalog, running, warehouse, names)
            commits = COMMITS * busy
            say(f"sizing: {commits:,} commits, {snapshots:,} snapshots: {meter.cpu:.1f} s of CPU")
            note = f"the catalog answers {size / _KB:,.0f} KB for a table"
            yield _figure(
                f"commit_cpu_{snapshots}_snapshots", "CPU s per 1,000 commits", meter.cpu * _PER / commits, note
            )
            if not snapshots:
                yield _figure("log_per_commit", "KB", meter.log / commits / _KB)
    if not snapshots:
        grown = _inbox_bytes(setting) - before
        yield _figure("inbox_per_event", "KB", grown / commits / _KB, "with an id; until event_retention has passed")


def _on_s3(folder: Path, say: Say) -> Figure:
    """Publish commits on an S3 server of this machine; the worker and the inbox, without HTTP."""
    folder.mkdir(parents=True)
    try:
        server = S3()
    except pytest.skip.Exception as error:
        raise Unmeasured(str(error)) from error
    with server:
        run = partial(anyio.run, backend_options={"use_uvloop": True})
        run(published, server.url, f"s3://{server.bucket()}/wh", folder / "first.db", 0)  # everything is loaded by it
        began = time.process_time()
        run(published, server.url, f"s3://{server.bucket()}/wh", folder / "inbox.db", ROUNDS)
        spent = time.process_time() - began
    say(f"sizing: commits on S3: {spent:.1f} s of CPU")
    return _figure(
        "commit_cpu_on_s3", "CPU s per 1,000 commits", spent * _PER / IN_FLIGHT / (ROUNDS + WARM), "without HTTP"
    )


def _in_postgres(busy: int, folder: Path, say: Say) -> Iterator[Figure]:
    """Commit as above, with an inbox in PostgreSQL."""
    warehouse, names = folder / "warehouse", [f"t{number}" for number in range(busy)]
    create(warehouse, *names)
    with (
        lasting_postgres(folder) as postgres,
        postgres.database() as name,
        servers.catalog(folder / "catalog", warehouse) as catalog,
    ):
        setting = Setting(folder / "sfn", catalog.uri, warehouse, interval="0s", url=postgres.dsn(name))
        with service(setting) as running:
            _commit(catalog, running, warehouse, names)
            postgres.execute("VACUUM FULL", name)
            before, meter = int(postgres.execute(_SIZE, name)), _Meter(running)
            for _ in range(COMMITS):
                _commit(catalog, running, warehouse, names)
            spent, commits = meter.cpu, COMMITS * busy
            connections = int(postgres.execute(_CONNECTIONS, name))
            postgres.execute("VACUUM FULL", name)
            after, whole = int(postgres.execute(_SIZE, name)), int(postgres.execute(_WHOLE, name))
    say(f"sizing: {commits:,} commits with PostgreSQL: {spent:.1f} s of CPU")
    note = f"{connections - 1} connections; the process alone, without PostgreSQL's own time"
    yield _figure("commit_cpu_with_postgres", "CPU s per 1,000 commits", spent * _PER / commits, note)
    yield _figure("postgres_per_event", "KB", (after - before) / commits / _KB, "with an id, and vacuumed")
    yield _figure("postgres_database", "MB", whole / _MB, f"{busy:,} tables and {commits + busy:,} events, vacuumed")


def _commit(catalog: servers.Catalog, running: Service, warehouse: Path, names: Sequence[str]) -> None:
    """Commit once to each table, and wait until all files say so."""
    with event_sender(running.url) as sender:
        pointers = {name: catalog.commit(name) for name in names}
        for name, pointer in pointers.items():
            sender.tell(event(name, pointer))
    for name, pointer in pointers.items():
        _wait(partial(says, sfn_file(warehouse, name), pointer), f"{name} was not published")


def _sweeps(running: Service) -> int:
    return sum(record["outcome"] == "swept" for record in records(running.log, "settled"))


def _most(process: psutil.Process) -> int:
    """The most memory that a process had, as Linux says; elsewhere what it has."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return int(process.memory_info().rss)
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1_024


def _inbox_bytes(setting: Setting) -> int:
    """Return the bytes of the pages that are in use, also of those that are still in the write-ahead log."""
    with closing(sqlite3.connect(f"{setting.inbox.as_uri()}?mode=ro", uri=True)) as database:
        pragmas = ("page_count", "freelist_count", "page_size")
        count, free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    return int((count - free) * size)


def _figure(name: str, unit: str, value: float, note: str = "") -> Figure:
    return Figure(name=f"sizing_{name}", unit=unit, runs=[Run(value)], note=note)
