"""Servers of object stores: versitygw for S3, Azurite for Azure, and fake-gcs-server for Google Cloud Storage.

versitygw's conditions, versions, users and bucket policies work as at AWS, but for two answers. A missing key is 404 to
those too who may not list the bucket; AWS says 403. Where a key's newest version is a delete marker, create-only is
refused; AWS writes. Azurite and fake-gcs-server keep everything in memory, and forget it when they are stopped.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

import botocore.session
import httpx
from botocore.config import Config
from typing_extensions import override

from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply
from tests.servers.process import Server
from tests.support.programs import found

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Keys:
    """Who asks."""

    access: str
    secret: str


ROOT = Keys("testkey", "testsecret")


class S3(Server):
    """The server; its buckets are folders of `data`, and their objects files, with ETags as extended attributes."""

    title = "versitygw"

    def __init__(self) -> None:
        self._program = found("SFN_VERSITYGW")
        super().__init__()
        self.data, self._versions, self._users = (self.folder / name for name in ("data", "versions", "users"))
        for folder in (self.data, self._versions, self._users):
            folder.mkdir()
        self._clients: list[Any] = []
        self._statements: dict[str, list[Mapping[str, object]]] = {}

    def bucket(self, *, versioned: bool = False) -> str:
        """Make a new bucket; its name."""
        name = f"bucket-{uuid4()}"
        self.client.create_bucket(Bucket=name)
        if versioned:
            self.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def user(self, bucket: str, *, on_bucket: Sequence[str] = (), on_objects: Sequence[str] = ()) -> Keys:
        """Make a new user who may do with a bucket what is given, and nothing else anywhere.

        Args:
            on_bucket: `s3:ListBucket`, or none.
            on_objects: some of `s3:GetObject`, `s3:PutObject` and `s3:DeleteObject`.
        """
        keys = Keys(f"user-{uuid4()}", "usersecret")
        self._order("create-user", "--access", keys.access, "--secret", keys.secret, "--role", "user")
        statements = self._statements.setdefault(bucket, [])
        for actions, resource in ((on_bucket, bucket), (on_objects, f"{bucket}/*")):
            if actions:
                allowed = {"Effect": "Allow", "Principal": {"AWS": [keys.access]}, "Action": list(actions)}
                statements.append(allowed | {"Resource": f"arn:aws:s3:::{resource}"})
        if statements:
            policy = {"Version": "2012-10-17", "Statement": statements}
            self.client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        return keys

    def forget(self, keys: Keys) -> None:
        """Let a user be unknown from now on; a policy may not name one."""
        for bucket, statements in self._statements.items():
            self._statements[bucket] = [one for one in statements if one["Principal"] != {"AWS": [keys.access]}]
        self._order("delete-user", "--access", keys.access)

    def _order(self, *order: str) -> None:
        root = ("--access", ROOT.access, "--secret", ROOT.secret, "--endpoint-url", self.url)
        subprocess.run([self._program, "admin", *root, *order], check=True, capture_output=True)

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 - botocore makes it of a description of the service
        """Ask as the one who may do everything."""
        return self.client_of(ROOT)

    def client_of(self, keys: Keys) -> Any:  # noqa: ANN401 - as above
        """Ask as somebody; the connections are closed when the server is stopped."""
        client = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=keys.access,
            aws_secret_access_key=keys.secret,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, proxies={}),
        )
        self._clients.append(client)
        return client

    @override
    def stop(self) -> None:
        for client in self._clients:
            client.close()
        super().stop()

    @override
    def _command(self) -> Sequence[str | Path]:
        # Unlike AWS, it keeps connections only where it is told to.
        served = ("--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet", "--keep-alive")
        users = ("--iam-dir", self._users, "--iam-cache-disable")
        return [self._program, *served, *users, "posix", "--versioning-dir", self._versions, self.data]

    @override
    def _environment(self) -> Mapping[str, str]:
        return {"ROOT_ACCESS_KEY": ROOT.access, "ROOT_SECRET_KEY": ROOT.secret}


ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key that every Azurite has."""

VERSION = "2023-11-03"


class Azure(Server):
    """The server."""

    title = "Azurite"

    def __init__(self) -> None:
        self._program = (found("SFN_NODE"), found("SFN_AZURITE"))
        super().__init__()

    @property
    def endpoint(self) -> str:
        """Of the account."""
        return f"{self.url}/{ACCOUNT}"

    @property
    def connection(self) -> str:
        """The connection string."""
        told = {"DefaultEndpointsProtocol": "http", "AccountName": ACCOUNT, "AccountKey": ACCOUNT_KEY}
        return "".join(f"{name}={value};" for name, value in (told | {"BlobEndpoint": self.endpoint}).items())

    def container(self) -> str:
        """Make a new container; its name."""
        name = f"container-{uuid4()}"
        date = formatdate(usegmt=True)
        signed = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{VERSION}"]
        # Azurite's account is part of the path, hence twice in what is signed.
        text = "\n".join([*signed, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
        signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        made = httpx.put(
            f"{self.endpoint}/{name}", params={"restype": "container"}, headers=headers, timeout=10.0, trust_env=False
        )
        made.raise_for_status()
        return name

    @override
    def _command(self) -> Sequence[str | Path]:
        served = ("--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--inMemoryPersistence")
        return [*self._program, *served, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]


class GCS(Server):
    """The server; it asks nobody who they are."""

    title = "fake-gcs-server"

    def __init__(self) -> None:
        self._program = found("SFN_FAKE_GCS")
        super().__init__()

    def bucket(self) -> str:
        """Make a new bucket; its name."""
        name = f"bucket-{uuid4()}"
        made = httpx.post(f"{self.url}/storage/v1/b", json={"name": name}, timeout=10.0, trust_env=False)
        made.raise_for_status()
        return name

    def plant(self, bucket: str, name: str, body: bytes) -> None:
        """Put a content there, whatever was."""
        asked = {"uploadType": "media", "name": name}
        url = f"{self.url}/upload/storage/v1/b/{bucket}/o"
        httpx.post(url, params=asked, content=body, timeout=10.0, trust_env=False).raise_for_status()

    @override
    def _command(self) -> Sequence[str | Path]:
        served = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port))
        told = ("-external-url", self.url, "-public-host", f"127.0.0.1:{self.port}")
        return [self._program, "-backend", "memory", "-log-level", "warn", *served, *told]


class ConditionalDeletes(HttpPool):
    """Connections to fake-gcs-server on which `ifGenerationMatch` of a delete holds, as it does at Google's.

    The server does delete a single generation where it is told one. That is no condition and can't take its place:
    Google's deletes an older version that way, for good, and says that all is well.
    """

    @override
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        if method != "DELETE":
            return await super().exchange(method, url, headers, body, most)
        told = url.replace("ifGenerationMatch=", "generation=")
        reply = await super().exchange(method, told, headers, body, most)
        if reply.status != HTTPStatus.NOT_FOUND:
            return reply
        object_itself = await super().exchange("GET", url.partition("?")[0], headers)
        if object_itself.status == HTTPStatus.NOT_FOUND:
            return reply
        refused = {"error": {"errors": [{"domain": "global", "reason": "conditionNotMet"}], "code": 412}}
        return HttpReply(HTTPStatus.PRECONDITION_FAILED, reply.headers, json.dumps(refused).encode())
