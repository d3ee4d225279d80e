"""The service and readers on object stores: configured keys, vended credentials, and files with odd names on S3."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pyarrow as pa
import pytest
from aiohttp import web
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from typing_extensions import override

import sfn
from sfn.demo.lake import duckdb_for_iceberg
from sfn.errors import Dropped, NotFound
from sfn.reader import verify
from sfn.reader.files import run_synchronously
from sfn.reader.remote_files import FsspecFileSystem
from tests.faults.proxy import Asked, Fault, Pass, Proxy
from tests.promises.catalogs import SCHEMA
from tests.servers.object_stores import ACCOUNT, ACCOUNT_KEY, GCS, REGION, ROOT, S3, Azure, Keys
from tests.support import command_line
from tests.support.real_table import ODD, odd_table
from tests.support.service import TOKEN, Daemon, serving
from tests.support.service import Lake as RestLake

ARROW = "pyiceberg.io.pyarrow.PyArrowFileIO"
FSSPEC = "pyiceberg.io.fsspec.FsspecFileIO"


@dataclass(frozen=True, slots=True)
class Cloud:
    """One store.

    Attributes:
        warehouse: where tables lie.
        properties: PyIceberg's, of its FileIO.
        section: what the settings say of the store, beside its prefix.
        options: fsspec's, for readers.
    """

    warehouse: str
    properties: Mapping[str, str]
    section: str
    options: Mapping[str, Any]

    @property
    def configured(self) -> str:
        """The section of the settings."""
        return f'[stores.lake]\nprefix = "{self.warehouse}"\n{self.section}'


def s3(request: pytest.FixtureRequest) -> Cloud:
    server: S3 = request.getfixturevalue("s3")
    return Cloud(
        f"s3://{server.bucket()}/wh",
        {
            "s3.endpoint": server.url,
            "s3.access-key-id": ROOT.access,
            "s3.secret-access-key": ROOT.secret,
            "s3.region": REGION,
            # PyArrow uploads every file in parts, of which the server now and then can't parse the last request.
            "py-io-impl": FSSPEC,
        },
        f'endpoint = "{server.url}"\nregion = "{REGION}"\n'
        f'access_key_id = "{ROOT.access}"\nsecret_access_key = "{ROOT.secret}"\n',
        {"key": ROOT.access, "secret": ROOT.secret, "endpoint_url": server.url},
    )


def azure(request: pytest.FixtureRequest) -> Cloud:
    server: Azure = request.getfixturevalue("azure")
    return Cloud(
        f"abfss://{server.container()}@{ACCOUNT}.dfs.core.windows.net/wh",
        {"adls.connection-string": server.connection, "py-io-impl": FSSPEC},
        f'endpoint = "{server.endpoint}"\naccount_key = "{ACCOUNT_KEY}"\n',
        {"connection_string": server.connection},
    )


def gcs(request: pytest.FixtureRequest) -> Cloud:
    server: GCS = request.getfixturevalue("gcs")
    # gcsfs would ask Google itself, wherever the endpoint is, whether the bucket has folders.
    request.getfixturevalue("monkeypatch").setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    return Cloud(
        f"gs://{server.bucket()}/wh",
        {"gcs.service.host": server.url, "gcs.oauth2.token": "anon", "gcs.project-id": "p", "py-io-impl": FSSPEC},
        f'endpoint = "{server.url}"\nanonymous = true\n',
        {"token": "anon", "project": "p", "endpoint_url": server.url},
    )


CLOUDS: Mapping[str, Callable[[pytest.FixtureRequest], Cloud]] = {"S3": s3, "Azure": azure, "GCS": gcs}


# Configured keys.


CONFIGURATION = """\
[listener]
port = 0
[inbox]
url = "sqlite:///{folder}/inbox/inbox.db"
[sweep]
every = "off"
[catalogs.prod]
type = "pyiceberg"
properties = {properties}
replica_lag = "0"
absence_delay = "0"
min_publish_interval = "0"
[senders.etl]
secrets = {{ main = "{token}" }}
{store}
"""
NAME = ("sales", "orders")


@dataclass
class Lake:
    """A catalog, whose tables lie on an object store."""

    folder: Path
    cloud: Cloud
    catalog: SqlCatalog

    def configured(self) -> Path:
        properties = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", **self.cloud.properties}
        inline = ", ".join(f'"{key}" = "{value}"' for key, value in properties.items())
        file = self.folder / "sfn.toml"
        file.write_text(
            CONFIGURATION.format(
                folder=self.folder, properties=f"{{ {inline} }}", token=TOKEN, store=self.cloud.configured
            )
        )
        return file

    def append(self, *ids: int) -> str:
        """Write some rows; the pointer."""
        table = self.catalog.load_table(NAME)
        table.append(pa.table({"id": pa.array(ids, pa.int64())}))
        return table.metadata_location

    def rows(self) -> list[int]:
        """What a reader of the directory finds."""
        at, options = self.cloud.warehouse, self.cloud.options
        found = sfn.read(f"{at}/orders", NAME, storage_options=options, properties=self.cloud.properties)
        return sorted(found["id"].to_pylist())

    def tells(self, pointer: str) -> bool:
        """Whether a reader of the directory is told that metadata file."""
        try:
            return self._resolved().metadata_location == pointer
        except NotFound:
            return False

    def is_over(self) -> bool:
        """Whether it is told that the table was dropped."""
        try:
            self._resolved()
        except Dropped:
            return True
        return False

    def _resolved(self) -> sfn.Resolved:
        return sfn.resolve(f"{self.cloud.warehouse}/orders", NAME, storage_options=self.cloud.options)


@pytest.fixture(params=list(CLOUDS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    cloud = CLOUDS[request.param](request)
    with closing(SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db", **cloud.properties)) as catalog:
        catalog.create_namespace("sales")
        yield Lake(tmp_path, cloud, catalog)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not await anyio.to_thread.run_sync(holds):  # noqa: ASYNC110 - no event crosses processes
            await anyio.sleep(0.05)


async def test_a_table_lives_on_a_store_and_readers_follow(lake: Lake) -> None:
    lake.catalog.create_table(NAME, SCHEMA, f"{lake.cloud.warehouse}/orders")
    async with serving(lake.configured()) as daemon:
        for ids in ((1, 2), (3,)):
            pointer = lake.append(*ids)
            assert (await daemon.tell("orders")).status_code == 202
            await until(partial(lake.tells, pointer))
        assert lake.rows() == [1, 2, 3]
        lake.catalog.drop_table(NAME)
        await daemon.tell("orders", operation="drop")
        await until(lake.is_over)
        assert not daemon.records("settled", outcome="dead")


# What the pages of readers show.


PAGES = Path(__file__).parents[2] / "docs" / "read"
EXAMPLES = {
    "duckdb": ("CREATE SECRET", "sql"),
    "pyiceberg": ("s3.endpoint", "py"),
    "pyiceberg, by sfn": ("endpoint_url", "py"),
    "polars": ("s3://", "`"),
    "daft": ("s3://", "`"),
    "clickhouse": ("icebergS3", "sql"),
    "command-line": ("s3://", "console"),
}
"""By page: what is in an example for object stores, and the language of its block, or a backtick for code in a line."""


def example(page: str, url: str, directory: str) -> str:
    """What a page shows for tables on S3, for a store and a directory of these tests."""
    sign, language = EXAMPLES[page]
    text = (PAGES / f"{page.partition(',')[0]}.md").read_text()
    fence = "`(.*?)`" if language == "`" else rf"^```{language}\n(.*?)^```"
    shown: str
    (shown,) = (found for found in re.findall(fence, text, re.DOTALL | re.MULTILINE) if sign in found)
    bucket, host = directory.removeprefix("s3://").removesuffix("/orders"), url.removeprefix("http://")
    for ours, theirs in (
        ("https://minio.example.org:9000", url),
        ("minio.example.org:9000", host),
        ("USE_SSL true", "USE_SSL false"),
        ("lake/warehouse/sales", bucket),
        ("'reader'", f"'{ROOT.access}'"),
        ('"reader"', f'"{ROOT.access}"'),
        ("a-secret", ROOT.secret),
    ):
        shown = shown.replace(ours, theirs)
    return shown


def read_by(page: str, shown: str, properties: Mapping[str, str]) -> list[int]:
    """The rows that an example reads."""
    if page == "duckdb":
        with duckdb_for_iceberg("httpfs") as connection:
            return [row for (row,) in connection.execute(shown).fetchall()]
    if page == "clickhouse":
        # A second session in one process would be the first one.
        code = f"from chdb import query; print(query({shown!r}, 'CSV'), end='')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        return [int(line) for line in done.stdout.split()]
    names: dict[str, Any] = {"StaticTable": StaticTable, "properties": properties}
    names |= {name: import_module(name) for name in ("daft", "polars") if name == page}
    before, _, last = shown.rstrip().rpartition("\n")
    exec(before, names)  # noqa: S102 - it is ours
    found = eval(last, names)  # noqa: S307 - as above
    return list(found["id"].to_list() if page == "polars" else found["id"].to_pylist())


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
async def test_readers_read_a_table_on_s3_as_their_pages_show(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = s3(request)
    url, directory = cloud.properties["s3.endpoint"], f"{cloud.warehouse}/orders"
    with closing(SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db", **cloud.properties)) as catalog:
        catalog.create_namespace("sales")
        lake = Lake(tmp_path, cloud, catalog)
        catalog.create_table(NAME, SCHEMA, directory)
        async with serving(lake.configured()) as daemon:
            pointer = lake.append(1, 2, 3)
            await daemon.tell("orders")
            await until(partial(lake.tells, pointer))
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for page in (one for one in EXAMPLES if one != "command-line"):
        shown = example(page, url, directory)
        found = await anyio.to_thread.run_sync(read_by, page, shown, {**cloud.properties, "py-io-impl": ARROW})
        assert (page, sorted(found)) == (page, [1, 2, 3])
    keys = {"AWS_ACCESS_KEY_ID": ROOT.access, "AWS_SECRET_ACCESS_KEY": ROOT.secret, "AWS_REGION": REGION}
    command = shlex.split(example("command-line", url, directory).removeprefix("$ sfn "))
    for arguments, more in ((command, {}), (command[:2], {"AWS_ENDPOINT_URL_S3": url})):
        done = await command_line.sfn(*arguments, environ={**keys, **more})
        assert (done.out, done.err) == (f"{pointer}\n", "")
    refused = await command_line.sfn(*command, environ={**keys, "AWS_SECRET_ACCESS_KEY": "another"})
    assert (refused.status, "--storage-option KEY=VALUE), and so does endpoint_url" in refused.err) == (1, True)


# Vended credentials.


VENDING_CONFIGURATION = """\
[listener]
port = 0
[inbox]
url = "sqlite:///{folder}/inbox/inbox.db"
[sweep]
every = "{every}"
[admin]
token = "an-operators-token"
[catalogs.prod]
uri = "{uri}"
vended_credentials = true
replica_lag = "0"
absence_delay = "0"
min_publish_interval = "0"
on_drop = "{on_drop}"
[senders.etl]
secrets = {{ main = "{token}" }}
"""
READS_AND_WRITES = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")


@dataclass
class VendingLake(RestLake):
    """A catalog whose tables lie in a bucket, and which gives keys to whoever asks for a table's.

    Attributes:
        server: has the bucket.
        bucket: where tables lie.
        lasts: seconds that keys are said to last.
        keys: what is vended now, by table.
        vended: for which tables, in order.
    """

    server: S3 = field(kw_only=True)
    bucket: str = field(kw_only=True)
    lasts: float = 3600.0
    keys: dict[str, Keys] = field(default_factory=dict)
    vended: list[str] = field(default_factory=list)

    @override
    def location(self, name: str) -> str:
        return f"s3://{self.bucket}/wh/{name}"

    @override
    def commit(self, name: str) -> str:
        versions = self._tables.setdefault(name, [])
        uuid = self._uuids.setdefault(name, str(uuid4()))
        key = f"wh/{name}/metadata/{len(versions):05d}-{uuid4()}.metadata.json"
        body = json.dumps({"format-version": 2, "table-uuid": uuid}).encode()
        self.server.client.put_object(Bucket=self.bucket, Key=key, Body=body)
        versions.append(f"s3://{self.bucket}/{key}")
        return versions[-1]

    def let_in(self, name: str) -> None:
        """Have a new principal for a table, which is vended from now on."""
        self.keys[name] = self.server.user(self.bucket, on_bucket=["s3:ListBucket"], on_objects=READS_AND_WRITES)

    @override
    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path.strip("/").split("/")[1:]:
            case ["namespaces", "sales", "tables", name, "credentials"] if name in self._tables:
                self.vended.append(name)
                return web.json_response({"storage-credentials": [self._credential(name)]})
            case _:
                return await super()._answer(request)

    def _credential(self, name: str) -> dict[str, object]:
        keys = self.keys[name]
        config = {
            "s3.access-key-id": keys.access,
            "s3.secret-access-key": keys.secret,
            "s3.session-token-expires-at-ms": str(int((time.time() + self.lasts) * 1000)),  # noqa: TID251 - its clock
            "s3.endpoint": self.server.url,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }
        return {"prefix": f"{self.location(name)}/", "config": config}

    def told(self, name: str) -> str | None:
        """What a reader of the table's directory is told, whose keys are their own; "" for a dropped table."""
        options = {"key": ROOT.access, "secret": ROOT.secret, "endpoint_url": self.server.url}
        try:
            found = sfn.resolve(self.location(name), ("sales", name), storage_options=options)
        except NotFound:
            return None
        except Dropped:
            return ""
        return found.metadata_location

    def configured(self, *, on_drop: str = "tombstone", every: str = "off") -> Path:
        file = self.folder / "sfn.toml"
        text = VENDING_CONFIGURATION.format(folder=self.folder, uri=self.uri, token=TOKEN, on_drop=on_drop, every=every)
        file.write_text(text)
        return file


