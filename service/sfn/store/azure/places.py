"""Where a key leads: an account, its blobs' address, a container and a blob."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sfn.store.azure.terms import AzureOptions
from sfn.store.objects import ErrorKind, RequestFailed

_KEY: Final = re.compile(r"(abfss://([^/@]+)@([^/@]+)/)(.*)", re.DOTALL)
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9-]+)(?P<zone>(?:\.z[0-9]+)?)\.(?:dfs|blob)\."
    r"(?P<suffix>core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net"
    r"|storage\.azure\.net|fabric\.microsoft\.com)",
)
"""Azure's own, and no other's: what is shown there opens the account. The last is OneLake's."""


@dataclass(frozen=True, slots=True)
class BlobAddress:
    """Where a key leads.

    Attributes:
        prefix: how all keys of the container begin.
        account: its name.
        url: of the account's blobs.
        container: its name.
        path: of the blob, or how its name begins.
    """

    prefix: str
    account: str
    url: str
    container: str
    path: str


def blob_address(key: str, options: AzureOptions) -> BlobAddress:
    """Where a key leads.

    Data Lake's own protocol knows no more of files than the blobs' does, so `dfs` and `blob` are one to us.

    Raises:
        Refused: nowhere that credentials may be shown.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise RequestFailed(ErrorKind.INVALID_OBJECT, "a key that names no container before an @")
    prefix, container, host, path = match.groups()
    if options.endpoint is not None:
        account, url = host.partition(".")[0].lower(), options.endpoint.rstrip("/")
    else:
        own = _HOST.fullmatch(host.lower())
        if own is None:
            raise RequestFailed(
                ErrorKind.NO_BUCKET,
                f"the host {host!r}, which is none of Azure's",
                "correct the table's location, or set `stores.NAME.endpoint`",
            )
        account, url = own["account"], f"https://{own['account']}{own['zone']}.blob.{own['suffix']}"
    if options.account not in {None, account}:
        raise RequestFailed(
            ErrorKind.NO_BUCKET,
            f"the account {account!r}, and credentials for {options.account!r}",
            "correct either of them",
        )
    return BlobAddress(prefix, account, url, container, path)
