"""What an adapter to PyIceberg is told: what cannot work is refused, who the catalog is, and what is a secret."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from sfn.catalogs.pyiceberg import PyIcebergSettings, check_can_open
from sfn.errors import SfnError

SQL = {"type": "sql", "uri": "postgresql+psycopg2://user:s3cret@Host:5432/lake?sslmode=require"}


def told(properties: dict[str, str], **more: str) -> PyIcebergSettings:
    return PyIcebergSettings(name="prod", properties=properties, **more)  # type: ignore[arg-type]


def identity(properties: dict[str, str]) -> str:
    return told(properties).identity()


def test_an_identity_is_a_digest_of_where_the_catalog_is() -> None:
    words = ("sql", "postgresql://host:5432/lake", "prod", "warehouse=s3://b/w")
    assert identity({**SQL, "warehouse": "s3://b/w"}) == sha256("\n".join(words).encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    "same",
    [
        {"uri": SQL["uri"]},
        {**SQL, "uri": "postgresql://another:pass/word@host:5432/lake"},
        {**SQL, "uri": "POSTGRESQL+asyncpg://host:5432/lake/#x"},
        {**SQL, "name": "prod", "pool_pre_ping": "true", "s3.secret-access-key": "s3cret", "type": "SQL"},
    ],
)
def test_neither_driver_nor_user_nor_secret_changes_an_identity(same: dict[str, str]) -> None:
    assert identity(same) == identity(SQL)


@pytest.mark.parametrize(
    "other",
    [
        {**SQL, "uri": "postgresql://host:5433/lake"},
        {**SQL, "uri": "postgresql://host:5432/lake2"},
        {**SQL, "uri": "sqlite:////a@host:5432/lake"},
        {**SQL, "uri": "sqlite:////b@host:5432/lake"},
        {**SQL, "warehouse": "w"},
        {**SQL, "name": "another"},
        {"type": "glue"},
        {"type": "glue", "glue.id": "1"},
        {"type": "glue", "glue.region": "1"},
        {"type": "dynamodb"},
        {"type": "dynamodb", "table-name": "t"},
        {"py-catalog-impl": "ours.Catalog"},
        {"py-catalog-impl": "ours.Catalog", "name": "another"},
    ],
)
def test_another_place_is_another_identity(other: dict[str, str]) -> None:
    places = [SQL, {**SQL, "uri": "sqlite:////c@host:5432/lake"}, {"type": "glue", "warehouse": "w"}]
    assert identity(other) not in {identity(place) for place in places}


def test_our_name_of_a_catalog_counts_only_where_it_is_the_catalogs_own() -> None:
    def identities(properties: dict[str, str]) -> int:
        return len({PyIcebergSettings(name=name, properties=properties).identity() for name in ("a", "b")})

    assert identities(SQL) == 2
    assert identities({**SQL, "name": "default"}) == 1
    assert identities({"uri": "thrift://h:9083"}) == 1


def test_the_order_of_a_metastores_servers_is_nothing() -> None:
    assert identity({"uri": "thrift://a:1,thrift://b:2"}) == identity({"uri": "thrift://b:2, thrift://A:1"})


def test_a_configured_identity_is_taken() -> None:
    assert told(SQL, catalog_id="ours").identity() == "ours"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"x": "y"}, "properties.type: expected one of dynamodb, glue, hive, rest, sql, found none, and no uri"),
        ({"type": "in-memory"}, "properties.type: expected one of dynamodb, glue, hive, rest, sql, or py-catalog-impl"),
        ({"type": "postgresql://u:s3cret@h"}, "found another one"),
        ({"type": "sql"}, "properties.uri: expected the URI of a catalog of type sql, found none"),
        ({"type": "hive", "uri": ""}, "properties.uri: expected the URI of a catalog of type hive, found none"),
        ({"type": "sql", "uri": "s3cret"}, "properties.uri: expected a database URL of SQLAlchemy, whose driver"),
        ({"type": "sql", "uri": "nodialect://u:s3cret@h"}, "properties.uri: expected a database URL of SQLAlchemy"),
        ({"uri": "postgresql+nodriver://u:s3cret@h"}, "properties.uri: expected a database URL of SQLAlchemy"),
        ({"uri": "postgresql+asyncpg://u:s3cret@h"}, "found asyncpg, which PyIceberg can't use; such as postgresql"),
        ({"uri": "postgresql+pg8000://u:s3cret@h"}, "found no module pg8000; pip install '.[pyiceberg]'"),
        ({"uri": "postgresql://u:s3cret@h"}, "it brings psycopg2: postgresql+psycopg2://"),
        ({"uri": "sqlite://"}, "found a database in memory, which nobody else sees"),
        ({"uri": "sqlite:///:memory:"}, "found a database in memory, which nobody else sees"),
        ({"py-catalog-impl": "no_such_module.Catalog"}, "py-catalog-impl: expected a class that can be imported"),
        ({"py-catalog-impl": "pyiceberg.catalog.NoSuchCatalog"}, "py-catalog-impl: expected the path of a class"),
        ({"py-catalog-impl": "Catalog"}, "py-catalog-impl: expected the path of a class"),
    ],
)
def test_what_cannot_work_is_refused(properties: dict[str, str], said: str) -> None:
    with pytest.raises(SfnError) as caught:
        check_can_open(told(properties))
    assert str(caught.value).startswith("catalogs.prod.properties.")
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "properties",
    [
        SQL,
        {"uri": "sqlite:///lake.db"},
        {"uri": "https://catalog"},
        {"uri": "thrift://h:9083"},
        {"type": "glue"},
        {"type": "dynamodb"},
        {"py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"},
    ],
)
def test_what_may_work_is_not_asked(properties: dict[str, str]) -> None:
    check_can_open(told(properties))


def test_secrets_are_all_that_is_not_known_to_be_none() -> None:
    properties = {
        **SQL,
        "warehouse": "s3://bucket",
        "client.region": "eu-west-1",
        "s3.access-key-id": "AKIA",
        "credential": "id:hidden",
        "header.X-Key": "Bearer told",
        "pool_pre_ping": "true",
        "s3.endpoint": "https://u:p%40ss@minio",
    }
    secrets = set(told(properties).secrets())
    assert secrets - {""} == {"s3cret", "AKIA", "id:hidden", "hidden", "Bearer told", "told", "p%40ss", "p@ss"}
    assert "s3cret" not in repr(told(SQL))


def python(code: str, **environ: str) -> str:
    """What a process prints."""
    surroundings = {**os.environ, **environ}  # noqa: TID251 - a child's
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=surroundings
    ).stdout.strip()


def test_what_pyiceberg_is_configured_with_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  prod:\n    warehouse: elsewhere\n")
    environ = {"HOME": str(tmp_path), "PYICEBERG_CATALOG__PROD__S3__REGION": "elsewhere"}
    code = f"""
