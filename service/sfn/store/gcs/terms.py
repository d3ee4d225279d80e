"""What an adapter to Cloud Storage is told."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.google_auth import GoogleIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """Where the buckets are, and as whom they are asked.

    Attributes:
        identity: who asks; None for nobody: requests carry no token.
        endpoint: URL of a service other than Google's own.
        billing_project: that pays for the requests; None for the bucket's own.
    """

    identity: GoogleIdentity | None = GoogleIdentity()
    endpoint: str | None = None
    billing_project: str | None = None
