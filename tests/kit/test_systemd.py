"""The unit for systemd: its syntax, its protection, and what the listener needs of the system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from signal import SIGABRT, SIGTERM
from typing import Final

import pytest

from sfn.settings import load
from sfn.settings.root import Settings
from sfn.settings.types import parse_duration
from tests.support.deployment import DEPLOY
from tests.support.processes import until
from tests.support.programs import tool
from tests.support.service import SFN, Lake, configure, lake, serving

FOLDER: Final = DEPLOY / "systemd"
UNIT: Final = FOLDER / "iceberg-sfn.service"
WORST_EXPOSURE: Final = 12
"""Tenths of systemd's own score, from 0 to 10. Less would need the addresses of all catalogs and stores."""
LAUNCHER: Final = """\
import ctypes, os, sys
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
assert ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Refuses memory that is writable and executable from now on, and becomes the command that follows."""
EXTRAS: Final = "import adlfs, asyncpg, cryptography.fernet, gcsfs, grpc, nats, pyiceberg.catalog.rest, s3fs"
REFUSABLE: Final = frozenset({"io_uring_setup", *(["fchown"] if os.geteuid() == 0 else [])})
"""Refused system calls that do no harm: the event loop takes another way, and SQLite gives files away only as root."""


def entries() -> Mapping[str, list[str]]:
    """The values of the unit by key, in their order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def value(key: str) -> str:
    (only,) = entries()[key]
    return only


@pytest.fixture(name="unit")
def fixture_unit(tmp_path: Path) -> Path:
    """The unit with a command that this machine has: systemd looks for it."""
    command = value("ExecStart").split()[0]
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(command, sys.executable))
    return unit


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


def analysed(*arguments: str | Path) -> str:
    """What `systemd-analyze` prints; it must end with 0."""
    done = subprocess.run(
        [tool("systemd-analyze"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_reads_the_unit_without_a_warning(unit: Path) -> None:
    assert analysed("verify", "--man=no", unit) == ""


def test_systemd_finds_the_service_well_protected(unit: Path) -> None:
    told = analysed("security", "--offline=true", "--no-pager", f"--threshold={WORST_EXPOSURE}", unit)
    assert re.search(r"Overall exposure level for iceberg-sfn.service: \d\.\d OK", told)


def test_the_command_reads_the_file_that_the_page_names() -> None:
    command, *arguments = value("ExecStart").split()
    configuration = f"/etc/{value('ConfigurationDirectory')}/sfn.toml"
    assert arguments == ["serve", "--config", configuration]
    page = (DEPLOY.parent / "docs" / "get-started" / "systemd.md").read_text()
    assert all(text in page for text in (command, configuration, f"/var/lib/{value('StateDirectory')}"))


def settings() -> Settings:
    """The example for the unit."""
    return load(FOLDER / "sfn.toml", {})


def test_the_example_names_the_secrets_that_the_unit_passes_on() -> None:
    loaded = dict(one.split(":") for one in entries()["LoadCredential"])
    assert all(Path(file) == Path("/etc", value("ConfigurationDirectory"), name) for name, file in loaded.items())
    found = settings()
    (sender,) = found.senders.values()
    named = {str(sender.secrets_file), str(found.admin.token_file)}
    assert named == {f"/run/credentials/{UNIT.name}/{name}" for name in loaded}


def test_the_inbox_lies_in_the_state_directory() -> None:
    path = settings().inbox.path
    assert path is not None
    assert not path.is_absolute()
    assert value("WorkingDirectory") == f"%S/{value('StateDirectory')}"
    assert f"SQLITE_TMPDIR={value('WorkingDirectory')}" in entries()["Environment"]


def test_the_end_has_the_time_that_it_may_take() -> None:
    longest = settings().listener.drain + timedelta(seconds=40)
    assert parse_duration(f"{value('TimeoutStopSec')}s") >= longest


def test_the_manager_is_notified_as_the_unit_says() -> None:
    assert (value("Type"), value("NotifyAccess"), value("Restart")) == ("notify", "main", "on-failure")
    assert "AF_UNIX" in value("RestrictAddressFamilies").split()
    # The exit code of wrong settings.
    assert value("RestartPreventExitStatus") == "2"


async def test_the_signal_of_the_watchdog_logs_where_each_thread_was(world: Lake) -> None:
    (fault,) = [text for text in entries()["Environment"] if text.startswith("PYTHON")]
    name, _, given = fault.partition("=")
    without_core = ("prlimit", f"--core={value('LimitCORE')}")
    async with serving(configure(world), {name: given}, command=SFN, launcher=without_core) as daemon:
        daemon.send(SIGABRT)
        assert await daemon.ended() == -SIGABRT
        told = daemon.log.read_text()
    assert "Fatal Python error: Aborted" in told
    assert "most recent call first" in told


def members(group: str) -> Iterator[str]:
    """The system calls of a group, with those of the groups in it."""
    for line in analysed("syscall-filter", group).splitlines():
        name = line.strip()
        if name.startswith("@") and name != group:
            yield from members(name)
        elif name and not name.startswith(("@", "#")):
            yield name


def allowed() -> set[str]:
    """The system calls that the unit allows."""
    calls: set[str] = set()
    for line in entries()["SystemCallFilter"]:
        named = {call for group in line.removeprefix("~").split() for call in members(group)}
        calls = calls - named if line.startswith("~") else calls | named
    return calls


async def test_the_listener_makes_no_system_call_that_the_unit_refuses(world: Lake) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = world.folder / "trace"
    traced = ("strace", "-D", "-f", "-q", "-o", str(trace))
    async with serving(configure(world), {"NOTIFY_SOCKET": "@none"}, command=SFN, launcher=traced) as daemon:
        world.commit("orders")
        assert (await daemon.tell("orders")).status_code == 202
        await world.until_published("orders")
        daemon.send(SIGTERM)
        assert await daemon.ended() == 0
    await until(lambda: trace.read_text().endswith("+++ exited with 0 +++\n"))
    text = trace.read_text()
    made = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    assert {"accept4", "openat", "sendto"} <= made
    assert made - allowed() <= REFUSABLE
    families = set(re.findall(r" socket\((AF_\w+)", text))
    assert families - set(value("RestrictAddressFamilies").split()) <= {"AF_NETLINK"}


@pytest.fixture(name="refusing")
def fixture_refusing() -> tuple[str, ...]:
    """A command that starts the command after it without memory that is writable and executable."""
    refusing = (sys.executable, "-c", LAUNCHER)
    if subprocess.run([*refusing, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel is older than 6.3: it cannot refuse such memory")
    return refusing


async def test_the_listener_needs_no_memory_that_is_writable_and_executable(
    world: Lake, refusing: tuple[str, ...]
) -> None:
    async with serving(configure(world), command=SFN, launcher=refusing) as daemon:
        world.commit("orders")
        assert (await daemon.tell("orders")).status_code == 202
        await world.until_published("orders")
        daemon.send(SIGTERM)
        assert await daemon.ended() == 0


def test_the_extras_need_no_memory_that_is_writable_and_executable(refusing: tuple[str, ...]) -> None:
    done = subprocess.run([*refusing, sys.executable, "-c", EXTRAS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_such_memory_is_refused(refusing: tuple[str, ...]) -> None:
    """Of the test itself."""
    script = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
    done = subprocess.run([*refusing, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr
