"""S3: versitygw over a folder.

Conditions, versions, users and bucket policies work as at AWS, but for two answers. A missing key is 404 to those too
who may not list the bucket; AWS says 403. Where a key's newest version is a delete marker, create-only is refused; AWS
writes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import botocore.session
from botocore.config import Config
from typing_extensions import override

from tests.servers.found import found
from tests.servers.process import Server

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
