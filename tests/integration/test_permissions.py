"""The least that `docs/stores/s3.md` grants is enough for a table's whole life; `sfn check` sees what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sfn.aws_auth import AwsIdentity, AwsKeys
from sfn.cli.check_config import Severity
from sfn.cli.check_config import store_finding as checked
from sfn.storage import PrefixRouter
from tests.integration.test_publish_requests import NAME, Line
from tests.promises.grounds import s3_store
from tests.servers.s3 import S3
from tests.servers.s3 import Keys as User

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "s3.md"
LAKE = "lake/warehouse"


def policy() -> dict[str, Any]:
    """The page's policy for S3."""
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    (found,) = [block for block in blocks if "Statement" in block]
    return dict(found)


def granted(s3: S3, bucket: str, text: str) -> User:
    """A user who may do what a policy says, of another bucket than the page's."""
    user = s3.user(bucket)
    document = json.loads(text.replace("arn:aws:s3:::lake", f"arn:aws:s3:::{bucket}"))
    for statement in document["Statement"]:
        statement["Principal"] = {"AWS": [user.access]}
    s3.client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
    return user


@asynccontextmanager
async def line(s3: S3, bucket: str, text: str) -> AsyncIterator[Line]:
    """A table below the warehouse, and the store as that user."""
    user = granted(s3, bucket, text)
    async with s3_store(s3.url, AwsIdentity(keys=AwsKeys(user.access, user.secret))) as store:
        made = Line(PrefixRouter({f"s3://{bucket}/warehouse": store}), f"s3://{bucket}/warehouse/orders", [])
        made.catalog.create(NAME, made.at)
        # As its writer has it.
        s3.client.put_object(Bucket=bucket, Key="warehouse/orders/metadata/00000-x.metadata.json", Body=b"{}")
        yield made


async def test_the_least_is_enough(s3: S3) -> None:
    bucket = s3.bucket()
    async with line(s3, bucket, json.dumps(policy())) as table:
        await table.told()
        table.catalog.commit(NAME)
        await table.told()
        await table.looked(hours=9)
        store = table.stores.store_for(table.at)
        finding = await checked("lake", f"s3://{bucket}/warehouse", store, [table.at])
        assert finding.severity is Severity.OK, finding
        assert "deleted on a condition" in finding.text
        table.catalog.drop(NAME)
        await table.told(drop=True)
        await table.looked(hours=1)


@pytest.mark.parametrize("missing", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"])
async def test_what_is_missing_is_found(s3: S3, missing: str) -> None:
    bucket, least = s3.bucket(), policy()
    for statement in least["Statement"]:
        wanted = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        statement["Action"] = [action for action in wanted if action != missing]
    least["Statement"] = [statement for statement in least["Statement"] if statement["Action"]]
    async with line(s3, bucket, json.dumps(least)) as table:
        finding = await checked("lake", f"s3://{bucket}/warehouse", table.stores.store_for(table.at), [table.at])
        assert finding.severity is Severity.ERROR
        verb = {"Get": "read", "Put": "write", "Del": "delete", "Lis": "list"}[missing[3:6]]
        assert f"permission to {verb}" in finding.text
