"""An inbox that can't be used or written, and a process that can open no more files: no event is lost."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from tests.faults import inspection
from tests.faults.lake import Lake, Table, serving
from tests.faults.service import CATALOG, Service, Setting, ended, eventually, filled, running, small, started

FULL = 3.0
"""Seconds."""
BIND = 'mount --bind "$0" "$1" && shift && exec "$@"'
"""Mounts one file over another, and runs a command that sees that."""
Record = Callable[[str, object], None]

SHORT = 3.0
"""Seconds."""
OF_EVENTS = ["e1", "e2"]
"""Tables of an event-only catalog: their first publish needs nothing but files."""
TABLES = [*OF_EVENTS, *(f"t{number:02d}" for number in range(8))]


async def test_a_second_process_on_an_inbox_is_refused(tmp_path: Path, record_property: Record) -> None:
    lake = Lake(tmp_path / "warehouse")
    lake.create("orders")
    first = Setting(tmp_path / "first", lake.uri, lake.warehouse)
    async with serving(lake), running(first) as service:
        second = Setting(tmp_path / "second", lake.uri, lake.warehouse, inbox=first.database)
        with started(second, service.session) as refused:
            assert await ended(refused) == 1
            message = refused.tail()
        record_property("message", message)
        print(message)
        assert str(first.database) in message
        assert "another" in message or "other process" in message
        assert "Traceback" not in message
        assert await service.post("orders", "e1") == 202
        await eventually(lambda: not lake.wrong())


async def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path, record_property: Record) -> None:
    # Root may write everywhere, unless it gives that up.
    launcher = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    setting = Setting(tmp_path / "sfn", "http://127.0.0.1:1", tmp_path, inbox=folder / "inbox.db", launcher=launcher)
    async with aiohttp.ClientSession() as session:
        with started(setting, session) as refused:
            assert await ended(refused) == 1
            message = refused.tail()
    record_property("message", message)
    print(message)
    assert str(folder) in message
    assert "Traceback" not in message
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("by_link", [False, True], ids=["itself", "by a link"])
async def test_a_file_that_is_mounted_without_its_folder_is_refused(
    tmp_path: Path, by_link: bool, record_property: Record
) -> None:
    volume, folder = tmp_path / "volume.db", tmp_path / "container"
    folder.mkdir()
    inbox, link = folder / "inbox.db", tmp_path / "link.db"
    for file in (volume, inbox):
        file.touch()
    link.symlink_to(inbox)
    launcher = ["unshare", "--map-root-user", "--mount", "sh", "-c", BIND, str(volume), str(inbox)]
    used = link if by_link else inbox
    setting = Setting(tmp_path / "sfn", "http://127.0.0.1:1", tmp_path, inbox=used, launcher=launcher)
    async with aiohttp.ClientSession() as session:
        with started(setting, session) as refused:
            assert await ended(refused) == 1
            message = refused.tail()
    record_property("message", message)
    assert f"mount a folder (a volume at {folder})" in message
    assert "Traceback" not in message
    assert volume.stat().st_size == 0
    assert [file.name for file in folder.iterdir()] == ["inbox.db"]


async def test_a_full_disk_takes_no_event_and_loses_none(tmp_path: Path, record_property: Record) -> None:
    """A small disk of the service's own: only it, and who looks through it, sees that."""
    disk, lake = tmp_path / "disk", Lake(tmp_path / "warehouse")
    lake.create("orders")
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, inbox=disk / "inbox.db", launcher=small(disk))
    async with serving(lake), running(setting) as service:
        seen = Path(f"/proc/{service.child().pid}/root{disk}")
        taken, refusal = await filled(service, lake)
        # Long enough for the worker to want to note something too.
        await anyio.sleep(FULL)
        alive = await service.get("/livez")
        (seen / "ballast").unlink()
        assert await service.post("orders", "after", metadata_location=lake.tables["orders"].pointer) == 202
        await eventually(lambda: not lake.wrong())
        lost = (taken | {"after"}) - inspection.logged(seen / "inbox.db")
        letters = inspection.letters(seen / "inbox.db")
    figures = {"taken": len(taken), "refused_with": refusal, "livez": alive, "lost": len(lost), "letters": letters}
    record_property("full_disk", figures)
    print("full disk:", figures)
    assert (refusal, alive, lost, letters) == (503, 200, set(), {})


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_a_disk_that_fails_ends_the_process_and_loses_no_event(
    tmp_path: Path, record_property: Record, delay: float
) -> None:
    """While the catalog does not answer, only events are written. Else the worker may be the first to fail.

    The process ends then, and a request in progress has no answer.
    """
    lake = Lake(tmp_path / "warehouse")
    lake.create("orders")
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse)
    async with serving(lake), running(setting) as service:
        # SQLite calls it an error of input or output where a file may not grow: after that nothing is certain.
        resource.prlimit(service.child().pid, resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        lake.delay = delay
        taken, refusal = await filled(service, lake)
        status = await ended(service)
    lake.delay = 0.0
    async with serving(lake), running(setting) as service:
        assert await service.post("orders", "after", metadata_location=lake.tables["orders"].pointer) == 202
        await eventually(lambda: not lake.wrong())
        lost = (taken | {"after"}) - inspection.logged(setting.database)
    figures = {"taken": len(taken), "refused_with": refusal, "ended_with": status, "lost": len(lost)}
    record_property("failing_disk", figures)
    print("failing disk:", figures)
    assert refusal in ({503} if delay else {503, None})
    assert (status, lost) == (1, set())
    assert taken


@contextmanager
def exhausted(service: Service) -> Iterator[None]:
    """As many files as are open, and not one more."""
    pid = service.child().pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    most = max(int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()) + 1
    # Numbers below that are free again take a file each: they are few.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


EVENT_ONLY = """
[catalogs.outside]
type = "events"
catalog_id = "outside"
allowed_locations = ["{prefix}"]
"""
BOTH = 'catalogs = { lake = "lake", outside = "outside" }'


def metadata(table: Table) -> dict[str, str]:
    """Return the fields of an event of an event-only catalog, and write the metadata file that it names."""
    location = table.pointer
    Path(location.removeprefix("file://")).write_bytes(
        msgspec.json.encode(msgspec.json.decode(table.body())["metadata"])
    )
    return {"catalog": "outside", "metadata_location": location}


async def test_the_first_publishes_of_a_process_without_descriptors_are_only_late(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "warehouse")
    for name in TABLES:
        lake.create(name)
    more = EVENT_ONLY.format(prefix=lake.warehouse.as_uri())
    # What a fork has imported already could not be cut short.
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, is_fork=False, sender=BOTH, more=more)
    async with serving(lake), running(setting) as service:
        # The connection that the events come by is kept.
        assert await service.get("/livez") == 200
        with exhausted(service):
            for name in TABLES:
                event = metadata(lake.tables[name]) if name in OF_EVENTS else {"catalog": CATALOG}
                assert await service.post(name, **event) == 202
            spent, grown = service.child().cpu_times(), service.log.stat().st_size
            await anyio.sleep(SHORT)
            now = service.child().cpu_times()
            assert now.user + now.system - spent.user - spent.system < SHORT / 4
            assert service.log.stat().st_size - grown < 20_000
            assert len(lake.wrong()) == len(TABLES)
        await eventually(lambda: not lake.wrong())
        assert not service.told("dead")
        assert inspection.letters(setting.database) == {}
        # A module whose import was cut short is imported whole.
        assert not any(record.get("event") == "unexpected error" for record in service.records())