from pyiceberg.catalog import load_catalog
from sfn.catalogs.pyiceberg import PyIcebergSettings
from sfn.catalogs.pyiceberg_open import open_catalog
settings = {{"type": "sql", "uri": "sqlite:///{tmp_path}/catalog.db"}}
for catalog in load_catalog("prod", **settings), open_catalog(PyIcebergSettings(name="prod", properties=settings)):
    print(list(catalog.properties.values()).count("elsewhere"))
"""
    assert python(code, **environ).split() == ["2", "0"]


def test_without_such_a_catalog_pyiceberg_is_not_imported() -> None:
    code = "import sys, sfn.cli.main, sfn.app.service, sfn.app.catalogs; print('pyiceberg' in sys.modules)"
    assert python(code) == "False"


@pytest.mark.parametrize(
    ("missing", "properties"),
    [("pyiceberg", {"type": "glue"}), ("thrift", {"uri": "thrift://h:1"}), ("boto3", {"type": "glue"})],
)
def test_what_is_not_installed_is_told_with_how_to_install_it(missing: str, properties: dict[str, str]) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
from sfn.catalogs.pyiceberg import PyIcebergSettings, check_can_open
try:
    check_can_open(PyIcebergSettings(name="prod", properties={properties!r}))
except Exception as error:
    print(error)
"""
    assert python(code) == (
        "catalogs.prod.properties.type: expected PyIceberg, and what it needs for such a catalog, "
        f"found no module {missing}; pip install '.[pyiceberg]'"
    )
