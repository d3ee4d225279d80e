"""The Dockerfile, the Compose file and the lock files."""

from __future__ import annotations

import fnmatch
import re
import subprocess
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
    ENGINE,
    EXTRAS_OF_IMAGE,
    FOLDER_OF_ENGINE,
    IMAGE,
    PROJECT,
    PYTHON,
    ROOT,
    SERVICES,
    Mount,
    closure,
    entries,
    files,
    folders,
    here,
    mounts,
    runtime,
)

LEAST = {"SFN_CATALOGS__PROD__URI": "http://catalog", "SFN_SENDERS__ETL__SECRETS__MAIN": "t"}
REPLICAS = ["replica-1", "replica-2"]
DAEMONS = [*REPLICAS, "sfn", "sfn-s3"]
ENGINES = ["commit", "commit-s3", "read", "read-s3"]
OURS = [*DAEMONS, *ENGINES]
"""Services of the images that are built here."""
ADDED = {"lake": ["CHOWN"], "proxy": ["NET_BIND_SERVICE"]}
"""Rights that a service has in addition to none."""
OFFLINE = ["bucket", "lake", "read"]
"""Services without a network."""
PROFILES = {
    "": {"catalog", "lake", "sfn"},
    "commit": {"commit"},
    "observe": {"grafana", "prometheus"},
    "read": {"read"},
    "replicas": {*REPLICAS, "postgres", "proxy"},
    "s3": {"bucket", "catalog-s3", "commit-s3", "read-s3", "s3", "sfn-s3"},
}
PINNED = r"[a-z0-9/-]+:v?\d+(\.\d+)+(-[a-z]+)?@sha256:[0-9a-f]{64}"


LAKESIDE = [name for name in SERVICES if "/lake" in mounts(name)]
"""Services that see the tables."""


def image_settings(text: str | None, folder: Path) -> Settings:
    """The settings of a container: of the image's own file, or of another one in its place."""
    file = ROOT / "deploy" / "image.toml"
    if text is not None:
        file = folder / "sfn.toml"
        file.write_text(text)
    return load(file, {**IMAGE.pairs("ENV"), **LEAST})


def test_the_page_names_the_extras_of_the_image() -> None:
    page = (ROOT / "docs" / "get-started" / "container.md").read_text()
    (sentence,) = re.findall(r"^The image has the .*$", page, flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", sentence)) == set(EXTRAS_OF_IMAGE)


def test_docker_gets_the_same_options_on_each_page(tmp_path: Path) -> None:
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\nprintf '%s\\t' \"$@\"\necho\n")
    fake.chmod(0o755)
    calls = []
    for page in ("container", "first-table"):
        text = (ROOT / "docs" / "get-started" / f"{page}.md").read_text()
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        shown = [block for block in blocks if " docker run " in block]
        script = re.sub(r"^\$ ", "", "".join(shown), flags=re.MULTILINE)
        # Unlike bash, zsh makes one argument of such a variable.
        assert not re.search(r'(?<!")\$[A-Za-z_{]', script)
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["/bin/sh", "-c", script], env=environ, capture_output=True, text=True, check=True)
        calls += [line.split("\t") for line in done.stdout.splitlines() if line.startswith("run\t")]
    serving, checking, serving_s3 = ({one for one in call if one.startswith(("-", "./", "sfn:"))} for call in calls)
    keys = {"--env"}
    assert serving_s3 - keys == serving
    assert checking - keys - {"--rm"} == serving - {"--detach", "--name", "--restart", "-p"}
    assert {"--init", "--read-only", "--cap-drop", "sfn:/var/lib/sfn"} < checking
    assert calls[1][-2:] == ["check", ""]


def test_the_images_are_built_from_one_pinned_base_of_a_python_that_the_project_names() -> None:
    base = PYTHON.the("FROM")
    assert base.endswith(" AS base")
    assert [BUILD.the("FROM"), IMAGE.the("FROM")] == ["base AS build", "base"]
    assert ENGINE.the("FROM") == base.removesuffix(" AS base")
    version = re.fullmatch(r"python:(3\.\d+)-slim-[a-z]+@sha256:[0-9a-f]{64} AS base", base)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["project"]["classifiers"]
    assert IMAGE.pairs("LABEL")["org.opencontainers.image.base.name"] == f"docker.io/library/{base.partition('@')[0]}"


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


