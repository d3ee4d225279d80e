"""The Dockerfile, the Compose file and the lock files."""

from __future__ import annotations

import fnmatch
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement

from sfn.app import catalogs
from sfn.settings import load
from sfn.settings.root import Settings
from sfn.settings.types import parse_duration
from tests.support.deployment import (
    BUILD,
    COMPOSE,
    DEPLOY,
    IMAGE,
    PROJECT,
    ROOT,
    SERVICES,
    Mount,
    closure,
    entries,
    files,
    here,
    mounts,
    runtime,
)

LEAST = {"SFN_CATALOGS__PROD__URI": "http://catalog", "SFN_SENDERS__ETL__SECRETS__MAIN": "t"}
OURS = ["commit", "replica-1", "replica-2", "sfn"]
"""Services of the image that is built here."""
REPLICAS = ["replica-1", "replica-2"]
DAEMONS = [*REPLICAS, "sfn"]
ADDED = {"lake": ["CHOWN"], "proxy": ["NET_BIND_SERVICE"]}
"""Rights that a service has beside those of anybody."""


LAKESIDE = [name for name in SERVICES if "/lake" in mounts(name)]
"""Services that see the tables."""


def image_settings(text: str | None, folder: Path) -> Settings:
    """The settings of a container: of the image's own file, or of another one in its place."""
    file = ROOT / "deploy" / "image.toml"
    if text is not None:
        file = folder / "sfn.toml"
        file.write_text(text)
    return load(file, {**IMAGE.pairs("ENV"), **LEAST})


def test_the_image_is_built_from_one_base_of_a_python_that_the_project_names() -> None:
    build, image = BUILD.the("FROM").removesuffix(" AS build"), IMAGE.the("FROM")
    assert build == image
    version = re.fullmatch(r"python:(3\.\d+)-slim-[a-z]+", image)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["project"]["classifiers"]


def test_the_image_says_of_itself_what_the_project_says() -> None:
    told = {name.removeprefix("org.opencontainers.image."): value for name, value in IMAGE.pairs("LABEL").items()}
    project = PROJECT["project"]
    assert [told[name] for name in ("version", "description", "licenses")] == [
        project[key] for key in ("version", "description", "license")
    ]


def test_the_container_is_not_root_and_says_so_in_numbers() -> None:
    uid, gid = IMAGE.the("USER").split(":")
    assert int(uid) > 0
    assert int(gid) > 0
    made = IMAGE.the("RUN")
    assert f"groupadd --gid {gid} sfn" in made
    assert f"useradd --uid {uid} --gid sfn" in made


@pytest.mark.parametrize("text", [None, "[listener]\nport = 9000\n"])
def test_the_default_inbox_lies_in_the_one_volume(text: str | None, tmp_path: Path) -> None:
    volume, folder = Path(IMAGE.the("VOLUME")), Path(IMAGE.the("WORKDIR"))
    path = image_settings(text, tmp_path).inbox.path
    assert path is not None
    assert (folder / path).parent == volume
    assert f"install --directory --owner=sfn --group=sfn --mode=0750 {volume}" in IMAGE.the("RUN")


def test_a_published_port_leads_to_the_image_as_it_is() -> None:
    settings = image_settings(None, Path())
    assert str(settings.listener.port) == IMAGE.the("EXPOSE")
    assert settings.listener.host == "0.0.0.0"  # noqa: S104 - what is asserted


def test_no_variable_of_the_image_wins_over_a_file() -> None:
    assert not [name for name in IMAGE.pairs("ENV") if name.startswith("SFN_") and "__" in name]


def test_every_command_of_the_image_reads_the_file_that_is_mounted() -> None:
    (target,) = [one.split()[-1] for one in IMAGE.every("COPY") if "image.toml" in one]
    assert IMAGE.pairs("ENV")["SFN_CONFIG"] == target
    assert [*IMAGE.command("ENTRYPOINT"), *IMAGE.command("CMD")] == ["sfn", "serve"]
    assert IMAGE.command("HEALTHCHECK") == ["sfn", "healthcheck"]


