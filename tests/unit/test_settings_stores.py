"""The sections `stores.NAME`: which keys go with which service, and which say who asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.settings.sections import KEYS_BY_SCHEME, StoreSettings
from tests.unit.settings_ground import CATALOG, Ground

S3, AZURE, GCS = "s3://bucket/wh", "abfss://c@account.dfs.core.windows.net/wh", "gs://bucket/wh"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def section(prefix: str, *lines: str) -> str:
    return CATALOG + "\n".join(["[stores.lake]", f'prefix = "{prefix}"', *lines])


def test_every_key_goes_with_a_service() -> None:
    everywhere = {"prefix", "unsafe_unconditional_writes"}
    assert frozenset[str]().union(*KEYS_BY_SCHEME.values()) | everywhere == StoreSettings.model_fields.keys()


@pytest.mark.parametrize(
    ("prefix", "scheme"),
    [
        (S3, "s3"),
        ("s3a://bucket/wh", "s3"),
        (AZURE, "abfss"),
        ("wasbs://c@account.blob.core.windows.net", "abfss"),
        ("gcs://bucket", "gs"),
        ("/warehouse", "file"),
        ("file:/warehouse", "file"),
    ],
)
def test_each_kind_of_url_has_its_service(ground: Ground, prefix: str, scheme: str) -> None:
    settings = ground.load(section(prefix))
    assert settings.stores["lake"].scheme == scheme


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (section("/warehouse", "region = 'x'"), "region: expected no such key with the prefix file:///warehouse"),
        (section("/warehouse", "region = 'x'"), "it goes with s3:"),
        (section(S3, "sas_token = 'x'"), "remove it; it goes with abfss:"),
        (section(GCS, "path_style = true"), "path_style: expected no such key"),
        (section(S3, "access_key_id = 'x'"), "secret_access_key: expected a value, as access_key_id is set"),
        (section(S3, "access_key_id = 'x'"), "set it there or as SFN_STORES__LAKE__SECRET_ACCESS_KEY"),
        (section(S3, "session_token = 'x'"), "access_key_id: expected a value, as session_token is set"),
        (section(S3, "external_id = 'x'"), "role_arn: expected a value, as external_id is set"),
        (section(AZURE, "client_secret = 'x'", "client_id = 'y'"), "tenant_id: expected a value"),
        (section(S3, "anonymous = true", "profile = 'x'"), "profile: expected one way to say who asks, found anon"),
        (section(AZURE, "account_key = 'x'", "sas_token = 'y'"), "found account_key and sas_token; keep one of them"),
    ],
)
def test_keys_that_do_not_fit_are_named(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


def test_no_secret_of_a_store_shows(ground: Ground) -> None:
    settings = ground.load(section(S3, "access_key_id = 'x'", "secret_access_key = 'abracadabra'"))
    assert "abracadabra" not in repr(settings)


def test_links_lead_into_folders_of_this_machine(ground: Ground) -> None:
    settings = ground.load(section("/warehouse", "links_to = ['/mnt/disk2/']"))
    assert settings.stores["lake"].links_to == ("file:///mnt/disk2",)
    assert "links_to: expected folders of this machine" in ground.problem(section("/w", "links_to = ['s3://lake/w']"))
    assert "it goes with file:" in ground.problem(section(S3, "links_to = ['/mnt/disk2']"))
