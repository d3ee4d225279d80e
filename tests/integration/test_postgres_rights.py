"""The service with a role that has what the pages give it, and nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.lake import Lake, serving
from tests.faults.service import Setting, eventually, running
from tests.integration.sharing import stored
from tests.servers.found import found
from tests.servers.postgres import Postgres
from tests.unit.deployment import ROOT, files

ROLE = DATABASE = "sfn"
RIGHTS = """\
SELECT has_database_privilege('sfn', datname, right_name)
FROM (VALUES ('CREATE'), ('TEMPORARY')) AS rights(right_name), pg_database WHERE datname = current_database()
UNION ALL SELECT has_schema_privilege('sfn', 'public', right_name) FROM (VALUES ('CREATE'), ('USAGE')) AS s(right_name)
UNION ALL SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls FROM pg_roles
WHERE rolname = 'sfn'"""


def written() -> str:
    """What the page has an operator run."""
    page = (ROOT / "docs" / "operate" / "replicas.md").read_text()
    (script,) = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return str(script)


def mounted() -> str:
    """What the Compose file has a new database run, after what the image does."""
    script = files("postgres")["/docker-entrypoint-initdb.d/inbox.sql"].read_text()
    for target, file in files("postgres").items():
        script = script.replace(target, str(file))
    return f"CREATE DATABASE {DATABASE};\n\\connect {DATABASE}\n{script}"


@pytest.fixture(name="dsn", params=[written, mounted])
def fixture_dsn(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[str]:
    """The role's database, after the script."""
    with made(postgres, request.param()) as dsn:
        yield dsn


@contextmanager
def made(postgres: Postgres, script: str) -> Iterator[str]:
    """What a script makes, by a superuser: for whom it is the database's address, too."""
    quiet = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
    try:
        ran("psql", *quiet, postgres.dsn(), told=script)
        yield postgres.dsn(DATABASE)
    finally:
        postgres.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        postgres.execute(f"DROP ROLE IF EXISTS {ROLE}")


def ran(program: str, *arguments: str | Path, told: str = "") -> None:
    """Run one of PostgreSQL's programs."""
    subprocess.run([found("SFN_POSTGRES") / program, *arguments], input=told, text=True, check=True)


def as_role(dsn: str) -> str:
    """The address for the service."""
    return dsn.replace("postgres@", f"{ROLE}@")


async def test_the_service_works_with_a_schema_of_its_own(dsn: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "warehouse")
    lake.create("orders")
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=as_role(dsn))
    async with serving(lake), running(setting) as service:
        assert await service.post("orders", "e1") == 202
        await eventually(lambda: not lake.wrong())
        assert await service.release() == 0
        assert await service.get("/metrics") == 200
        assert service.told("retry") == 0
    assert await stored(dsn, "SELECT event_id FROM sfn.event") == ["e1"]
    assert await stored(dsn, "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'sfn'") == [ROLE]
    assert set(await stored(dsn, RIGHTS)) == {False}


async def test_a_backup_is_taken_and_restored_with_no_more_rights(postgres: Postgres, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "warehouse")
    lake.create("orders")
    backup = tmp_path / "inbox.dump"
    async with serving(lake):
        with made(postgres, written()) as dsn:
            setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=as_role(dsn), lease="1s")
            async with running(setting) as service:
                assert await service.post("orders", "e1") == 202
                await eventually(lambda: service.told("done"))
                ran("pg_dump", "--format=custom", "--schema=sfn", f"--file={backup}", as_role(dsn))
        with made(postgres, written()) as dsn:
            ran("pg_restore", "--exit-on-error", "--schema=sfn", f"--dbname={as_role(dsn)}", backup)
            async with running(setting) as service:
                assert (await (await service.tell("orders", "e1")).json())["duplicates"] == 1
                lake.tables["orders"].commit()
                assert await service.post("orders", "e2") == 202
                await eventually(lambda: not lake.wrong())