def test_what_is_copied_is_there_and_not_ignored_and_nothing_else_is_let_in() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {source.removesuffix("/") for stage in (BUILD, IMAGE) for source in stage.copied()}
    assert let_in == copied
    assert all((ROOT / source).exists() for source in copied)
    assert "*" in lines
    assert not fnmatch.filter(let_in, "*compose*")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_has_only_the_rights_that_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service.get("cap_add", []) == ADDED.get(name, [])
    # Who makes a volume somebody's is root, and can do nothing else.
    assert (service.get("user") == "0:0", service.get("network_mode")) == (
        name == "lake",
        "none" if name == "lake" else None,
    )
    # All but the image that is built here, which says so itself, say who they are.
    assert ("user" in service) == (name not in OURS)
    assert service.get("read_only", False) == (name != "catalog")


@pytest.mark.parametrize("name", OURS)
def test_the_image_runs_on_a_root_file_system_that_is_read_only(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp"])  # noqa: S108 - the container's
    assert service["image"] == f"iceberg-sfn:{PROJECT['project']['version']}"


def test_those_who_write_into_the_lake_are_one_user() -> None:
    user = IMAGE.the("USER")
    assert SERVICES["catalog"]["user"] == user
    assert SERVICES["lake"]["entrypoint"] == ["chown", user, "/lake"]
    assert [name for name in LAKESIDE if not mounts(name)["/lake"].writable] == ["commit"]


def test_a_table_has_one_path_in_every_container() -> None:
    (store,) = compose_settings().stores.values()
    assert SERVICES["catalog"]["environment"]["CATALOG_WAREHOUSE"] == store.prefix
    assert all(mounts(name)["/lake"].volume == "lake" for name in LAKESIDE)
    assert set(SERVICES) - set(LAKESIDE) == {"postgres", "proxy"}


def test_the_volume_of_the_image_is_kept() -> None:
    assert mounts("sfn")[IMAGE.the("VOLUME")] == Mount("inbox", writable=True)


def compose_settings(name: str = "sfn") -> Settings:
    environ = {**IMAGE.pairs("ENV"), **SERVICES[name].get("environment", {})}
    return load(files(name)[environ["SFN_CONFIG"]], environ)


@pytest.mark.parametrize("name", DAEMONS)
def test_the_mounted_configuration_is_right_and_names_what_is_there(name: str) -> None:
    settings = compose_settings(name)
    catalogs.check_adapters(settings)
    (catalog,), (sender,) = settings.catalogs.values(), settings.senders.values()
    parts = urlsplit(catalog.uri)
    assert parts.hostname in SERVICES
    assert SERVICES["catalog"]["ports"] == [f"127.0.0.1:{parts.port}:{parts.port}"]
    assert SERVICES["sfn"]["ports"] == [f"127.0.0.1:{settings.listener.port}:{settings.listener.port}"]
    assert {str(file) for file in (sender.secrets_file, settings.admin.token_file)} <= files(name).keys()


@pytest.mark.parametrize("name", DAEMONS)
def test_it_may_end_as_slowly_as_it_does(name: str) -> None:
    longest = compose_settings(name).listener.drain + timedelta(seconds=40)
    assert parse_duration(SERVICES[name]["stop_grace_period"]) >= longest


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_service_refers_to_is_defined(name: str) -> None:
    service = SERVICES[name]
    assert {mount.volume for mount in mounts(name).values()} <= COMPOSE["volumes"].keys()
    assert all(file.is_file() for file in files(name).values())
    for other, how in service.get("depends_on", {}).items():
        has_a_check = "healthcheck" in SERVICES[other] or other in OURS
        assert how["condition"] == ("service_healthy" if has_a_check else "service_completed_successfully")


def test_the_catalog_is_the_one_that_the_tests_run() -> None:
    jars = (ROOT / "deploy" / "rest-fixture" / "jars.sha256").read_text()
    version = SERVICES["catalog"]["image"].removeprefix("apache/iceberg-rest-fixture:")
    assert f"iceberg-open-api-{version}" in jars


def test_replicas_are_a_profile_and_nothing_else_is_changed_by_it() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert {name for name, of in profiles.items() if of == ["replicas"]} == {*REPLICAS, "postgres", "proxy"}
    assert {name for name, of in profiles.items() if not of} == {"catalog", "lake", "sfn"}
    for name, of in profiles.items():
        needed = SERVICES[name].get("depends_on", {})
        assert all(profiles[other] in ([], of) for other in needed)


def test_the_proxy_alone_is_reached_and_leads_to_each_replica() -> None:
    port = compose_settings("replica-1").listener.port
    # One port: who starts both at once, the service and its replicas, is told.
    assert SERVICES["proxy"]["ports"] == SERVICES["sfn"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert not [name for name in (*REPLICAS, "postgres") if "ports" in SERVICES[name]]
    text = files("proxy")["/etc/caddy/Caddyfile"].read_text()
    (upstreams,) = re.findall(r"^\treverse_proxy (.*) \{$", text, re.MULTILINE)
    assert upstreams.split() == [f"{name}:{port}" for name in REPLICAS]
    assert re.findall(r"^:(\d+) \{$", text, re.MULTILINE) == [str(port)]
    assert SERVICES["replica-1"] == SERVICES["replica-2"]


def test_replicas_share_a_database_whose_password_is_in_a_file() -> None:
    inbox, database = compose_settings("replica-1").inbox, SERVICES["postgres"]
    parts = urlsplit(inbox.url)
    assert (parts.hostname, parts.path) == ("postgres", f"/{database['environment']['POSTGRES_DB']}")
    assert parts.password is None
    assert str(inbox.password_file) in files("replica-1").keys() & files("postgres").keys()
    script = files("postgres")["/docker-entrypoint-initdb.d/inbox.sql"].read_text()
    assert f"CREATE ROLE {parts.username} LOGIN" in script
    assert f"cat {inbox.password_file}`" in script
    secret = [name for service in SERVICES.values() for name in service.get("environment", {}) if "PASSWORD" in name]
    assert all(name.endswith("_FILE") for name in secret)
    assert database["environment"]["POSTGRES_PASSWORD_FILE"] in files("postgres")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - set(OURS)))
