"""NATS with JetStream, whose files outlive a kill of it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from tests.servers.found import found
from tests.servers.process import Server


class Nats(Server):
    """The server.

    Args:
        more: goes into its configuration, such as who may do what.
        jetstream: whether it has that.
    """

    title = "nats-server"

    def __init__(self, more: str = "", *, jetstream: bool = True) -> None:
        self._program = found("SFN_NATS")
        super().__init__()
        self._more, self._jetstream = more, jetstream

    @property
    @override
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @override
    def start(self) -> None:
        kept = f'jetstream {{ store_dir: "{self.folder}" }}' if self._jetstream else ""
        (self.folder / "conf").write_text(f'listen: "127.0.0.1:{self.port}"\n{kept}\n{self._more}\n')
        super().start()

    @override
    def _command(self) -> Sequence[str | Path]:
        return [self._program, "--config", self.folder / "conf"]

    @override
    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False
