"""A warehouse in a bucket of a real server, behind a proxy that is at fault as the test wishes."""

from __future__ import annotations

from tests.faults.fleet import Shelf
from tests.faults.proxy import Answer, Proxy
from tests.servers.object_stores import REGION, ROOT, S3


def shelved(s3: S3, proxy: Proxy) -> Shelf:
    """A new bucket: the service comes to it through the proxy, and whoever looks on through the server's folder."""
    bucket = s3.bucket()
    root = f"s3://{bucket}/wh"
    store = (
        f'prefix = "{root}"\nendpoint = "{proxy.url}"\nregion = "{REGION}"\n'
        f'access_key_id = "{ROOT.access}"\nsecret_access_key = "{ROOT.secret}"'
    )
    return Shelf(s3.data / bucket / "wh", root, store)


def refusal(status: int, code: str) -> Answer:
    """What S3 answers that does nothing."""
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode())
