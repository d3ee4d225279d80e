"""Google Cloud Storage: fake-gcs-server, which keeps everything in memory, and forgets it when it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import httpx
from typing_extensions import override

from tests.servers.found import found
from tests.servers.process import Server


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
