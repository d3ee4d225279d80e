"""A process that can open no more files: nothing is given up, nothing spins, and all is published once it can."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec

from tests.faults import inboxes
from tests.faults.lake import Lake, Table, serving
from tests.faults.service import CATALOG, Service, Setting, eventually, running

SHORT = 3.0
"""Seconds."""
OF_EVENTS = ["e1", "e2"]
"""Tables of a catalog that can't be asked: their first publish needs nothing but files."""
TABLES = [*OF_EVENTS, *(f"t{number:02d}" for number in range(8))]


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


TOLD = """
[catalogs.told]
type = "events"
catalog_id = "told"
allowed_locations = ["{prefix}"]
"""
BOTH = 'catalogs = { lake = "lake", told = "told" }'


def metadata(table: Table) -> dict[str, str]:
    """What an event of a catalog that can't be asked says, once there is a metadata file."""
    location = table.pointer
    Path(location.removeprefix("file://")).write_bytes(
        msgspec.json.encode(msgspec.json.decode(table.body())["metadata"])
    )
    return {"catalog": "told", "metadata_location": location}


async def test_the_first_publishes_of_a_process_without_descriptors_are_only_late(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "warehouse")
    for name in TABLES:
        lake.create(name)
    more = TOLD.format(prefix=lake.warehouse.as_uri())
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, sender=BOTH, more=more)
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
        assert inboxes.letters(setting.database) == {}
        # A module whose import was cut short is imported whole.
        assert not any(record.get("event") == "unexpected error" for record in service.records())
