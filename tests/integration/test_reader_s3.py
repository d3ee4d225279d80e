"""A table on S3 whose files have odd names, read through s3fs by exactly these names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import sfn
from sfn.reader import verify
from sfn.reader.files import run_synchronously
from sfn.reader.remote_files import FsspecFileSystem
from tests.faults.proxy import Asked, Fault, Pass, Proxy
from tests.servers.s3 import REGION, ROOT, S3
from tests.support.real_table import ODD, odd_table

NOT_ON_THIS_SERVER = {"a..", "..a", "..."}
"""versitygw takes two dots for a way upwards."""


@pytest.fixture(name="catalog")
def fixture_catalog(s3: S3, tmp_path: Path) -> Iterator[SqlCatalog]:
    own = {
        "s3.endpoint": s3.url,
        "s3.access-key-id": ROOT.access,
        "s3.secret-access-key": ROOT.secret,
        "s3.region": REGION,
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
