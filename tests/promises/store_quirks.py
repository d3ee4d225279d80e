"""The quirks of object stores and of the proxies before them: what each is, where it was seen, what becomes of it.

`python -m tests.promises.store_quirks` writes the page; the suite tries every line of it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeAlias

from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
from typing_extensions import override

from sfn.storage.azure import IMPOSSIBLE_ETAG as NO_BLOB
from sfn.storage.azure import AzureClient, AzureOptions, SharedSignature
from sfn.storage.gcs import IMPOSSIBLE_GENERATION as NO_GENERATION
from sfn.storage.gcs import GcsClient, GcsOptions
from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply, RemoteStore, StoreService
from sfn.storage.s3 import IMPOSSIBLE_ETAG as NO_ETAG
from sfn.storage.s3 import S3Client, S3Options
from tests.promises.stores import BOOK, EVERYTHING, Ground
from tests.promises.test_results import sentence
from tests.servers.object_stores import ACCOUNT, ACCOUNT_KEY, REGION
from tests.servers.quirky_s3 import BUCKET, QuirkyS3, quirky_s3
from tests.support.pages import Shown

_MODULE: Final = "tests.promises.store_quirks"
FOLDER: Final = f"s3://{BUCKET}/orders/metadata/_sfn/"


class Verdict(Enum):
    """What becomes of a store with a quirk."""

    RIGHT = "right: every promise is kept"
    KEEPS = "right: files that would be deleted stay as tombstones"
    REFUSED = "refused"
    AWAY = "nothing is written: the store counts as away"
    LISTING = "a listing fails"


@dataclass(frozen=True, slots=True)
class Quirk:
    """One line.

    Attributes:
        name: what the store does; of S3 as `QuirkyS3` knows it.
        seen: where.
        verdict: what becomes of it.
        said: a part of what is found, where something is.
        unsafe: `unsafe_unconditional_writes` overrides the refusal.
        lacks: the one promise that is not kept, and need not be.
    """

    name: str
    seen: str
    verdict: Verdict
    said: str = ""
    unsafe: bool = False
    lacks: str = ""


_RIGHT, _KEEPS, _REFUSED, _AWAY, _LISTING = Verdict
_MADE_UP: Final = "made up"
_NO_TAG: Final = "answers without an entity tag"
_NGINX: Final = "nginx `gzip` where it compresses unasked"

S3: Final = (
    Quirk("none", "AWS S3", _RIGHT),
    Quirk(
        "If-None-Match is ignored",
        "AWS S3 before August 2024; servers that check conditions of reads alone (mountx#19)",
        _REFUSED,
        "may only create it",
        unsafe=True,
    ),
    Quirk(
        "If-Match is ignored",
        "GCS by S3's protocol (icechunk#533); proxies that drop unknown headers (multistore#120)",
        _REFUSED,
        "an entity tag other than the file's",
        unsafe=True,
    ),
    Quirk(
        "If-Match creates", "MinIO before September 2025 (minio#21526)", _REFUSED, "may only replace one", unsafe=True
    ),
    Quirk("If-Match sees what was deleted", "versitygw, in buckets that keep versions", _KEEPS),
    Quirk("304 for conditions", "MinIO before 2024 (minio#19442)", _RIGHT),
    Quirk("409 for conditions", "AWS S3, with another write under way", _RIGHT),
    Quirk("412 for what is missing", "Ceph RGW (minio#21526); AWS S3 answers 404", _RIGHT),
    Quirk("400 for failed conditions", _MADE_UP, _REFUSED, "does not support conditional writes"),
    Quirk("500 for failed conditions", "Cloudflare R2 behind a worker (honojs/hono#718)", _AWAY, "status 500"),
    Quirk("400 for conditions", _MADE_UP, _REFUSED, "does not support conditional writes"),
    Quirk("501 for conditions", "Backblaze B2 (obsidian-s3-sync-and-backup#78)", _REFUSED, "NotImplemented"),
    Quirk("nothing can be created", _MADE_UP, _REFUSED, "refuses to create a file"),
    Quirk("nothing is stored", _MADE_UP, _REFUSED, "does not show a file"),
    Quirk("errors with status 200", "AWS S3, for copies and long uploads", _RIGHT),
    Quirk("201 for writes", _MADE_UP, _RIGHT),
    Quirk("unquoted tags alone", "DigitalOcean Spaces (slatedb#1818), Ceph RGW", _RIGHT),
    Quirk("strong tags alone", "made up, after RFC 9110", _RIGHT),
    Quirk("exact tags alone", _MADE_UP, _RIGHT),
    Quirk("weak tags", "Ceph RGW behind a proxy (aws-sdk-java#2380)", _RIGHT),
    Quirk("weak tags, strong tags alone", _MADE_UP, _RIGHT),
    Quirk("weak tags, exact tags alone", _MADE_UP, _RIGHT),
    Quirk("weak tags never match", "made up, after RFC 9110", _REFUSED, "a weak one, which is never equal to another"),
    Quirk("tags without quotes", "s3rver (s3rver#14)", _RIGHT),
    Quirk("tags in capitals", "Alibaba OSS", _RIGHT),
    Quirk("reads have tags in capitals", _MADE_UP, _REFUSED, "answers a write with one entity tag"),
    Quirk(
        "writes have the digest as tag",
        "gateways to encrypted buckets (mojatter/s2#249)",
        _REFUSED,
        "answers a write with one entity tag",
    ),
    Quirk(
        "tags are made of the length",
        "gateways to file systems: length and time (chimera#469)",
        _REFUSED,
        "the same entity tag",
    ),
    Quirk("writes have no tag", _MADE_UP, _REFUSED, _NO_TAG),
    Quirk(
        "reads have no tag",
        "CubeFS (#448); Envoy (posthog#42875) and ingress-nginx (#1390), which drop the tags of what they compress",
        _REFUSED,
        _NO_TAG,
    ),
    Quirk("user metadata is lost", _MADE_UP, _RIGHT),
    Quirk(
        "old content is shown once", "caches that ignore `Cache-Control: no-store`", _REFUSED, "shows the old content"
    ),
    Quirk("new files are hidden once", "AWS S3 before December 2020", _REFUSED, "does not show a file"),
    Quirk("403 for what is missing", "AWS S3 without the permission to list the whole bucket", _RIGHT),
    Quirk("errors are pages of a proxy", "nginx `proxy_intercept_errors`", _REFUSED, "without an error of S3"),
    Quirk("redirects to another host", "sign-in pages, moved services", _REFUSED, "status 307"),
    Quirk("gzip", "MinIO with `gzip_objects`", _RIGHT),
    Quirk("gzip, weak tags", _NGINX, _RIGHT),
    Quirk("gzip, named in tags", "Apache mod_deflate", _RIGHT),
    Quirk("gzip, no tags", "Envoy (posthog#42875), ingress-nginx (#1390)", _REFUSED, _NO_TAG),
    Quirk("deflate", _MADE_UP, _RIGHT),
    Quirk("brotli", _MADE_UP, _AWAY, "encoding 'br'"),
    Quirk("deletes ignore If-Match", "MinIO (minio#21677)", _KEEPS),
    Quirk("501 for conditions of deletes", "AWS S3 before September 2025 (localstack#13894)", _KEEPS),
    Quirk("deletes on conditions fail", _MADE_UP, _KEEPS),
    Quirk("404 for deletes of what is missing", "AWS S3, with a condition", _RIGHT),
    Quirk("short pages", "AWS S3, as it may", _RIGHT),
    Quirk("listings have no delimiter", _MADE_UP, _RIGHT),
    Quirk("listings are in no order", "S3 directory buckets", _RIGHT, lacks="test_listing_is_sorted_and_limited"),
    Quirk("listings are not encoded", _MADE_UP, _RIGHT),
    Quirk(
        "listings do not say where",
        "Huawei OBS (minio-go#1703), Ceph RGW (awscr-s3#71)",
        _LISTING,
        "no token for the next one",
    ),
    Quirk("listings start over", _MADE_UP, _LISTING, "no token for the next one"),
)
OTHERS: Final = (
    Quirk("GCS: ifGenerationMatch=0 is ignored", _MADE_UP, _REFUSED, "may only create it", unsafe=True),
    Quirk("GCS: ifGenerationMatch is ignored", _MADE_UP, _REFUSED, "an entity tag other than", unsafe=True),
    Quirk("GCS: deletes ignore ifGenerationMatch", "fake-gcs-server", _KEEPS),
    Quirk("Azure: If-None-Match is ignored", _MADE_UP, _REFUSED, "may only create it", unsafe=True),
    Quirk("Azure: If-Match is ignored", _MADE_UP, _REFUSED, "an entity tag other than", unsafe=True),
    Quirk("Azure: deletes ignore If-Match", _MADE_UP, _KEEPS),
)  # fmt: skip
QUIRKS: Final[Mapping[str, Quirk]] = {quirk.name: quirk for quirk in (*S3, *OTHERS)}


def named(*verdicts: Verdict, of: Iterable[Quirk] = S3) -> list[str]:
    """Return the names of the quirks that end so."""
    return [quirk.name for quirk in of if quirk.verdict in verdicts]


@asynccontextmanager
async def s3_with(quirk: str, *, unsafe: bool = False) -> AsyncIterator[tuple[Ground, QuirkyS3]]:
    """A store on S3 with a quirk, and the server itself."""
    pool = HttpPool()
    # A quirk may have several words of the server.
    words = [quirk] if quirk.startswith("gzip") else quirk.split(", ")
    async with quirky_s3(*words) as server:

        async def plant(key: str, body: bytes) -> None:
            server.plant(key.removeprefix(f"s3://{BUCKET}/"), body)

        terms = S3Options(identity=EVERYTHING, endpoint=server.url, region=REGION)
        try:
            store = RemoteStore(S3Client(terms, pool, BOOK), StoreService(NO_ETAG, unsafe=unsafe))
            yield Ground(store, FOLDER, plant, NO_ETAG), server
        finally:
            await pool.close()


Change: TypeAlias = Callable[[str, str, Mapping[str, str]], tuple[str, Mapping[str, str]]]


class Careless(HttpPool):
    """Connections through a proxy that takes conditions away.

    Args:
        change: gives the URL and the headers that arrive, for a method and for those that were sent.
    """

    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    @override
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        url, headers = self._change(method, url, headers)
        return await super().exchange(method, url, headers, body, most)


@asynccontextmanager
async def gcs_with(quirk: str, endpoint: str, *, unsafe: bool = False) -> AsyncIterator[RemoteStore]:
    """A store on fake-gcs-server through a proxy with a quirk."""
    lost = {
        "GCS: ifGenerationMatch=0 is ignored": ("POST", r"&ifGenerationMatch=0(?![0-9])"),
        "GCS: ifGenerationMatch is ignored": ("POST", r"&ifGenerationMatch=[1-9][0-9]*"),
        "GCS: deletes ignore ifGenerationMatch": ("DELETE", r"ifGenerationMatch=[0-9]+"),
    }[quirk]

    def change(method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        return (re.sub(lost[1], "", url) if method == lost[0] else url), headers

    pool = Careless(change)
    terms = GcsOptions(identity=None, endpoint=endpoint)
    try:
        yield RemoteStore(GcsClient(terms, pool, pauses=()), StoreService(NO_GENERATION, unsafe=unsafe))
    finally:
        await pool.close()


@asynccontextmanager
async def azure_with(quirk: str, endpoint: str, *, unsafe: bool = False) -> AsyncIterator[RemoteStore]:
    """A store on Azurite through a proxy with a quirk. Other signatures than this one are of the headers too."""
    method, header = {
        "Azure: If-None-Match is ignored": ("PUT", "if-none-match"),
        "Azure: If-Match is ignored": ("PUT", "if-match"),
        "Azure: deletes ignore If-Match": ("DELETE", "if-match"),
    }[quirk]

    def change(verb: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        kept = {name: value for name, value in headers.items() if verb != method or name.lower() != header}
        return url, kept

    signature = generate_account_sas(
        ACCOUNT,
        ACCOUNT_KEY,
        ResourceTypes(container=True, object=True),
        AccountSasPermissions(read=True, write=True, create=True, delete=True, list=True),
        datetime(2100, 1, 1, tzinfo=UTC),
    )
    pool = Careless(change)
    terms = AzureOptions(identity=SharedSignature(signature), endpoint=endpoint)
    try:
        yield RemoteStore(AzureClient(terms, pool), StoreService(NO_BLOB, unsafe=unsafe))
    finally:
        await pool.close()


def page() -> Shown:
    """Where the quirks are shown."""
    lines = [["quirk", "seen on", "what becomes of it"], ["---"] * 3]
    for quirk in QUIRKS.values():
        outcome = quirk.verdict.value + (f": “… {quirk.said} …”" if quirk.said else "")
        if quirk.lacks:
            outcome += f", but: {sentence(quirk.lacks)}"
        lines.append([quirk.name, quirk.seen, outcome + ("; may be overridden" if quirk.unsafe else "")])
    return Shown("docs/evidence/store-quirks.md", _MODULE, "".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    page().write()