@pytest.fixture
async def vending_lake(s3: S3, tmp_path: Path) -> AsyncIterator[VendingLake]:
    made = VendingLake(tmp_path, server=s3, bucket=s3.bucket())
    await made.open()
    yield made
    await made.close()


async def published(lake: VendingLake, daemon: Daemon, name: str) -> None:
    pointer = lake.commit(name)
    assert (await daemon.tell(name)).status_code == 202
    await until(lambda: lake.told(name) == pointer)


async def test_without_keys_of_its_own_the_service_writes_with_what_is_vended(vending_lake: VendingLake) -> None:
    for name in ("orders", "customers"):
        vending_lake.let_in(name)
    async with serving(vending_lake.configured(), {"AWS_EC2_METADATA_DISABLED": "true"}) as daemon:
        for name in ("orders", "customers", "orders", "orders"):
            await published(vending_lake, daemon, name)
        assert sorted(vending_lake.vended) == ["customers", "orders"]
        vending_lake.drop("orders")
        await daemon.tell("orders", operation="drop")
        await until(lambda: vending_lake.told("orders") == "")
        assert not daemon.records("settled", outcome="dead")
        # Not in the log, and nowhere on the disk.
        written = b"".join(file.read_bytes() for file in vending_lake.folder.rglob("*") if file.is_file())
        assert vending_lake.keys["orders"].secret.encode() not in written


