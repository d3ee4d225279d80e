"""The sections `stores.NAME`."""

from __future__ import annotations

from typing import Final

from sfn.settings.kinds import File, Prefix, Prefixes, Secret, Text, Url
from sfn.settings.section import Section
from sfn.sfnfile.locations import scheme_of

_REMOTE_KEYS: Final = frozenset({"endpoint", "ca_file", "anonymous"})
_S3_KEYS: Final = frozenset(
    {
        "region",
        "path_style",
        "profile",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "role_arn",
        "external_id",
    }
)
_AZURE_KEYS: Final = frozenset({"account_key", "sas_token", "tenant_id", "client_id", "client_secret"})
_GCS_KEYS: Final = frozenset({"credentials_file", "billing_project"})

KEYS_BY_SCHEME: Final = {
    "file": frozenset({"links_to"}),
    "s3": _REMOTE_KEYS | _S3_KEYS,
    "abfss": _REMOTE_KEYS | _AZURE_KEYS,
    "gs": _REMOTE_KEYS | _GCS_KEYS,
}
"""The keys that go with a scheme, beside those that go with every one."""


class StoreSettings(Section):
    """Where tables lie.

    Who asks is found as the service's own tools find it, where no key says: AWS's chain (environment, profile, SSO, web
    identity, container, instance), Azure's (environment, workload or managed identity, command line), Google's default
    credentials.

    Attributes:
        prefix: canonical; locations below it are this store's.
        unsafe_unconditional_writes: use a store that cannot compare and swap.
        links_to: other folders that symbolic links between the prefix and a table's location may lead into.
        endpoint: where it answers, if not at its service's own address.
        ca_file: certificates (PEM) that are trusted instead of the system's.
        anonymous: ask without credentials.
        region: of S3; None for AWS's chain, then for what the bucket tells.
        path_style: name buckets in the path; None: with an endpoint of its own.
        profile: of AWS's shared files.
        access_key_id: of S3, with `secret_access_key` and perhaps a `session_token`.
        role_arn: assumed, with an `external_id` if it asks for one.
        account_key: of an Azure account; `sas_token` a shared access signature instead.
        client_id: of a managed identity, or with `tenant_id` and `client_secret` of an application.
        credentials_file: of a Google service account, or another file that Google's libraries take.
        billing_project: of Google, where the one who asks pays.
    """

    prefix: Prefix
    unsafe_unconditional_writes: bool = False
    links_to: Prefixes = ()
    endpoint: Url | None = None
    ca_file: File | None = None
    anonymous: bool = False
    region: Text | None = None
    path_style: bool | None = None
    profile: Text | None = None
    access_key_id: Text | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    role_arn: Text | None = None
    external_id: Text | None = None
    account_key: Secret | None = None
    sas_token: Secret | None = None
    tenant_id: Text | None = None
    client_id: Text | None = None
    client_secret: Secret | None = None
    credentials_file: File | None = None
    billing_project: Text | None = None

    @property
    def scheme(self) -> str:
        """Of the locations below it."""
        return scheme_of(self.prefix)
