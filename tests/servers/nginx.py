"""nginx as one worker and nothing else: no other process is left when it is killed."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from tests.servers.process import Server

LISTEN: Final = "listen 8080;"
_SETTINGS: Final = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
access_log off;
{kept}
{http}
}}
"""


class Nginx(Server):
    """The server.

    Args:
        program: where it is.
        http: what its section `http` has; `listen 8080;` in it becomes the server's own port.
    """

    title = "nginx"

    def __init__(self, program: str, http: str) -> None:
        super().__init__()
        assert http.count(LISTEN) == 1, http
        self._program, self._http = program, http.replace(LISTEN, f"listen 127.0.0.1:{self.port};")

    @override
    def start(self) -> None:
        places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        kept = "\n".join(f"{place}_temp_path {self.folder}/{place};" for place in places)
        (self.folder / "conf").write_text(_SETTINGS.format(folder=self.folder, kept=kept, http=self._http))
        super().start()

    @override
    def _answers(self) -> bool:
        """It listens: what it would answer itself may be up to whoever waits here."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5.0).close()
        except OSError:
            return False
        return True

    @override
    def _command(self) -> Sequence[str | Path]:
        return [self._program, "-e", self.folder / "error.log", "-c", self.folder / "conf", "-g", "user root;"]
