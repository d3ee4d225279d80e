"""Each object store as PyIceberg writes to it, the service keeps files on it, and readers find them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.object_stores import ACCOUNT, ACCOUNT_KEY, GCS, REGION, ROOT, S3, Azure

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