async def test_keys_that_end_are_asked_for_before_they_do(vending_lake: VendingLake) -> None:
    vending_lake.lasts = 1.0
    vending_lake.let_in("orders")
    async with serving(vending_lake.configured()) as daemon:
        await published(vending_lake, daemon, "orders")
        before = len(vending_lake.vended)
        # The answer's `Date`, which their end is counted from, has whole seconds.
        await anyio.sleep(vending_lake.lasts + 1.0)
        await published(vending_lake, daemon, "orders")
        assert len(vending_lake.vended) > before


async def test_keys_that_the_store_does_not_know_any_more_are_asked_for_anew(vending_lake: VendingLake) -> None:
    vending_lake.let_in("orders")
    async with serving(vending_lake.configured()) as daemon:
        await published(vending_lake, daemon, "orders")
        vending_lake.server.forget(vending_lake.keys["orders"])
        vending_lake.let_in("orders")
        await published(vending_lake, daemon, "orders")
        assert vending_lake.vended == ["orders", "orders"]
        assert not daemon.records("settled", outcome="retry")


@pytest.mark.parametrize("on_drop", ["tombstone", "keep"])
async def test_of_a_table_that_was_dropped_while_nobody_looked_nothing_is_vended(
    vending_lake: VendingLake, on_drop: str
) -> None:
    vending_lake.let_in("orders")
    async with serving(vending_lake.configured()) as daemon:
        await published(vending_lake, daemon, "orders")
    vending_lake.drop("orders")
    async with serving(vending_lake.configured(on_drop=on_drop)) as daemon:
        await daemon.tell("orders", operation="drop")
        outcome = "dead" if on_drop == "tombstone" else "done"
        record = await daemon.until_logged("settled", table="prod:sales.orders", outcome=outcome)
        assert ("on_drop" in json.dumps(record)) is (on_drop == "tombstone")


