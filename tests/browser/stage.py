"""A service with a catalog for tests that block, as those that drive a browser do, and many tables in an inbox."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.servers.chromium import Chromium
from tests.support.command_line import Done, sfn
from tests.support.filled_inbox import fill
from tests.support.processes import wait_for
from tests.support.service import TOKEN, Daemon, Lake, configure, lake, serving

OPERATORS_TOKEN: Final = "an-operators-token"  # noqa: S105 - it opens nothing
ADMIN: Final = f"""
[admin]
token = "{OPERATORS_TOKEN}"
[telemetry]
late_after = "1s"
"""
PATIENCE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A service, its catalog, and a portal to the loop in which both are driven.

    Attributes:
        lake: the catalog and its tables.
        daemon: the service.
        url: where it answers.
    """

    lake: Lake
    daemon: Daemon
    url: str
    _portal: BlockingPortal

    def tell(self, name: str, **more: object) -> int:
        """Post an event of a table of the namespace `sales`; return the status of the answer."""

        async def tell() -> int:
            return (await self.daemon.tell(name, **more)).status_code

        return self._portal.call(tell)

    def post(self, content: str, token: str = TOKEN) -> int:
        """Post the body of an event as it is."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return httpx.post(f"{self.url}/v1/events", content=content, headers=headers, trust_env=False).status_code

    def sfn(self, *arguments: str) -> Done:
        """Run a command that asks this service."""
        flags = ("--config", str(self.lake.folder / "sfn.toml"), "--url", self.url)
        return self._portal.call(partial(sfn, *arguments, *flags))

    def operate(self, method: str, path: str, content: object = None) -> Any:  # noqa: ANN401 - JSON
        """Ask or order something by the admin API."""
        headers = {"Authorization": f"Bearer {OPERATORS_TOKEN}"}
        url = f"{self.url}/admin/v1/{path}"
        answer = httpx.request(method, url, json=content, headers=headers, trust_env=False, timeout=PATIENCE)
        return answer.raise_for_status().json()

    def until_published(self, *names: str) -> None:
        """Wait until the files of tables say what the catalog says."""
        self._portal.call(self.lake.until_published, *names)

    def until(self, path: str, key: str, value: object) -> None:
        """Wait until an answer of the admin API has a value."""
        wait_for(lambda: self.operate("GET", path)[key] == value, f"{key} of {path}", PATIENCE, 0.1)

    def hang(self, seconds: float) -> None:
        """Have the catalog take so long for each answer about a table."""
        self.lake.delay = seconds

    def stop_catalog(self) -> None:
        """Have the catalog refuse connections."""
        self._portal.call(self.lake.close)

    def start_catalog(self) -> None:
        """Have it answer again."""
        self._portal.call(self.lake.open)

    def sign_in(self, browser: Chromium) -> None:
        """Sign an operator in, and show the overview."""
        browser.forget()
        browser.open(f"{self.url}/ui")
        browser.type("#token", OPERATORS_TOKEN)
        browser.press("Sign in")


@contextmanager
def staged(folder: Path, more: str = "", filled: int = 0, port: int = 0) -> Iterator[Stage]:
    """A service that runs, and that may not write where it is forbidden to, even if root runs it.

    Args:
        folder: for everything of it.
        more: more of its configuration.
        filled: number of tables that its inbox knows already; the catalog does not have them.
        port: where it listens; 0 for any free port.
    """
    obeys = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
    launcher = obeys if os.geteuid() == 0 else ()
    if filled:
        fill(folder / "inbox" / "inbox.db", "prod", filled)
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(lake(folder)) as made:
        configuration = configure(made, ADMIN + more + ('[sweep]\nevery = "off"\n' if filled else ""))
        configuration.write_text(configuration.read_text().replace("port = 0", f"port = {port}"))
        configuration.chmod(0o600)
        with portal.wrap_async_context_manager(serving(configuration, launcher=launcher)) as daemon:
            yield Stage(made, daemon, str(daemon.client.base_url).rstrip("/"), portal)
