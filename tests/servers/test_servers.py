"""Every server answers and does what our tests count on; `make servers` fetches those that can be had."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import httpx
import nats
import pytest
from botocore.exceptions import ClientError
from typing_extensions import override

from tests.servers.nats import Nats
from tests.servers.object_stores import GCS, S3, Azure
from tests.servers.postgres import PgBouncer, Postgres
from tests.servers.process import NotStarted, Server
from tests.support.programs import found

KEY = "metadata/_sfn/sales_orders_main.ver"


def refused(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_s3_writes_on_a_condition_and_the_object_is_a_file(s3: S3) -> None:
    bucket = s3.bucket()
    s3.client.put_object(Bucket=bucket, Key=KEY, Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as lost:
        s3.client.put_object(Bucket=bucket, Key=KEY, Body=b"2", IfNoneMatch="*")
    assert refused(lost) == "PreconditionFailed"
    assert (s3.data / bucket / KEY).read_bytes() == b"1"


def test_s3_keeps_versions_in_a_bucket_that_has_them(s3: S3) -> None:
    kept = {}
    for versioned in (False, True):
        bucket = s3.bucket(versioned=versioned)
        for body in (b"1", b"2"):
            s3.client.put_object(Bucket=bucket, Key=KEY, Body=body)
        kept[versioned] = len(s3.client.list_object_versions(Bucket=bucket)["Versions"])
    assert kept == {False: 1, True: 2}


def test_s3_lets_a_user_do_what_was_given_and_nothing_else(s3: S3) -> None:
    bucket = s3.bucket()
    s3.client.put_object(Bucket=bucket, Key=KEY, Body=b"1")
    nobody = s3.client_of(s3.user(bucket))
    reader = s3.client_of(s3.user(bucket, on_objects=["s3:GetObject"]))
    writer = s3.client_of(s3.user(bucket, on_objects=["s3:GetObject", "s3:PutObject"], on_bucket=["s3:ListBucket"]))
    assert reader.get_object(Bucket=bucket, Key=KEY)["Body"].read() == b"1"
    writer.put_object(Bucket=bucket, Key=KEY, Body=b"2")
    assert writer.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
    for forbidden in (
        partial(nobody.get_object, Key=KEY),
        partial(reader.put_object, Key=KEY, Body=b"3"),
        partial(reader.list_objects_v2),
        partial(writer.delete_object, Key=KEY),
    ):
        with pytest.raises(ClientError) as denied:
            forbidden(Bucket=bucket)
        assert refused(denied) == "AccessDenied"


def test_s3_has_what_it_had_when_it_comes_back() -> None:
    with S3() as s3:
        bucket = s3.bucket()
        s3.client.put_object(Bucket=bucket, Key=KEY, Body=b"1")
        s3.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(s3.url, trust_env=False)
        s3.start()
        assert s3.client.get_object(Bucket=bucket, Key=KEY)["Body"].read() == b"1"


def test_azure_knows_its_account(azure: Azure) -> None:
    assert azure.container() != azure.container()
    asked = httpx.get(f"{azure.endpoint}/none", params={"restype": "container"}, trust_env=False)
    assert asked.status_code == httpx.codes.FORBIDDEN


def test_gcs_writes_on_a_condition(gcs: GCS) -> None:
    url = f"{gcs.url}/upload/storage/v1/b/{gcs.bucket()}/o"
    told = {"uploadType": "media", "name": KEY, "ifGenerationMatch": "0"}
    statuses = [httpx.post(url, params=told, content=b"1", trust_env=False).status_code for _ in range(2)]
    assert statuses == [httpx.codes.OK, httpx.codes.PRECONDITION_FAILED]


def test_postgres_has_a_new_database_for_a_test(postgres: Postgres, database: str) -> None:
    postgres.execute("CREATE TABLE letters (id int)", database)
    with postgres.database() as other:
        assert postgres.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'letters'", other) == "0"
    assert other not in postgres.execute("SELECT datname FROM pg_database").splitlines()


def test_postgres_recovers_what_was_committed() -> None:
    with Postgres() as postgres, postgres.database() as database:
        postgres.execute("CREATE TABLE letters AS SELECT 1 AS id", database)
        postgres.stop()
        with pytest.raises(subprocess.CalledProcessError, match="psql"):
            postgres.execute("SELECT 1")
        postgres.start()
        assert postgres.execute("SELECT id FROM letters", database) == "1"


def test_pgbouncer_gives_its_sessions_away_by_the_transaction(pgbouncer: PgBouncer, database: str) -> None:
    assert pgbouncer.execute("SELECT current_database()", database) == database
    assert "pool_mode|transaction|" in pgbouncer.execute("SHOW CONFIG", "pgbouncer")


class Broken(Server):
    title = "a broken server"

    @override
    def _command(self) -> Sequence[str | Path]:
        return [str(shutil.which("sh")), "-c", "echo no such setting >&2; exit 3"]


def test_a_server_that_does_not_start_shows_its_log_and_leaves_nothing() -> None:
    broken = Broken()
    with pytest.raises(NotStarted, match=r"(?s)a broken server: it ended with status 3.*no such setting"), broken:
        pass
    assert not broken.folder.exists()


def test_a_server_that_is_missing_is_a_skip_but_on_ci_a_failure(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="run `make servers`"):
        found("SFN_NO_SERVER", cache=tmp_path, ci=False)
    with pytest.raises(pytest.fail.Exception, match="run `make servers`"):
        found("SFN_NO_SERVER", cache=tmp_path, ci=True)
    with pytest.raises(pytest.skip.Exception, match="run `make rck`"):
        found("SFN_NO_SERVER", cache=tmp_path, ci=False, target="rck")
    (tmp_path / "env").write_text(f"SFN_OTHER=/nowhere\nSFN_NO_SERVER={tmp_path}\n")
    assert found("SFN_NO_SERVER", cache=tmp_path, ci=True) == tmp_path


async def test_nats_keeps_a_stream_when_it_is_killed() -> None:
    with Nats() as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="events", subjects=["events"])
        await client.jetstream().publish("events", b"1")
        await client.close()
        server.stop()
        server.start()
        client = await nats.connect(server.url)
        assert (await client.jetstream().get_msg("events", 1)).data == b"1"
        await client.close()


FETCH = Path(__file__).parents[2] / "deploy" / "fetch" / "servers.py"

GO = """\
case $1 in
env) echo go1.99.1 ;;
*) for last; do :; done; last=${last##*/}; : >"$GOBIN/${last%@*}"; /bin/mkdir -p "$GOCACHE"; echo "$last" >>"$RAN" ;;
esac"""
NPM = 'echo "npm $1" >>"$RAN"'


def fetched(folder: Path, **commands: str) -> subprocess.CompletedProcess[str]:
    """Fetch into an empty cache, on a machine that has these commands and no network."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, script in commands.items():
        file = folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    surroundings = {
        "PATH": str(folder / "bin"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PIP_NO_INDEX": "1",
        "RAN": str(folder / "ran"),
    }
    return subprocess.run(
        [sys.executable, FETCH], env=surroundings, capture_output=True, text=True, timeout=60, check=False
    )


def lines(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


FOUND = dict.fromkeys(
    ("initdb", "pg_ctl", "pg_isready", "postgres", "psql", "pgbouncer", "chromium", "chromedriver"), ""
)
INSTALLS = {"node": "echo v20.6.0", "npm": NPM}


def test_what_is_there_is_found_and_the_rest_fetched_once(tmp_path: Path) -> None:
    done = fetched(tmp_path, **FOUND, **INSTALLS, go=GO)
    assert done.returncode == 0, done.stderr
    cache = tmp_path / "cache" / "iceberg-sfn" / "test-servers-2026.11"
    assert (cache / "env").read_text() == done.stdout
    assert Path(lines(done)["SFN_POSTGRES"]) == tmp_path / "bin"
    assert Path(lines(done)["SFN_VERSITYGW"]) == cache / "versitygw-1.8.0" / "versitygw"
    assert Path(lines(done)["SFN_FAKE_GCS"]).is_file()
    assert not list(cache.glob("part-*"))
    built = ["versitygw@v1.8.0", "fake-gcs-server@v1.56.1", "v2@v2.15.2"]
    assert (tmp_path / "ran").read_text().split("\n") == ["npm ci", *built, "npm ci", ""]
    (tmp_path / "ran").unlink()
    again = fetched(tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    assert not (tmp_path / "ran").exists()


def test_what_can_not_be_had_is_told_and_has_no_line(tmp_path: Path) -> None:
    done = fetched(tmp_path, **FOUND, go=GO, node="echo v18.20.4", npm=NPM)
    assert done.returncode == 1
    assert lines(done).keys() == {
        "SFN_POSTGRES",
        "SFN_PGBOUNCER",
        "SFN_VERSITYGW",
        "SFN_FAKE_GCS",
        "SFN_NATS",
        "SFN_CHROMIUM",
        "SFN_CHROMEDRIVER",
    }
    assert "fetching a Node, as the machine has none with npm that is new enough (some 60 MB), by pip" in done.stderr
    assert "could not fetch " in done.stderr


def test_a_build_that_fails_is_tried_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = fetched(tmp_path, **FOUND, **INSTALLS, go=GO.replace(": >", "echo no such module; exit 1; : >"))
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert told.count("fetching versitygw-1.8.0, which is built here (a few minutes), by go") == 2
    assert told.count("no such module") == 6
    left = {path.name for path in (tmp_path / "cache" / "iceberg-sfn" / "test-servers-2026.11").iterdir()}
    assert left == {"azurite-3.35.0", "axe-core-4.14.1", "env", "lock"}
