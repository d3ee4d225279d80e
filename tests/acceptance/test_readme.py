"""The README's five minutes: its configuration and its commands, as they stand there."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

import sfn
from tests.integration.lake import lake
from tests.integration.waiting import until

README = Path(__file__).parents[2] / "README.md"
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_its_make_targets_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "".join(blocks("sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


async def test_its_five_minutes(tmp_path: Path, unused_port: int) -> None:
    """Serve with its settings, post its event, resolve its directory."""
    serve, post = blocks("sh")[1:]
    async with lake(tmp_path) as catalog:
        pointer = catalog.commit("orders")
        text = blocks("toml")[0].replace("http://127.0.0.1:8181", catalog.uri)
        text = text.replace("/warehouse", f"{tmp_path}/warehouse")
        settings = f"[listener]\nport = {unused_port}\n[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n{text}"
        (tmp_path / "sfn.toml").write_text(settings)
        command = shlex.split(serve)
        process = _started(command, tmp_path)
        try:
            await until(lambda: catalog.published("orders") == pointer)
            script = post.replace("8085", str(unused_port)).replace(
                "/warehouse/sales/orders", str(catalog.directory("orders"))
            )
            pointer = catalog.commit("orders")
            answer = await anyio.to_thread.run_sync(_ran, script.split("sfn resolve")[0])
            assert answer.startswith("HTTP/1.1 202"), answer
            await until(lambda: catalog.published("orders") == pointer)
            resolve = next(line for line in script.splitlines() if line.startswith("sfn resolve"))
            assert _ran(f"{BIN}/{resolve}").strip() == pointer
            found = sfn.resolve(catalog.directory("orders"), table="sales.orders")
            assert found.metadata_location == pointer
        finally:
            process.terminate()
            assert process.wait(30) == 0


def _started(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([BIN / command[0], *command[1:]], cwd=folder, stderr=log)


def _ran(script: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout


@pytest.fixture
def unused_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
