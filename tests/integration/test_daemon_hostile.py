"""The service as a real process, told of names and locations that mean harm: no file of ours lies outside."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from sfn.clock import SystemClock
from tests.integration.process import TOLD, Daemon, serving
from tests.integration.signing import STANDARD, WEBHOOK, fields

NAMES = (
    *(
        "..",
        ".",
        "../../../../escaped",
        "/etc/escaped",
        "a/../../b",
        "a\\..\\b",
        "%2e%2e%2f",
        "..%2fescaped",
        "~",
        "-rf",
    ),
    *("con", "nul.txt", "a.metadata.json", "a b", "a'b\"c", "$(touch escaped)", "`id`", "a;b|c&d", "*?[x]", "{}"),
    *("\u202egnp.exe", "\u200bzero", "\uff41\uff42", "\uff21", "é", "e\u0301", "\ufb01", "\u2044etc\u2044x", "İ", "ß"),
    *("\uff0e\uff0e\uff0fx", "\ufeffbom", "🧊", "a\u00a0b", "\ue000", "x" * 512, "ü" * 512, "\u0430dmin"),
)
"""Such as are taken: each is some table's right."""
REFUSED = ("", "a\x00b", "a\nb", "\r\n", "\x1b[2J", "\x7f", "\u2028", "\x85", "x" * 513)
OUTSIDE = (
    "/etc/t/metadata/1.metadata.json",
    "../outside/1.metadata.json",
    "{lake}/../outside/metadata/1.metadata.json",
    "{lake}/t/../../outside/1.metadata.json",
    "{lake}/t\\..\\..\\outside/metadata/1.metadata.json",
    "{lake}/%2e%2e/outside/metadata/1.metadata.json",
    "{lake}/t%2F..%2F..%2Foutside/1.metadata.json",
    "{lake}/\uff0e\uff0e/\u2025/../1.metadata.json",
    "{lake}/./t/metadata/1.metadata.json",
    "{lake}//t/metadata/1.metadata.json",
    "{lake}x/t/metadata/1.metadata.json",
    "file:{lake}/../outside/metadata/1.metadata.json",
    "file://elsewhere{lake}/t/metadata/1.metadata.json",
    "file://user@{lake}/t/metadata/1.metadata.json",
    "s3://bucket/t/metadata/1.metadata.json",
    "http://127.0.0.1/t/metadata/1.metadata.json",
)


@dataclass
class Site:
    """The process, and the folder that holds all that it may write to and much that it may not."""

    folder: Path
    daemon: Daemon

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def table(self, directory: str, file_name: str = f"00000-{uuid4()}.metadata.json") -> str:
        """Write a table's metadata file; its location."""
        metadata = self.warehouse / directory / "metadata"
        metadata.mkdir(parents=True)
        content = {
            "format-version": 2,
            "table-uuid": str(uuid4()),
            "location": str(metadata.parent),
            "last-updated-ms": 1_700_000_000_000,
        }
        file = metadata / file_name
        file.write_text(json.dumps(content))
        return str(file)

    async def tell(self, **event: object) -> httpx.Response:
        body = json.dumps(event).encode()
        now: datetime = SystemClock().now()
        headers = fields(body, WEBHOOK, message=f"msg_{uuid4()}", now=now)
        return await self.daemon.client.post("/v1/events", content=body, headers=headers)

    def files(self) -> Iterator[Path]:
        """All files but those of the inbox and of this test."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.parent != self.folder and "inbox" not in path.parts:
                yield path.relative_to(self.folder)


@pytest.fixture(name="site")
async def fixture_site(tmp_path: Path) -> AsyncGenerator[Site]:
    for name in ("warehouse", "outside", "warehousex"):
        (tmp_path / name).mkdir()
    configuration = tmp_path / "sfn.toml"
    configuration.write_text(TOLD.format(folder=tmp_path, scheme=STANDARD, secret=WEBHOOK))
    async with serving(configuration) as daemon:
        # Of no sender's: what is asked here is signed.
        daemon.client.headers.pop("Authorization")
        yield Site(tmp_path, daemon)


async def test_whatever_a_table_is_called_its_file_lies_beside_its_metadata_under_a_harmless_name(site: Site) -> None:
    for number, name in enumerate(NAMES):
        location = site.table(f"t{number}")
        reply = await site.tell(namespace=["..", name], name=name, metadata_location=location)
        assert reply.status_code == 202, (name, reply.text)
    for number, name in enumerate(NAMES):
        written = site.warehouse / f"t{number}" / "metadata" / "_sfn"
        await site.daemon.until_logged("settled", table=f"...{name}.{name}", outcome="done")
        assert len([*written.iterdir()]) == 1, name
    for path in site.files():
        assert path.parts[0] == "warehouse"
        assert path.parts[2] == "metadata"
        assert path.name.isascii()
        assert not {"/", "\\", "\0", " ", "*", "?", "$", ";", "|", "`", "'", '"'} & set(path.name)
        assert (len(path.parts), path.parts[3]) == (5, "_sfn") or path.name.startswith(("00000-", "version-hint"))
    assert site.daemon.process.poll() is None


async def test_a_name_with_what_turns_what_is_read_around_is_422(site: Site) -> None:
    location = site.table("t")
    for name in REFUSED:
        for event in ({"namespace": [name], "name": "x"}, {"namespace": ["x"], "name": name}):
            assert (await site.tell(**event, metadata_location=location)).status_code == 422, name
    body = b'{"namespace":["x"],"name":"\\ud800"}'
    headers = fields(body, message="surrogate", now=SystemClock().now())
    reply = await site.daemon.client.post("/v1/events", content=body, headers=headers)
    assert reply.status_code in {400, 422}
    assert [path.name for path in site.files()] == [Path(location).name]


async def test_a_location_outside_is_never_followed_and_nothing_is_written_there(site: Site) -> None:
    for place in ("outside", "warehouse/t", "warehousex/t"):
        site.table(f"../{place}", "1.metadata.json")
    before = sorted(site.files())
    for number, location in enumerate(OUTSIDE):
        told = location.format(lake=site.warehouse)
        reply = await site.tell(namespace=["sales"], name=f"t{number}", metadata_location=told)
        assert reply.status_code in {202, 422}, (location, reply.text)
        if reply.status_code == 202:
            record = await site.daemon.until_logged("settled", table=f"sales.t{number}")
            assert (record["outcome"], record["reason"]) == ("dead", "location-refused"), location
    assert sorted(site.files()) == before