def test_the_engine_is_the_user_that_writes_the_tables() -> None:
    assert ENGINE.the("USER") == IMAGE.the("USER")
    assert ENGINE.copied() == ["engine.lock"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_has_only_the_rights_that_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service.get("cap_add", []) == ADDED.get(name, [])
    # Only root can give a volume away. It has no network, and no other right.
    assert (service.get("user") == "0:0") == (name == "lake")
    assert service.get("network_mode") == ("none" if name in OFFLINE else None)
    # The images that are built here name their user themselves.
    assert ("user" in service) == (name not in OURS)
    assert service["read_only"] is True
    assert "privileged" not in service


@pytest.mark.parametrize("name", OURS)
def test_the_images_run_on_a_root_file_system_that_is_read_only(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp"])  # noqa: S108 - the container's
    kind = "iceberg-sfn-engine" if name in ENGINES else "iceberg-sfn"
    assert service["image"] == f"{kind}:{PROJECT['project']['version']}"
    assert (ROOT / service["build"]).resolve() == (FOLDER_OF_ENGINE if name in ENGINES else ROOT)


def test_those_who_write_into_the_lake_are_one_user() -> None:
    user = IMAGE.the("USER")
    assert {SERVICES[name]["user"] for name in ("bucket", "catalog", "catalog-s3", "s3")} == {user}
    assert SERVICES["lake"]["entrypoint"] == ["chown", user, "/lake"]
    assert [name for name in LAKESIDE if not mounts(name)["/lake"].writable] == ["read"]


@pytest.mark.parametrize("suffix", ["", "-s3"])
def test_a_table_has_one_location_in_every_container(suffix: str) -> None:
    (store,) = compose_settings(f"sfn{suffix}").stores.values()
    assert SERVICES[f"catalog{suffix}"]["environment"]["CATALOG_WAREHOUSE"] == store.prefix
    path = store.prefix.removeprefix("file://")
    assert SERVICES[f"read{suffix}"]["command"] == [f"{path}/sales/orders"]


def test_the_tables_lie_in_one_volume() -> None:
    assert all(mounts(name)["/lake"].volume == "lake" for name in LAKESIDE)
    without = {"commit-s3", "grafana", "postgres", "prometheus", "proxy", "read-s3", "sfn-s3"}
    assert set(SERVICES) - set(LAKESIDE) == without


def test_the_bucket_is_a_folder_of_the_server_and_all_use_its_address_and_keys() -> None:
    (store,) = compose_settings("sfn-s3").stores.values()
    *options, kind, folder = SERVICES["s3"]["command"]
    port = options[options.index("--port") + 1]
    assert (kind, SERVICES["bucket"]["entrypoint"][-1]) == ("posix", f"{folder}/lake")
    assert store.prefix.startswith("s3://lake/")
    assert store.endpoint == f"http://s3{port}"
    own = SERVICES["s3"]["environment"]
    keys = {"AWS_ACCESS_KEY_ID": own["ROOT_ACCESS_KEY_ID"], "AWS_SECRET_ACCESS_KEY": own["ROOT_SECRET_ACCESS_KEY"]}
    keys |= {"AWS_REGION": store.region, "AWS_ENDPOINT_URL_S3": store.endpoint}
    for name in ("catalog-s3", "commit-s3", "read-s3", "sfn-s3"):
        assert keys.items() <= SERVICES[name]["environment"].items()
    assert SERVICES["catalog-s3"]["environment"]["CATALOG_S3_ENDPOINT"] == store.endpoint
    client = SERVICES["commit-s3"]["environment"]
    assert client["PYICEBERG_CATALOG__LAKE__S3__ENDPOINT"] == store.endpoint
    assert client["PYICEBERG_CATALOG__LAKE__S3__REGION"] == store.region
    assert (
        SERVICES["s3"]["healthcheck"]["test"][-1] == f"http://127.0.0.1{port}{options[options.index('--health') + 1]}"
    )


@pytest.mark.parametrize(("name", "volume"), [("sfn", "inbox"), ("sfn-s3", "inbox-s3")])
def test_the_volume_of_the_image_is_kept(name: str, volume: str) -> None:
    assert mounts(name)[IMAGE.the("VOLUME")] == Mount(volume, writable=True)


def compose_settings(name: str = "sfn") -> Settings:
    environ = {**IMAGE.pairs("ENV"), **SERVICES[name].get("environment", {})}
    return load(files(name)[environ["SFN_CONFIG"]], environ)


@pytest.mark.parametrize("name", DAEMONS)
def test_the_mounted_configuration_is_right_and_names_what_is_there(name: str) -> None:
    settings = compose_settings(name)
    catalogs.check_adapters(settings)
    (catalog,), (sender,) = settings.catalogs.values(), settings.senders.values()
    parts = urlsplit(catalog.uri)
    assert parts.hostname == ("catalog-s3" if name == "sfn-s3" else "catalog")
    assert [port.split(":")[2] for port in SERVICES[str(parts.hostname)]["ports"]] == [str(parts.port)]
    assert f":{parts.port}/" in SERVICES[str(parts.hostname)]["healthcheck"]["test"][-1]
    published = SERVICES["proxy" if name in REPLICAS else name]["ports"]
    assert [port.split(":")[2] for port in published] == [str(settings.listener.port)]
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
    assert all(file.exists() for file in folders(name).values())
    for other, how in service.get("depends_on", {}).items():
        has_a_check = "healthcheck" in SERVICES[other] or other in OURS
        assert how["condition"] == ("service_healthy" if has_a_check else "service_completed_successfully")


def test_profiles_add_services_and_change_none() -> None:
    profiles = {name: service.get("profiles", [""]) for name, service in SERVICES.items()}
    assert {name: {one for one, of in profiles.items() if of == [name]} for name in PROFILES} == PROFILES
    for name, of in profiles.items():
        needed = SERVICES[name].get("depends_on", {})
        assert all(profiles[other] in ([""], of) for other in needed)


def test_all_but_the_replicas_and_their_proxy_can_run_at_once() -> None:
    published = [
        port.split(":")[1] for name, one in SERVICES.items() if name != "proxy" for port in one.get("ports", [])
    ]
    assert len(published) == len(set(published))


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
def test_what_is_not_built_here_is_pinned_by_version_and_digest(name: str) -> None:
    assert re.fullmatch(PINNED, SERVICES[name]["image"])


def test_one_image_has_one_digest() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert len({image.partition("@")[0] for image in images}) == len(images)


def test_the_s3_server_is_the_one_that_the_tests_run() -> None:
    version = SERVICES["s3"]["image"].removeprefix("versity/versitygw:v").partition("@")[0]
    assert f"versitygw@v{version}" in (DEPLOY / "fetch" / "servers.py").read_text()


def test_the_dashboard_is_mounted_where_its_provider_looks() -> None:
    mounted = folders("grafana")
    provider = (mounted["/etc/grafana/provisioning"] / "dashboards" / "iceberg-sfn.yml").read_text()
    source = (mounted["/etc/grafana/provisioning"] / "datasources" / "prometheus.yml").read_text()
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert f"path: {home.rpartition('/')[0]}" in provider
    assert mounted[home].name == "iceberg-sfn.json"
    assert "http://prometheus:9090" in source
    rules = {target for target in files("prometheus") if target.endswith(("alerts.yml", "recording.yml"))}
    config = files("prometheus")["/etc/prometheus/prometheus.yml"].read_text()
    assert all(f"  - {target.rpartition('/')[2]}\n" in config for target in rules)


IMAGE_LOCK, BUILD_LOCK, ALL, SPARK = (DEPLOY / f"{name}.lock" for name in ("image", "build", "requirements", "spark"))
ENGINE_LOCK = FOLDER_OF_ENGINE / "engine.lock"
DUCKDB = ("duckdb", "duckdb-extension-avro", "duckdb-extension-httpfs", "duckdb-extension-iceberg")


@pytest.mark.parametrize("lock", [IMAGE_LOCK, BUILD_LOCK, ENGINE_LOCK], ids=["image", "build", "engine"])
def test_what_is_shipped_is_what_was_tested(lock: Path) -> None:
    shipped, tested = ({name: unmarked(entry) for name, entry in entries(one).items()} for one in (lock, ALL))
    assert {name: entry for name, entry in shipped.items() if tested.get(name) != entry} == {}


def unmarked(entry: str) -> str:
    """Return an entry without its marker: more of the tested packages may need a package, on more systems."""
    return re.sub(r" ;[^\\]*", " ", entry)


def test_the_image_has_what_the_service_needs_and_no_more() -> None:
    assert here(IMAGE_LOCK) == closure(runtime())


def test_the_engine_has_what_its_scripts_need_and_no_more() -> None:
    assert here(ENGINE_LOCK) == closure(["pyarrow", "pyiceberg", *DUCKDB])


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
