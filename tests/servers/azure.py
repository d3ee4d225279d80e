"""Azure Blob Storage: Azurite, which keeps everything in memory, and forgets it when it is stopped."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

import httpx
from typing_extensions import override

from tests.servers.found import found
from tests.servers.process import Server

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
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
        told = {"DefaultEndpointsProtocol": "http", "AccountName": ACCOUNT, "AccountKey": KEY}
        return "".join(f"{name}={value};" for name, value in (told | {"BlobEndpoint": self.endpoint}).items())

    def container(self) -> str:
        """Make a new container; its name."""
        name = f"container-{uuid4()}"
        date = formatdate(usegmt=True)
        signed = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{VERSION}"]
        # Azurite's account is part of the path, hence twice in what is signed.
        text = "\n".join([*signed, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        }
        made = httpx.put(
            f"{self.endpoint}/{name}", params={"restype": "container"}, headers=headers, timeout=10.0, trust_env=False
        )
        made.raise_for_status()
        return name

    @override
    def _command(self) -> Sequence[str | Path]:
        served = ("--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--inMemoryPersistence")
        return [*self._program, *served, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