async def test_a_check_without_any_store_sees_what_is_vended_and_what_is_not(vending_lake: VendingLake) -> None:
    vending_lake.let_in("orders")
    vending_lake.commit("orders")
    done = await command_line.sfn("check", "--config", str(vending_lake.configured()), "--json")
    found = {one["where"]: one for one in done.json["findings"]}
    assert found["catalogs.prod: sales.orders"]["severity"] == "ok"
    assert f"s3://{vending_lake.bucket}/wh/orders" in found["catalogs.prod: sales.orders"]["text"]
    assert found["catalogs.prod.on_drop"]["severity"] == "warning"
    assert not [one for one in found.values() if one["severity"] == "error"], done.out
    assert "usersecret" not in done.out + done.err


async def test_a_dry_run_reads_files_with_what_is_vended(vending_lake: VendingLake) -> None:
    vending_lake.let_in("orders")
    async with serving(vending_lake.configured()) as daemon:
        await published(vending_lake, daemon, "orders")
    done = await command_line.sfn("reconcile", "--dry-run", "--config", str(vending_lake.configured()))
    assert done.status == 0
    assert "nothing differs" in done.out


NOT_ON_THIS_SERVER = {"a..", "..a", "..."}
"""versitygw takes two dots for a way upwards."""


@pytest.fixture(name="catalog")
def fixture_catalog(s3: S3, tmp_path: Path) -> Iterator[SqlCatalog]:
    own = {
        "s3.endpoint": s3.url,
        "s3.access-key-id": ROOT.access,
        "s3.secret-access-key": ROOT.secret,
        "s3.region": REGION,
        "py-io-impl": FSSPEC,  # PyArrow's uploads in parts fail now and then
    }
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse="s3://none", **own)) as catalog:
        catalog.create_namespace("n")
        yield catalog


