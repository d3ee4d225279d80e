"""What an adapter to S3 is told."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.aws_auth import AwsIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Where the buckets are, and as whom they are asked.

    Attributes:
        identity: who asks; None for nobody: requests are not signed.
        endpoint: URL of a service other than AWS's own; None for where the standard chain leads.
        region: None for the standard chain's; a bucket of AWS tells its own where that is wrong.
        path_style: whether buckets are named in the path, not in the host; None: with an endpoint of its own they are.
    """

    identity: AwsIdentity | None = AwsIdentity()
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
