"""What the tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.proxy import Proxy
from tests.servers.object_stores import S3


@pytest.fixture(name="proxy")
def fixture_proxy(s3: S3) -> Iterator[Proxy]:
    """Between the service and the S3 server."""
    with Proxy(s3.url) as proxy:
        yield proxy
