"""How a catalog is asked, and as whom: what fits together, and where it arrives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sfn.app.catalogs import check_adapters, rest_settings
from sfn.catalogs.rest.settings import RestSettings
from sfn.settings.sources import ConfigurationError
from tests.unit.settings_ground import CATALOG, Ground

GLUE = '[catalogs.prod]\nuri = "https://glue.eu-central-1.amazonaws.com/iceberg"\n'
BIGLAKE = '[catalogs.prod]\nuri = "https://biglake.googleapis.com/iceberg/v1/restcatalog"\n'
TOLD = (
    "[catalogs.prod]\ntype = 'events'\ncatalog_id = 'c'\nallowed_locations = ['/lake']\n"
    "{}\n[senders.etl]\nsecrets = {{ main = 'a' }}\n"
)


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_what_aws_needs_arrives(ground: Ground) -> None:
    more = (
        'auth = "sigv4"\nsigning_region = "us-east-1"\nsigning_name = "s3tables"\naws_profile = "p"\n'
        'role_arn = "arn:x"\nexternal_id = "e"\n'
    )
    told = rest_settings("prod", ground.load(GLUE + more).catalogs["prod"])
    assert told == RestSettings(
        name="prod",
        uri="https://glue.eu-central-1.amazonaws.com/iceberg",
        scope="",
        auth="sigv4",
        signing_region="us-east-1",
        signing_name="s3tables",
        aws_profile="p",
        role_arn="arn:x",
        external_id="e",
    )


def test_what_google_needs_arrives(ground: Ground) -> None:
    scope = "https://www.googleapis.com/auth/cloud-platform"
    file = Path("/key.json")
    more = f'auth = "google"\ngoogle_credentials_file = "{file}"\n'
    told = rest_settings("prod", ground.load(BIGLAKE + more).catalogs["prod"])
    uri = "https://biglake.googleapis.com/iceberg/v1/restcatalog"
    assert told == RestSettings(name="prod", uri=uri, scope=scope, auth="google", google_credentials_file=file)
    other = rest_settings("prod", ground.load(f'{BIGLAKE}{more}scope = "other"').catalogs["prod"])
    assert other.scope == "other"


def test_vending_is_off_unless_it_is_wanted(ground: Ground) -> None:
    assert not ground.load(CATALOG).catalogs["prod"].vended_credentials
    assert ground.load(f"{CATALOG}vended_credentials = true\n").catalogs["prod"].vended_credentials


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "signing_region = 'x'",
            "signing_region: expected no such key without auth, found one; remove it, or set auth",
        ),
        ("aws_profile = 'x'", 'expected no such key without auth, found one; remove it, or set auth = "sigv4"'),
        ("google_credentials_file = '/x'", 'remove it, or set auth = "google"'),
        ("auth = 'sigv4'\ntoken = 's3cret'", 'token: expected no such key with auth = "sigv4", found one'),
        ("auth = 'sigv4'\nscope = 's3cret'", 'scope: expected no such key with auth = "sigv4", found one'),
        ("auth = 'sigv4'\ngoogle_credentials_file = '/x'", 'remove it, or set auth = "google"'),
        ("auth = 'google'\ncredential = 's3cret'", 'credential: expected no such key with auth = "google", found one'),
        ("auth = 'google'\noauth2_uri = 'http://s3cret'", "oauth2_uri: expected no such key"),
        ("auth = 'google'\nrole_arn = 'x'", 'remove it, or set auth = "sigv4"'),
        ("auth = 'sigv4'\nexternal_id = 'x'", "role_arn: expected a value, as external_id is set, found none; set it"),
        ("auth = 'kerberos'", "expected 'sigv4' or 'google'"),
        ("vended_credentials = 'perhaps'", "vended_credentials: expected"),
    ],
)
def test_keys_that_do_not_fit_are_named(ground: Ground, more: str, said: str) -> None:
    problem = ground.problem(GLUE + more)
    assert said in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize("key", ["auth = 'sigv4'", "vended_credentials = true", "signing_name = 'glue'"])
@pytest.mark.parametrize("kind", ["pyiceberg", "events"])
def test_only_rest_catalogs_have_them(ground: Ground, key: str, kind: str) -> None:
    pyiceberg = f"[catalogs.prod]\ntype = 'pyiceberg'\nproperties = {{ type = 'glue' }}\n{key}\n"
    problem = ground.problem(pyiceberg if kind == "pyiceberg" else TOLD.format(key))
    assert f"{key.partition(' ')[0]}: expected no such key with the type {kind}" in problem


def test_what_is_signed_for_must_be_known_at_the_start(ground: Ground) -> None:
    check_adapters(ground.load(f"{GLUE}auth = 'sigv4'\n"))
    with pytest.raises(ConfigurationError) as caught:
        check_adapters(ground.load(f"{CATALOG}auth = 'sigv4'\n"))
    assert "catalogs.prod.signing_region: needed, as the host of uri does not tell it" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "auth", "missing", "extra"),
    [
        (GLUE, "sigv4", "botocore", "s3"),
        (BIGLAKE, "google", "google", "gcs"),
        (BIGLAKE, "google", "google.auth", "gcs"),
    ],
)
def test_what_is_not_installed_is_told_with_how_to_install_it(
    tmp_path: Path, text: str, auth: str, missing: str, extra: str
) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text(f'{text}auth = "{auth}"\n')
    code = f"""import sys
sys.modules[{missing!r}] = None
from pathlib import Path
from sfn.settings import ConfigurationError, load
from sfn.app.catalogs import check_adapters
try:
    check_adapters(load(Path({str(file)!r}), {{}}))
except ConfigurationError as error:
    print(*error.problems)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    module = missing.partition(".")[0]
    assert made.stdout.strip() == (
        f"catalogs.prod.auth: expected what {auth} needs, found no module {module}; pip install '.[{extra}]'"
    )


def test_who_does_not_need_them_imports_neither() -> None:
    code = (
        "import sys, sfn.cli.main, sfn.app.service, sfn.app.catalogs;"
        "print([name for name in ('botocore', 'google.auth') if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
