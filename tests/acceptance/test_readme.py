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


def commands() -> list[str]:
    """Every command, each on one line and without the remark beside it."""
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [line.split("  # ")[0].rstrip() for line in lines if line and not line.startswith(" ")]


def answers() -> list[str]:
    """What is said that commands print."""
    return re.findall(r"^ +# (\{.*?\})", "".join(blocks("sh")), re.MULTILINE)


# One more of them is one more to test.
DEMO, TEST, INSTALL, SERVE, POST, RESOLVE, RELEASE = commands()
TAKEN, RELEASED = answers()


def test_its_make_targets_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in (command.removeprefix("make ") for command in (DEMO, TEST)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_its_way_to_install_it(tmp_path: Path) -> None:
    # Everything else is there: what is tested is the package.
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", f"--target={tmp_path}"]
    subprocess.run([BIN / "python", "-m", *shlex.split(INSTALL), *offline], cwd=README.parent, check=True, timeout=120)
    where = "import sfn; print(sfn.__file__)"
    for command, expected in ((["-c", where], f"{tmp_path}/sfn/__init__.py"), (["-m", "sfn", "--version"], "sfn ")):
        surroundings = {"PYTHONPATH": str(tmp_path)}
        told = subprocess.run([BIN / "python", *command], env=surroundings, capture_output=True, text=True, check=True)
        assert told.stdout.startswith(expected)


async def test_its_five_minutes(tmp_path: Path, unused_port: int) -> None:
    """Serve with its settings, post its event, resolve its directory, release its brake."""
    async with lake(tmp_path) as catalog:
        pointer = catalog.commit("orders")
        text = blocks("toml")[0].replace("http://127.0.0.1:8181", catalog.uri)
        text = text.replace("/warehouse", f"{tmp_path}/warehouse")
        settings = f"[listener]\nport = {unused_port}\n[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n{text}"
        (tmp_path / "sfn.toml").write_text(settings)
        process = _started(shlex.split(SERVE), tmp_path)
        try:
            await until(lambda: catalog.published("orders") == pointer)
            pointer = catalog.commit("orders")
            event = re.sub(r'/warehouse/sales/orders/[^"]*', pointer, POST.replace("8085", str(unused_port)))
            assert pointer in event
            assert await anyio.to_thread.run_sync(_ran, event) == TAKEN
            await until(lambda: catalog.published("orders") == pointer)
            directory = str(catalog.directory("orders"))
            resolve = RESOLVE.replace("/warehouse/sales/orders", directory)
            assert _ran(f"{BIN}/{resolve}").strip() == pointer
            found = sfn.resolve(directory, table="sales.orders")
            assert found.metadata_location == pointer
            assert await anyio.to_thread.run_sync(_ran, RELEASE.replace("8085", str(unused_port))) == RELEASED
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
