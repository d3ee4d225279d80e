"""The service as a real process where nobody can ask the catalog: events and metadata files are all that it has."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

import sfn
from sfn.errors import Unreadable
from tests.integration.process import TOKEN, TOLD, serving
from tests.integration.waiting import until


@dataclass
class Writer:
    """Writes tables' metadata files, as an engine does.

    Attributes:
        folder: where everything lies.
        versions: pointers by table uuid, oldest first.
    """

    folder: Path
    versions: dict[str, list[str]] = field(default_factory=dict)

    def configure(self) -> Path:
        """Write the configuration."""
        (self.folder / "warehouse").mkdir()
        file = self.folder / "sfn.toml"
        file.write_text(TOLD.format(folder=self.folder, scheme="bearer", secret=TOKEN))
        return file

    def directory(self, name: str) -> Path:
        return self.folder / "warehouse" / name

    def commit(self, name: str, uuid: str) -> str:
        """One more version of a table; its pointer."""
        versions = self.versions.setdefault(uuid, [])
        metadata = self.directory(name) / "metadata"
        metadata.mkdir(parents=True, exist_ok=True)
        file = metadata / f"{len(versions):05d}-{uuid4()}.metadata.json"
        content = {
            "format-version": 2,
            "table-uuid": uuid,
            "location": str(self.directory(name)),
            "last-updated-ms": 1_700_000_000_000 + len(versions),
            "metadata-log": [{"timestamp-ms": 1, "metadata-file": entry} for entry in versions],
        }
        file.write_text(json.dumps(content))
        versions.append(str(file))
        return str(file)

    def published(self, directory: str, name: str) -> str | None:
        """What a reader is told of a table in a directory; None for a refusal."""
        try:
            return sfn.resolve(self.directory(directory), ("sales", name)).metadata_location
        except Unreadable:
            return None


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


async def test_events_alone_make_files_and_keep_them_right(writer: Writer) -> None:
    configuration = writer.configure()
    async with serving(configuration) as daemon:
        first = writer.commit("orders", "u1")
        await daemon.tell("orders", operation="create", metadata_location=first)
        await until(lambda: writer.published("orders", "orders") == first)
        assert not daemon.records("sweep told")
    second, third = (writer.commit("orders", "u1") for _ in range(2))
    async with serving(configuration) as daemon:
        for told in (third, second, first):
            await daemon.tell("orders", metadata_location=told)
        await until(lambda: writer.published("orders", "orders") == third)
        await daemon.tell(
            "orders", operation="rename", destination={"namespace": ["sales"], "name": "old_orders"}, table_uuid="u1"
        )
        await until(lambda: writer.published("orders", "old_orders") == third)
        await daemon.tell("old_orders", operation="drop", table_uuid="u1")
        await until(lambda: writer.published("orders", "old_orders") is None)
        assert not (writer.directory("orders") / "metadata" / "version-hint.text").exists()
        assert not daemon.records("settled", outcome="dead")


async def test_a_location_that_is_not_allowed_is_a_dead_letter_that_says_what_to_do(writer: Writer) -> None:
    async with serving(writer.configure()) as daemon:
        await daemon.tell("orders", metadata_location="/etc/passwd.metadata.json")
        record = await daemon.until_logged("settled", table="sales.orders", outcome="dead")
        assert record["reason"] == "location-refused"
        assert "allowed_locations" in record["why"]


async def test_events_too_many_to_be_read_are_an_error_in_the_log(writer: Writer) -> None:
    async with serving(writer.configure()) as daemon:
        answer = await daemon.client.post("/v1/events", content=b" " * (2 << 20))
        assert answer.status_code == 413
        record = await daemon.until_logged("events lost")
        assert (record["level"], record["catalogs"]) == ("error", ["hive"])