def options(url: str) -> dict[str, object]:
    return {"endpoint_url": url, "key": ROOT.access, "secret": ROOT.secret, "client_kwargs": {"region_name": REGION}}


def test_files_on_s3_are_read_by_the_names_that_they_have(s3: S3, catalog: SqlCatalog) -> None:
    bucket = s3.bucket()

    def put(location: str, body: bytes) -> None:
        s3.client.put_object(Bucket=bucket, Key=location.removeprefix(f"s3://{bucket}/"), Body=body)

    names = tuple(name for name in ODD if name not in NOT_ON_THIS_SERVER)
    made = odd_table(catalog, f"s3://{bucket}/t", put, names, "odd %2F")
    rows = sfn.read(made.directory, storage_options=options(s3.url))
    assert sorted(rows.column("id").to_pylist()) == list(range(made.rows))
    resolving = lambda: sfn.resolve(made.directory, storage_options=options(s3.url))  # noqa: E731 - as a command has it
    _, findings = verify.verify(resolving, deep=True, on_progress=lambda _done, _total: None)
    assert [one.text for one in findings if not one.ok] == []


@pytest.mark.parametrize("name", ["a//b", "/b", "a///b", "a\\b", "a?b=c", "a#b", "a%2Fb"])
def test_s3_is_asked_for_exactly_the_name(s3: S3, name: str) -> None:
    bucket, paths = s3.bucket(), list[str]()

    def note(request: Asked) -> Fault:
        paths.append(request.path)
        return Pass()

    with Proxy(s3.url, note) as proxy:
        files = FsspecFileSystem("s3", options(proxy.url))
        run_synchronously(files.read(f"s3://{bucket}/{name}", 10))
    assert paths[0] == f"/{bucket}/{_quoted(name)}"


def _quoted(name: str) -> str:
    quoted = {"\\": "%5C", "?": "%3F", "=": "%3D", "#": "%23", "%": "%25"}
    return "".join(quoted.get(sign, sign) for sign in name)