def test_what_is_not_built_here_is_of_one_version(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:\d+(\.\d+)+(-[a-z]+)?", SERVICES[name]["image"])


IMAGE_LOCK, BUILD_LOCK, ALL, SPARK = (DEPLOY / f"{name}.lock" for name in ("image", "build", "requirements", "spark"))


@pytest.mark.parametrize("lock", [IMAGE_LOCK, BUILD_LOCK], ids=["image", "build"])
def test_what_is_shipped_is_what_was_tested(lock: Path) -> None:
    shipped, tested = ({name: unmarked(entry) for name, entry in entries(one).items()} for one in (lock, ALL))
    assert {name: entry for name, entry in shipped.items() if tested.get(name) != entry} == {}


def unmarked(entry: str) -> str:
    """Return an entry without its marker: more of the tested packages may need a package, on more systems."""
    return re.sub(r" ;[^\\]*", " ", entry)


def test_the_image_has_what_the_service_needs_and_no_more() -> None:
    assert here(IMAGE_LOCK) == closure(runtime())


def test_the_wheel_is_built_with_what_it_asks_for_and_no_more() -> None:
    assert here(BUILD_LOCK) == closure(PROJECT["build-system"]["requires"])


def test_what_spark_needs_is_in_two_locks_that_go_together() -> None:
    wanted = [Requirement(one) for one in PROJECT["project"]["optional-dependencies"]["spark"]]
    tested, added = entries(ALL), entries(SPARK)
    assert added.keys() == {"py4j", "pyspark"}
    assert added.keys().isdisjoint(tested)
    assert closure(map(str, wanted)) <= tested.keys() | added.keys()
    pinned = {name: entry.split()[0].split("==")[1] for name, entry in (tested | added).items()}
    assert [one.name for one in wanted if not one.specifier.contains(pinned[one.name])] == []


def test_ivy_comes_with_the_pyspark_that_tests_run() -> None:
    assert entries(DEPLOY / "rest-fixture" / "pyspark.lock") == {"pyspark": entries(SPARK)["pyspark"]}
