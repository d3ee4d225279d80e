"""Where a store on S3 is, where the settings lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.storage import ErrorKind, RequestFailed
from sfn.storage.s3 import BucketEndpoints, EndpointOptions


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of AWS's shared files, which are empty."""
    for name, variable in (("config", "AWS_CONFIG_FILE"), ("credentials", "AWS_SHARED_CREDENTIALS_FILE")):
        (tmp_path / name).write_text("")
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


async def test_a_profile_that_is_not_there_is_named_and_looked_for_again(files: Path) -> None:
    book, place = BucketEndpoints(), EndpointOptions(endpoint=None, region=None, path_style=None, profile="lake")
    with pytest.raises(RequestFailed, match=r"profile lake without them .*could not be found") as refused:
        await book.addresses_for(place)
    assert refused.value.kind is ErrorKind.NO_ENDPOINT
    (files / "config").write_text("[profile lake]\nregion = eu-west-1\n")
    assert (await book.addresses_for(place)).region == "eu-west-1"


async def test_so_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(RequestFailed, match=r"AWS's own configuration .*\(lake\)") as refused:
        await BucketEndpoints().addresses_for(
            EndpointOptions(endpoint="http://127.0.0.1:1", region="us-east-1", path_style=True, profile=None)
        )
    assert "AWS_PROFILE" in refused.value.remedy


REGIONS = [
    "eu-central-1",
    "eu-north-1",
    "us-west-2",
    "af-south-1",
    "me-south-1",
    "ap-east-1",
    "eu-south-1",
    "ca-west-1",
]


async def url_of(bucket: str, region: str | None = "eu-central-1", endpoint: str | None = None) -> str:
    place = EndpointOptions(endpoint=endpoint, region=region, path_style=None, profile=None)
    return (await BucketEndpoints().addresses_for(place)).bucket_url(bucket)


@pytest.mark.parametrize("region", REGIONS)
async def test_a_bucket_of_amazon_is_at_its_regions_address(region: str) -> None:
    """The global one refuses the regions that came after March 2019, and redirects while a bucket is new."""
    assert await url_of("lake", region) == f"https://lake.s3.{region}.amazonaws.com/"


@pytest.mark.parametrize(
    ("bucket", "region", "url"),
    [
        ("lake", "cn-north-1", "https://lake.s3.cn-north-1.amazonaws.com.cn/"),
        ("lake", "us-gov-west-1", "https://lake.s3.us-gov-west-1.amazonaws.com/"),
        ("my.dotted.lake", "eu-central-1", "https://s3.eu-central-1.amazonaws.com/my.dotted.lake/"),
        ("ap-abcdefghijk-s3alias", "eu-north-1", "https://ap-abcdefghijk-s3alias.s3.eu-north-1.amazonaws.com/"),
        (
            "arn:aws:s3:eu-north-1:123456789012:accesspoint:lake",
            "eu-north-1",
            "https://lake-123456789012.s3-accesspoint.eu-north-1.amazonaws.com/",
        ),
    ],
)
async def test_partitions_and_access_points_have_their_own_addresses(bucket: str, region: str, url: str) -> None:
    assert await url_of(bucket, region) == url


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("AWS_USE_DUALSTACK_ENDPOINT", "https://lake.s3.dualstack.us-west-2.amazonaws.com/"),
        ("AWS_USE_FIPS_ENDPOINT", "https://lake.s3-fips.us-west-2.amazonaws.com/"),
    ],
)
async def test_amazons_own_settings_choose_the_address(
    variable: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "true")
    assert await url_of("lake", "us-west-2") == url


async def test_another_service_is_where_the_settings_say() -> None:
    assert await url_of("lake", endpoint="https://minio.example:9000") == "https://minio.example:9000/lake/"
